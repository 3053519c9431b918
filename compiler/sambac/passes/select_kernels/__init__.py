"""What rewrites a simple graph to the operators that run fastest."""
