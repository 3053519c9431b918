"""What rounds results as the numbers of a device would."""
