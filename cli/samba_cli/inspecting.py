"""`sambac inspect`, `verify` and `diff`: read PEFs and put what they hold into lines."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path

import pef
from pef.container import LEAF
from pef.errors import PefError
from pef.files import write_text
from pef.program import Program
from pef.report import File, Report, page, report
from pef.report.diff import differences
from pef.text import human_bytes, name_text, plural

from .diff_text import diff_text
from .targets import check_targets


def read_report(path: Path) -> Report:
    """Return the report of the PEF at `path`."""
    with pef.open(path) as file:
        return report(file.program, File(name=path.name, bytes=path.stat().st_size))


def write_page(path: Path, target: Path, against: Path | None) -> str:
    """Write the page of the PEF at `path`, beside another one if there is one; return what to say.

    Raises `Wrong` for a `target` that cannot be written, or is one of the files.
    """
    check_targets([target], [path, against])
    text = page(read_report(path), None if against is None else read_report(against))
    write_text(target, text)
    return f"{target}: {human_bytes(len(text.encode()))}; open it in a browser."


def json_lines(data: Mapping[str, object]) -> Iterator[str]:
    """Yield `data` as JSON that is quick to write and easy to read: a row of a list is a line."""
    yield "{"
    left = len(data)
    for key, value in data.items():
        left -= 1
        comma = "," if left else ""
        if isinstance(value, list) and value and isinstance(value[0], dict):
            yield f"{_json(key)}: ["
            yield ",\n".join(f"  {_json(row)}" for row in value)
            yield f"]{comma}"
        else:
            yield f"{_json(key)}: {_json(value)}{comma}"
    yield "}"


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def verify_lines(path: Path) -> list[str]:
    """Return what was checked of the PEF at `path`; raise `PefError` with all its problems."""
    program = pef.verify(path)
    plans = _verify_plans(path, program)
    segments = program.segments
    pieces = sum(-(-segment.size // LEAF) for segment in segments)
    content = human_bytes(sum(segment.size for segment in segments))
    sections = plural(len(program.sections), "section")
    calls = plural(len(program.schedule), "call")
    symbols = plural(len(program.symbols), "symbol")
    places = plural(len(program.allocations), "allocation")
    regions = plural(len(program.regions), "region")
    return [
        f"{path} is intact. Checked:",
        f"  file     header, metadata, padding, {plural(len(segments), 'segment')} ({content})",
        f"  hashes   SHA-256 of the metadata and of {plural(pieces, 'piece')} of content",
        f"  program  references of {sections} and {symbols}, the order of {calls}",
        f"  memory   lifetimes and addresses of {places} in {regions}",
        f"  plans    {plans}",
    ]


def _verify_plans(path: Path, program: Program) -> str:
    """Return what was checked of the plans in `program`; raise `PefError` if they are wrong."""
    try:
        from sambac.reconstruct.verify import check_plans, device_of
    except ModuleNotFoundError as error:
        return f"not checked: that needs what compiling needs, and {error.name} is not installed"
    if problems := check_plans(program):
        raise PefError.listing(f"{path} is undamaged, but its plans are wrong", problems)
    groups = plural(sum(len(section.groups) for section in program.sections), "fusion group")
    device = name_text(program.arch)
    limits = f"limits of {device}" if device_of(program) else f"limits of {device} not known here"
    return f"{groups}, sections and memory, rebuilt from the operators; {limits}"


def diff_lines(a: Path, b: Path, as_json: bool) -> tuple[bool, list[str]]:
    """Return whether two PEFs differ, and the lines that say in what."""
    with pef.open(a) as left, pef.open(b) as right:
        found = differences(left, right)
    if as_json:
        rows = [asdict(difference) for difference in found]
        return bool(found), list(json_lines({"equal": not found, "differences": rows}))
    if not found:
        return False, [f"{a} and {b} hold the same."]
    return True, [f"{a} and {b} differ:", *diff_text(found, a.name, b.name)]
