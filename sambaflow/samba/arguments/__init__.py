"""Arguments of public functions: what they may be, and what is said of others."""
