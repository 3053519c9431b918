"""Options that an application declares itself: from YAML, and in pickles."""

from __future__ import annotations

import argparse
import copy
import pickle
from pathlib import Path

import pytest

from sambaflow.samba.utils.argparser import parse_app_args, parse_yaml_to_args


def _own(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--decay", type=float)
    parser.add_argument("--steps", type=int, default=2)
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--kind", choices=["a", "b"], default="a")
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--betas", type=float, nargs=2)
    parser.add_argument("--sizes", type=int, nargs="+")
    parser.add_argument("--more", type=int, action="append")
    parser.add_argument("--shuffle", choices=["on", "off", "1"])
    parser.add_argument("--name", type=str)
    parser.add_argument("--kept", type=bool)
    parser.add_argument("--whole", action="store_const", const="all")
    parser.add_argument("--anything", default="x")


def test_yaml_is_read_by_the_types_that_an_application_declares(tmp_path: Path) -> None:
    args = parse_app_args(["compile"], _own)
    (tmp_path / "o.yaml").write_text(
        "decay: 1e-3\nsteps: 1e3\nfolder: a/b\nkind: b\nfast: true\nbetas: [9e-1, 1]\n"
        "anything: 1e3\n"
    )
    found = parse_yaml_to_args(tmp_path / "o.yaml", copy.deepcopy(args))
    assert {name: getattr(found, name) for name in ("decay", "steps", "folder", "kind")} == {
        "decay": 1e-3, "steps": 1000, "folder": Path("a/b"), "kind": "b",
    }  # fmt: skip
    assert (found.fast, found.betas, found.anything) == (True, [0.9, 1.0], "1e3")
    (tmp_path / "o.yaml").write_text(
        "decay: high\nsteps: 1.5\nkind: c\nfast: 'false'\nbetas: [1, x]\n"
    )
    with pytest.raises(
        ValueError,
        match=r"decay: 'high' is no float; steps: 1.5 is no int; kind: 'c' is none of a, b; "
        r"fast: 'false' is neither true nor false; betas: 'x' is no float$",
    ):
        parse_yaml_to_args(tmp_path / "o.yaml", args)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("sizes: 3", [3]),
        ("more: 3", [3]),
        ("shuffle: 1", "1"),
        ("shuffle: 'on'", "on"),
        ("whole: true", "all"),
        ("kept: 0", False),
        ("steps: true", "True is no int$"),
        ("steps: [1]", r"\[1\] is a list, expected one value$"),
        ("decay: 2026-01-02", "is no float$"),
        ("shuffle: on", "True is none of on, off, 1; put texts in quotes$"),
        ("name: no", "False is no str; put texts in quotes$"),
        ("betas: [1, 2, 3]", "has 3 values, not 2$"),
    ],
)
def test_yaml_gives_what_the_command_line_would(
    tmp_path: Path, line: str, expected: object
) -> None:
    args = parse_app_args(["compile"], _own)
    (tmp_path / "o.yaml").write_text(line)
    if isinstance(expected, str) and expected.endswith("$"):
        with pytest.raises(ValueError, match=expected):
            parse_yaml_to_args(tmp_path / "o.yaml", args)
    else:
        found = parse_yaml_to_args(tmp_path / "o.yaml", args)
        assert getattr(found, line.partition(":")[0]) == expected


def test_options_can_be_pickled() -> None:
    """Applications keep them beside their checkpoints, and hand them to processes."""
    args = parse_app_args(["compile", "--decay", "1"], _own)
    found = pickle.loads(pickle.dumps(args))
    assert (found, found.given) == (args, args.given)
