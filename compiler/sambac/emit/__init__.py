"""Plans become a `pef.Program`: its programs, segments, record of its making, and its log."""

from .producer import producer, write_log
from .program import emit

__all__ = ["emit", "producer", "write_log"]
