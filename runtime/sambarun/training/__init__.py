"""Training: steps, the data that they read, and checkpoints."""
