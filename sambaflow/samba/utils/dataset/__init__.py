"""Data sets that examples use."""
