"""The options on the page of names: a command takes each, and it is an attribute from then on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from sambaflow.samba.arguments.app_options import OPTIONS
from sambaflow.samba.utils.argparser import parse_app_args

PAGE = Path(__file__).parents[2] / "docs" / "samba" / "api.md"
_, _, TABLE = PAGE.read_text("utf-8").partition("## Options of the command line")
SPELLINGS = re.findall(r"`(--?[\w-]+)`", "\n".join(re.findall(r"^\| (`-.*?) \|", TABLE, re.M)))
WORDS = {
    "--data-parallel-mode": ["inorder"],
    "--mapping": ["spatial"],
    "--arch": ["sn30"],
    "--graphamp-preset": ["mp1"],
    "--log-level": ["error"],
    "--resources-scaling-factors": ["1", "1", "1"],
    "--output-folder": ["out"],
    "--num-tiles": ["2"],
    "--stage-instrumentation": ["metapipe_buf_cycles"],
}
"""What stands behind an option; behind others a number, or nothing."""
COMMANDS = ("compile", "run", "measure-performance", "measure-sections", "test")


def taken(spelling):
    """Return what the option gives in the first command that takes it, by attribute."""
    for command in COMMANDS:
        for words in (WORDS.get(spelling, ["3"]), []):
            try:
                args = parse_app_args([command, *_pef(spelling), spelling, *words])
            except SystemExit:
                continue
            return {name: getattr(args, name) for name in args.given - {"command"}}
    return {}


def _pef(spelling):
    return [] if spelling in ("-p", "--pef") else ["--pef", "m.pef"]


def test_the_page_has_every_option():
    assert len(SPELLINGS) == len(set(SPELLINGS))
    assert set(SPELLINGS) == {spelling for option in OPTIONS for spelling in option.spellings}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_an_option_is_an_attribute(spelling, capsys, monkeypatch):
    monkeypatch.setattr("sambahost.rendezvous.join_launched", lambda: None)
    found = taken(spelling)
    if spelling not in ("-p", "--pef"):
        found.pop("pef")
    (value,) = found.values()
    assert value not in (None, False)
