"""Files of options: every way in which a predefined option can be spelled, and what it takes."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from sambaflow.samba import session
from sambaflow.samba.utils import argparser
from sambaflow.samba.utils.argparser import parse_app_args, parse_yaml_to_args


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-b", "--batch-size", type=int, default=4)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("o0: true", {"optim_level": "o0"}),
        ("'-o1': true", {"optim_level": "o1"}),
        ("o0: false\n'--o1': true", {"optim_level": "o1"}),
        ("o0: false", {"optim_level": "o3"}),
        ("optim-level: o0", {"optim_level": "o0"}),
        ("b: 7\nws: 2", {"batch_size": 7, "world_size": 2}),
        ("'--batch-size': 7", {"batch_size": 7}),
        ("batch-size: null\narch: null", {"batch_size": 4, "arch": None}),
        ("inference: true\ndata_parallel: no", {"inference": True, "data_parallel": False}),
        ("resources-scaling-factors: [1, 2.5, 3]", {"resources_scaling_factors": [1, 2.5, 3]}),
    ],
)
def test_yaml_spells_options_as_the_command_line(
    text: str, wanted: dict[str, object], tmp_path: Path
) -> None:
    (tmp_path / "o.yaml").write_text(text)
    args = parse_app_args(["compile"], _options)
    names = {*vars(args)}
    parse_yaml_to_args(tmp_path / "o.yaml", args)
    assert {name: getattr(args, name) for name in wanted} == wanted
    assert {*vars(args)} == names


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("inference: 'false'", "inference: 'false' is neither true nor false$"),
        ("inference: 0", "inference: 0 is neither true nor false$"),
        ("optim-level: o9", "optim-level: 'o9' is none of o0, o1, o3$"),
        ("o0: 1", "o0: 1 is none of o0, o1, o3$"),
        ("o0: true\no3: true", "o0 and o3 are one option$"),
        ("b: 1\nbatch-size: 2", "b and batch-size are one option$"),
        ("batch-size: [1, 2]", r"batch-size: \[1, 2\] is a list, expected one value$"),
        ("resources-scaling-factors: 1", "resources-scaling-factors: 1 is no list of 3$"),
    ],
)
def test_yaml_with_what_an_option_does_not_take(text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "o.yaml").write_text(text)
    with pytest.raises(ValueError, match=message):
        parse_yaml_to_args(tmp_path / "o.yaml", parse_app_args(["compile"], _options))


def test_options_of_a_file_do_what_those_of_the_command_line_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    met: list[bool] = []
    monkeypatch.setattr(argparser, "join_launched", lambda: met.append(True))
    (tmp_path / "o.yaml").write_text("o0: true\ndata-parallel: true\nlr: 0.5")
    args = parse_app_args(["run", "-p", "x.pef"], _options)
    assert (session.options, met) == ({"batch_size": 4, "pef": "x.pef"}, [])
    parse_yaml_to_args(tmp_path / "o.yaml", args)
    wanted = {"batch_size": 4, "pef": "x.pef", "optim_level": "o0", "data_parallel": True}
    assert (session.options, met) == (wanted, [True])
