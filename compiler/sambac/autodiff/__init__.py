"""Reverse-mode differentiation of a graph: expansion of bodies, which nodes take part, the walk."""

from .walker import differentiate

__all__ = ["differentiate"]
