"""How tensors without values get them: what is recorded, and random numbers."""
