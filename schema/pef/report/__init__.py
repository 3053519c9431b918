"""What a program says of itself: as plain data, as text, and in what two of them differ."""

from .building import report
from .page_html import page
from .rendering import Part, parts, render, render_parts, section_parts
from .rendering_storage import symbol_parts
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
    "page",
    "parts",
    "render",
    "render_parts",
    "report",
    "section_parts",
    "summary",
    "symbol_parts",
    "whole",
]
