"""What runs together: calls are chosen and grouped, and their programs become one graph."""
