"""Numbers on command lines are those that everybody writes, and no option is given empty."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from pef.text import number_of, whole_of
from samba_cli.compile_options import options_from
from samba_cli.number_types import Number, WholeNumber
from samba_cli.sambac import cli as sambac
from samba_cli.sambarun import cli as sambarun
from samba_cli.shell import Wrong

_OF_PYTHON = ["1_0", " 1", "1 ", "١", "0x10", "1e_3", "", "1__0", "+ 1", "true", "1e", "."]


@pytest.mark.parametrize("text", _OF_PYTHON)
def test_what_only_python_takes_for_a_number_is_none(text: str) -> None:
    assert whole_of(text) is None
    assert number_of(text) is None


def test_numbers_as_they_are_written() -> None:
    assert [whole_of(text) for text in ("7", "-1", "+3", "007")] == [7, -1, 3, 7]
    assert whole_of("9" * 5000) is None, "Python reads no such number"
    texts = ("1e-3", ".5", "1.", "-2.5E+2", "inf")
    assert [number_of(text) for text in texts] == [1e-3, 0.5, 1.0, -250.0, float("inf")]


def _commands() -> Iterator[tuple[click.Command, list[str]]]:
    yield sambarun, []
    assert isinstance(sambac, click.Group)
    for name in sambac.list_commands(click.Context(sambac)):
        command = sambac.get_command(click.Context(sambac), name)
        assert command is not None
        yield command, [name]


def test_every_option_takes_such_numbers_and_nothing_empty() -> None:
    tried = 0
    for command, words in _commands():
        parameters = command.get_params(click.Context(command))
        files = [__file__ for each in parameters if isinstance(each, click.Argument)]
        for option in parameters:
            if not isinstance(option, click.Option) or option.is_flag or option.count:
                continue
            numeric = isinstance(
                option.type, (click.types.IntParamType, click.types.FloatParamType)
            )
            assert type(option.type) not in (type(click.INT), type(click.FLOAT)), option.opts
            assert not numeric or isinstance(option.type, WholeNumber | Number), option.opts
            top = sambac if words else sambarun
            said = CliRunner().invoke(top, [*words, *files, option.opts[-1], ""])
            assert said.exit_code == 2, option.opts
            assert f"{option.opts[-1]} is empty; give " in said.output, said.output
            tried += 1
    assert tried > 40


def test_help_tells_no_limits_that_there_are_not() -> None:
    helped = 0
    for _, words in _commands():
        said = CliRunner().invoke(sambac if words else sambarun, [*words, "--help"])
        assert said.exit_code == 0, words
        assert "None]" not in said.output, said.output
        helped += 1
    assert helped > 5
    assert "[x>=1]" in CliRunner().invoke(sambarun, ["--help"]).output, "limits stay"


@pytest.mark.parametrize(("name", "flag"), [("num_tiles", "--num-tiles"), ("n_chips", "--n-chips")])
def test_nobody_is_told_to_write_none_on_a_command_line(name: str, flag: str) -> None:
    with pytest.raises(Wrong, match=f"^{flag} is 0; a whole number above 0 was expected"):
        options_from({name: 0})
