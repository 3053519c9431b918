"""Models followed through a call without computing: names, shapes and types."""
