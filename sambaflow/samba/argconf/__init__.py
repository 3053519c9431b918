"""Options as pydantic models."""
