"""Reports of what a compiled program needs of the chip."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from pef import open as open_pef
from pef.foreign import reading, why
from sambaflow.samba.arguments.checked import checked
from sambaflow.samba.errors import SambaError

from .reports import save_json

if TYPE_CHECKING:
    from pef.program import Program

__all__ = ["create_mac_resource_report", "estimates"]

AnyPath = str | os.PathLike[str]


@checked()
def create_mac_resource_report(
    compile_report_file_path: AnyPath | None = None,
    mac_resource_file_path: AnyPath = "",
    prism_node_reports_dir: AnyPath | None = None,
    output_file_path: AnyPath = "mac_resource_report.json",
) -> None:
    """Gather what a compilation says about resources into one JSON file, `output_file_path`.

    `mac_resource_file_path` is `<folder of the PEF>/mac_gen/mac_resources.json`. If there is such a
    file its content is taken as it is. Here nothing writes one: what it would hold is in the PEF
    itself, which is then looked for in its folder, and each section's estimates are taken from it.
    Of the other two, a report and a folder of reports by operator, the names of files that exist
    are noted. Raises SambaError if there is neither a readable file nor one PEF.
    """
    report = Path(compile_report_file_path) if compile_report_file_path else None
    folder = Path(prism_node_reports_dir) if prism_node_reports_dir else None
    nodes = folder.iterdir() if folder and folder.is_dir() else ()
    save_json(
        output_file_path,
        {
            "resources": _resources(Path(mac_resource_file_path)),
            "compile_report": report.name if report and report.is_file() else None,
            "node_reports": sorted(path.name for path in nodes),
        },
    )


def estimates(program: Program) -> list[dict[str, object]]:
    """Return what the compiler estimated for each section, as plain data."""
    return [
        {"section_id": number, "name": section.name, "type": section.type.name}
        | asdict(section.estimate)
        for number, section in enumerate(program.sections)
    ]


def _resources(file: Path) -> object:
    if file.is_file():

        def refuse(error: Exception) -> SambaError:
            return SambaError(f"{file} is no JSON file of resources: {why(error)}")

        try:
            with reading(refuse):
                found: object = json.loads(file.read_text("utf-8"))
        except OSError as error:
            raise refuse(error) from error
        return found

    folder = file.absolute().parents[1]
    programs = sorted(folder.glob("*.pef"))
    if len(programs) != 1:
        raise SambaError(
            f"there is no {file}, and {len(programs)} PEFs in {folder}, expected one; "
            f"give the path <folder of the PEF>/mac_gen/mac_resources.json"
        )
    with open_pef(programs[0]) as opened:
        return {"arch": opened.program.arch, "sections": estimates(opened.program)}
