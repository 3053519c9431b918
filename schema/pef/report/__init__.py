"""What a program says of itself: as plain data, as text, and in what two of them differ."""

from .building import report
from .rendering import Part, parts, render
from .rendering_summary import Whole, summary, whole
from .rows import ArginRow, File, GraphRow, PortRow, Report, Training

__all__ = [
    "ArginRow",
    "File",
    "GraphRow",
    "Part",
    "PortRow",
    "Report",
    "Training",
    "Whole",
    "parts",
    "render",
    "report",
    "summary",
    "whole",
]
