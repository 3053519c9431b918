"""How long a training step takes where replicas of a program train together: simulated."""

from .links import Link, link_of, parse_bandwidth, parse_seconds
from .plot import plot
from .simulation import MODES, Mode, ScaledStep, scale, simulate, training_graph

__all__ = [
    "MODES",
    "Link",
    "Mode",
    "ScaledStep",
    "link_of",
    "parse_bandwidth",
    "parse_seconds",
    "plot",
    "scale",
    "simulate",
    "training_graph",
]
