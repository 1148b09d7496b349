"""The parts that DQN does differently: its learner (TensorFlow) and its exploration (numpy)."""
