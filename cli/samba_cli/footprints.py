"""What an executable holds in memory, in words."""

from __future__ import annotations

from pef.text import human_bytes
from sambarun import Executable


def memory_lines(executable: Executable) -> list[str]:
    """Return a line with the memory of `executable`: planned, allocated, and what comes beside."""
    use = executable.memory()
    held = [
        f"{region.region.name} {human_bytes(region.allocated)} of "
        f"{human_bytes(region.planned)} planned"
        for region in use.regions
        if region.planned
    ]
    beside = [] if use.beside is None else [f"{human_bytes(use.beside)} beside them"]
    return [f"memory: {', '.join([*held, *beside])}"] if held else []
