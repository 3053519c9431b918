"""An option that has one value is not given two."""

from __future__ import annotations

from collections.abc import Iterator

import click
import pytest

from samba_cli import sambac, sambarun
from samba_cli.sectioned import SingleOption
from samba_cli.shell import Wrong, one_each
from samba_cli.state_words import hyperparams
from sambaflow.samba.utils.argparser import parse_app_args


def commands() -> Iterator[click.Command]:
    yield sambarun.cli
    yield from sambac.cli.commands.values()


def options() -> Iterator[tuple[click.Command, click.Option]]:
    for command in commands():
        for parameter in command.get_params(click.Context(command)):
            if isinstance(parameter, click.Option) and not (
                parameter.is_flag or parameter.multiple
            ):
                yield command, parameter


def test_every_option_of_one_value_refuses_a_second_one() -> None:
    found = [(c.name, o.name) for c, o in options() if not isinstance(o, SingleOption)]
    assert not found
    assert len(list(options())) > 20


@pytest.mark.parametrize("command", list(commands()), ids=lambda command: command.name)
def test_two_values(command: click.Command) -> None:
    arguments = [p for p in command.params if isinstance(p, click.Argument)]
    for owner, option in options():
        if owner is command:
            values = ("1", "3") if option.name == "level" else ("2", "7")
            given = [word for value in values for word in (option.opts[-1], value)]
            with pytest.raises(click.UsageError) as caught:
                command.make_context("it", [*["a"] * len(arguments), *given])
            said = f"{option.opts[-1]} is given twice, as '{values[0]}' and as '{values[1]}'"
            assert caught.value.message == f"{said}; give it once."


@click.command()
@click.option("-o", "--output", cls=SingleOption)
@click.option("--many", cls=SingleOption, multiple=True)
@click.option("--flag", cls=SingleOption, is_flag=True)
@click.option("--count", cls=SingleOption, type=int, default=4)
def small(**words: object) -> None:
    """Take words."""


def parsed(*words: str) -> dict[str, object]:
    return small.make_context("small", list(words)).params


def test_the_same_value_twice() -> None:
    usual = {"output": None, "many": (), "flag": False, "count": 4}
    assert parsed() == usual
    assert parsed("-o", "a", "--output=a", "--flag", "--flag") == usual | {
        "output": "a",
        "flag": True,
    }
    assert parsed("--many", "a", "--many", "b", "--count", "5") == usual | {
        "many": ("a", "b"),
        "count": 5,
    }


@pytest.mark.parametrize("words", [("-o", "a", "--output=b"), ("-o", "b", "-oa")])
def test_spellings_of_one_option(words: tuple[str, ...]) -> None:
    with pytest.raises(click.UsageError, match="--output is given twice"):
        parsed(*words)


def test_two_values_of_one_name() -> None:
    assert one_each("--input", [("x", "ones"), ("y", "ones"), ("x", "ones")]) == {
        "x": "ones",
        "y": "ones",
    }
    with pytest.raises(
        Wrong, match=r"--hyperparam: 'lr' is given twice, as 0\.1 and as 0\.2; give"
    ):
        hyperparams(["lr=0.1", "p=0.1", "lr=0.2"])


def app(*words: str) -> object:
    return parse_app_args(["compile", *words], common_parser_fn=own)


def own(parser: object) -> None:
    parser.add_argument("--width", type=int, default=3)  # type: ignore[attr-defined]
    parser.add_argument("--layer", action="append")  # type: ignore[attr-defined]
    parser.add_argument("--fast", action="store_true")  # type: ignore[attr-defined]
    parser.add_argument("--slow", dest="fast", action="store_false")  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("-b", "1", "--batch-size", "2"), "-b/--batch-size: batch_size is given twice, as 1 and"),
        (("--width", "4", "--width=5"), "argument --width: width is given twice, as 4 and as 5; g"),
        (("--pef-name", "a", "--pef-name", ""), "pef_name is given twice, as 'a' and as ''"),
        (("-o0", "-o3"), "is given twice"),
    ],
)
def test_options_of_applications(
    words: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        app(*words)
    assert said in capsys.readouterr().err


def test_what_applications_may_repeat() -> None:
    layers, switches = ["--layer", "a", "--layer", "b"], ["--fast", "--slow", "--fast"]
    args = vars(app("--width", "3", "--width", "3", *layers, *switches))
    assert (args["width"], args["layer"], args["fast"]) == (3, ["a", "b"], True)
