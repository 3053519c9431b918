"""Planners: from a graph to frozen plans, each with an independent checker beside it."""
