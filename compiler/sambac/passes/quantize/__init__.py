"""What lets layers compute in bytes, or read weights of few bits."""
