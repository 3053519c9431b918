"""What stands around differentiation: what is kept for gradients, and what comes of it."""
