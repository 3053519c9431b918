"""Runs: plans of bound steps, and the workspace in which they are made."""
