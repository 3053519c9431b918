"""Plans become a `pef.Program`: its programs, segments, record of its making, and its log."""

from .log import write_log
from .producer import producer
from .program import emit

__all__ = ["emit", "producer", "write_log"]
