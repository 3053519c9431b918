"""What an application can tell the mapper."""
