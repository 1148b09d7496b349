"""QuaRL's study of quantized policies (A2C, PPO, DDPG, DQN): not there yet, see the README."""
