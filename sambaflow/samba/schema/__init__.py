"""Schemas of options."""
