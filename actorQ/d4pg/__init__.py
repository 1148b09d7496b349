"""The parts that D4PG does differently: its learner (TensorFlow) and its exploration (numpy)."""
