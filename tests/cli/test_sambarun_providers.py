"""`sambarun --provider`: which kernels run a program, section by section."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest


def test_list_with_a_provider(sambarun: Callable, pef_file: Path) -> None:
    result = sambarun(pef_file, "--list", "--provider", "CPUExecutionProvider")
    assert (result.code, result.err) == (0, "")
    header, _, *rows = result.out.split("Sections\n")[1].splitlines()
    assert header.split()[-2:] == ["provider", "name"]
    assert [row.split()[-2] for row in rows] == ["CPUExecutionProvider"] * 3


def test_a_run_with_a_provider(sambarun: Callable, pef_file: Path, tmp_path: Path) -> None:
    words = (pef_file, "--input", "x=random")
    trace = tmp_path / "trace.json"
    result = sambarun(*words, "--provider", "CPUExecutionProvider", "--profile", trace)
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(sambarun(*words).out)
    assert "run by: 3 calls by CPUExecutionProvider" in result.out
    events = json.loads(trace.read_text())["traceEvents"]
    told = [event["args"]["provider"] for event in events if "provider" in event.get("args", ())]
    assert told == ["CPUExecutionProvider"] * 3


@pytest.mark.parametrize("more", [("--list",), ("--input", "x=random"), ("--steps", "1")])
def test_a_provider_that_is_not_there(sambarun: Callable, pef_file: Path, more: tuple) -> None:
    if "--steps" in more:
        more = (*more, "--data", pef_file)
    result = sambarun(pef_file, "--provider", "OpenVINOExecutionProvider", *more)
    assert (result.code, result.out) == (2, "")
    (line,) = result.err.splitlines()
    assert line.startswith("Error: --provider: The installed onnxruntime has been built without ")
    assert "which the package onnxruntime-openvino brings" in line


@pytest.mark.parametrize("more", [("--list",), ("--input", "x=random")])
def test_options_that_a_provider_does_not_take(
    sambarun: Callable, pef_file: Path, more: tuple
) -> None:
    result = sambarun(pef_file, "--provider", "CPUExecutionProvider:foo=1", *more)
    assert (result.code, result.out) == (2, "")
    assert result.err == "Error: --provider: CPUExecutionProvider takes no options, so not 'foo'.\n"
