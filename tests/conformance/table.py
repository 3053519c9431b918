"""docs/conformance.md: how many cases pass, and the reason for each that does not."""

from __future__ import annotations

import importlib.metadata
import re
from collections import defaultdict
from collections.abc import Mapping

from cases import KINDS

Outcomes = Mapping[str, str]
_LEVELS = ("O3", "O0")
_RANDOM = ("bernoulli", "dropout")  # in the names of cases that draw random numbers
_LENGTH = 200  # characters of a reason

# What an outcome says, and the words of the table for it.
_REASONS = {
    r"export it again: (\w[\w.:]*) \(opset (\d+)\) on tensor\((\w+)\)": (
        r"onnxruntime has no CPU kernel for \1 of opset \2 on \3"
    ),
    r"wrong values$": "onnxruntime's kernel computes other values than the case expects",
    r"Unrecognized attribute: (\w+) for operator (\w+)": (
        r"onnxruntime's \2 does not know the attribute \1"
    ),
    r"Failed to construct locale with name:(\S+?):": r"the locale \1 is not installed",
    r"fmod was false": "onnxruntime's Mod on floating-point numbers exists only with fmod=1",
    r"layout_ == 0 was false": "onnxruntime's recurrent operators exist only with layout=0",
    r"Type '(.*)' of input parameter \(\w+\) of operator \((\w+)\)": (
        r"onnxruntime's \2 does not take \1"
    ),
    r"ComputeOutputShapeForAttention.*?\) (\w+.*)": r"onnxruntime's Attention kernel fails: \1",
    r"while running (\w+) node.*?Status Message: (?:\S+:\d+ )?(.*)": (
        r"onnxruntime's \1 kernel fails: \2"
    ),
    r"cannot be loaded: (.*)": r"onnxruntime does not load it: \1",
}

_HEADER = """\
# Conformance

The ONNX backend suite of onnx {onnx}, every case compiled, written to a file, loaded and run
with onnxruntime {onnxruntime}, its outputs compared within the tolerances of the case. Generated
by `make conformance`; a test keeps it up to date.

'Plain' is one ordinary onnxruntime session on the original model in a process of its own, fed
with the values just as the suite has them; 'plain, arrays' makes arrays of numpy's scalars first.
"""


def render(results: Mapping[str, Outcomes]) -> str:
    """The page, from outcomes by engine and case."""
    versions = {name: importlib.metadata.version(name) for name in ("onnx", "onnxruntime")}
    return "\n".join(
        [_HEADER.format(**versions), *_counts(results), "", *_lost(results), "", *_failing(results)]
    )


def _counts(results: Mapping[str, Outcomes]) -> list[str]:
    """A line per kind of case, a column per engine."""
    lines = [
        "| kind | cases | plain | plain, arrays | O3 | O0 |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for kind in KINDS:
        names = [name for name in results["O3"] if name.startswith(f"{kind}/")]
        passed = [
            sum(results[engine][name] == "pass" for name in names)
            for engine in ("plain", "plain-arrays", "O3", "O0")
        ]
        lines.append(f"| {kind} | {len(names)} | {' | '.join(map(str, passed))} |")
    return lines


def _lost(results: Mapping[str, Outcomes]) -> list[str]:
    """What plain onnxruntime passes and a level does not; empty in a healthy tree."""
    lost = [
        f"* `{name}` at {level}: {results[level][name]}"
        for level in _LEVELS
        for name in lost_cases(results, level)
    ]
    return ["## Lost against plain onnxruntime", "", *(lost or ["None."])]


def lost_cases(results: Mapping[str, Outcomes], level: str) -> list[str]:
    """The cases that either way of feeding plain onnxruntime passes and `level` does not."""
    return [
        name
        for name, outcome in results[level].items()
        if outcome != "pass" and "pass" in (results["plain"][name], results["plain-arrays"][name])
    ]


def _reason(name: str, outcome: str) -> str:
    """The outcome of a case in few words."""
    if outcome.endswith("wrong values") and any(word in name for word in _RANDOM):
        return "the operator draws random numbers, and the case expects those of another generator"
    for pattern, words in _REASONS.items():
        if found := re.search(pattern, outcome):
            outcome = found.expand(words)
            break
    return outcome if len(outcome) <= _LENGTH else f"{outcome[: _LENGTH - 1]}…"


def _failing(results: Mapping[str, Outcomes]) -> list[str]:
    """Every case that does not pass at both levels, under its reason."""
    by_reason: dict[str, list[str]] = defaultdict(list)
    for name in results["O3"]:
        reasons = [_reason(name, results[level][name]) for level in _LEVELS]
        if reasons[0] == reasons[1] != "pass":
            by_reason[reasons[0]].append(name)
        elif reasons[0] != reasons[1]:
            both = zip(_LEVELS, reasons, strict=True)
            by_reason["; ".join(f"{level}: {reason}" for level, reason in both)].append(name)
    total = sum(map(len, by_reason.values()))
    lines = ["## Cases that do not pass", "", f"{total} cases, by reason."]
    for reason, names in sorted(by_reason.items(), key=lambda item: (-len(item[1]), item[0])):
        lines += ["", f"### {len(names)}: {reason.replace('|', '/')}", ""]
        lines += [f"* `{name}`" for name in names]
    return [*lines, ""]
