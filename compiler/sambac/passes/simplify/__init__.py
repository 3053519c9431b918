"""What makes a legal graph smaller, and lets it compute the same."""
