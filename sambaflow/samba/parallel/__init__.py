"""Processes of one job: how they come together, and how one of them ends."""
