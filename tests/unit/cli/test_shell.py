"""How commands end."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click
import pytest

from samba_cli.shell import run


def _fail_in_import() -> None:
    raise ImportError("initialization failed") from KeyboardInterrupt()


def _fail_while_handling() -> None:
    try:
        _fail_in_import()
    except ImportError:
        raise AttributeError("half a module") from None


def _fail() -> None:
    raise ImportError("no such module")


@pytest.mark.parametrize(
    ("action", "code", "said"),
    [
        (_fail_in_import, 130, "Interrupted."),
        (_fail_while_handling, 130, "Interrupted."),
        (_fail, 3, "Internal error: ImportError: no such module"),
    ],
)
def test_an_interrupt_behind_another_error_is_one(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    action: Callable[[], None],
    code: int,
    said: str,
) -> None:
    monkeypatch.setattr(sys, "argv", ["tool"])
    with pytest.raises(SystemExit) as leave:
        run(click.Command("tool", callback=action), "tool", lambda: ())
    assert leave.value.code == code
    assert capsys.readouterr().err.startswith(said)
