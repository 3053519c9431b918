"""The memory of one executable: where each symbol lies and what it holds."""
