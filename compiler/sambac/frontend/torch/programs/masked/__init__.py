"""What masks select: rows whose number is open, computed of all rows where gradients are wanted."""
