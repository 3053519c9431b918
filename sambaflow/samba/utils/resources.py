"""Reports of what a compiled program needs of the chip."""

from __future__ import annotations

import json
import os
from pathlib import Path

from sambaflow.samba.errors import SambaError

from .reports import save_json

__all__ = ["create_mac_resource_report"]

AnyPath = str | os.PathLike[str]


def create_mac_resource_report(
    compile_report_file_path: AnyPath | None = None,
    mac_resource_file_path: AnyPath = "",
    prism_node_reports_dir: AnyPath | None = None,
    output_file_path: AnyPath = "mac_resource_report.json",
) -> None:
    """Gather what a compilation wrote about resources into one JSON file, `output_file_path`.

    `mac_resource_file_path` is `mac_gen/mac_resources.json` beside the PEF, whose content is taken
    as it is; of the other two, a report and a folder of reports by operator, the names of the files
    that exist are noted. Raises SambaError if the resource file cannot be read as JSON.
    """
    try:
        resources = json.loads(Path(mac_resource_file_path).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise SambaError(
            f"{os.fspath(mac_resource_file_path) or 'no file'} cannot be read as a report of "
            f"resources: {error}; compile writes it to mac_gen/mac_resources.json beside the PEF"
        ) from error
    report = Path(compile_report_file_path) if compile_report_file_path else None
    folder = Path(prism_node_reports_dir) if prism_node_reports_dir else None
    save_json(
        output_file_path,
        {
            "resources": resources,
            "compile_report": report.name if report and report.is_file() else None,
            "node_reports": sorted(path.name for path in folder.iterdir())
            if folder and folder.is_dir()
            else [],
        },
    )
