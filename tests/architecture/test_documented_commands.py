"""Commands in pages and help texts have the verbs and options that they are shown with."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import click

from samba_cli.sambac import cli as sambac
from samba_cli.sambarun import cli as sambarun

_ROOT = Path(__file__).parents[2]
_PAGES = ("*.md", "schema/*.md", "docs/**/*.md", "examples/**/*.sh")
_COMMAND = re.compile(r"\b(sambac|sambarun)((?: +[^\s`|;#]+)+)")
_LEVELS = {f"-O{level}" for level in (0, 1, 3)}


def _spellings(command: click.Command) -> set[str]:
    """All options of a command, as they are spelled."""
    params = command.get_params(click.Context(command))
    return _LEVELS.union(*(set(param.opts) for param in params))


def _texts() -> Iterator[tuple[str, str]]:
    """Yield what shows commands, each with where it stands."""
    for page in (page for pattern in _PAGES for page in _ROOT.glob(pattern)):
        if page.name != "CHANGELOG.md":
            yield page.name, page.read_text("utf-8")
    for command in (sambarun, sambac, *sambac.commands.values()):
        yield f"the help of {command.name}", command.help or ""


def _shown() -> Iterator[tuple[str, str, list[str]]]:
    """Yield each command that is shown: where, its name and its words."""
    for place, text in _texts():
        for command, words in _COMMAND.findall(text):
            yield place, command, words.split()


def test_verbs_and_options_exist() -> None:
    verbs = {name: _spellings(verb) for name, verb in sambac.commands.items()}
    of_runs = _spellings(sambarun)
    wrong, options = [], 0
    for place, command, words in _shown():
        known = of_runs if command == "sambarun" else verbs.get(words[0], set())
        given = [re.split(r"[=.,):;]", word)[0] for word in words if re.match(r"--?[a-zA-Z]", word)]
        options += len(given)
        wrong += [(place, command, *words) for option in given if option not in known]
    assert options > 100
    assert not wrong
