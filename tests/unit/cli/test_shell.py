"""How commands end."""

from __future__ import annotations

import sys
from collections.abc import Callable

import click
import pytest

from samba_cli import entry
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


def _fail_in_a_circle() -> None:
    error = ImportError("no such module")
    raise error from error


@pytest.mark.parametrize(
    ("action", "code", "said"),
    [
        (_fail_in_import, 130, "Interrupted."),
        (_fail_while_handling, 130, "Interrupted."),
        (_fail, 3, "Internal error: ImportError: no such module"),
        (_fail_in_a_circle, 3, "Internal error: ImportError: no such module"),
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


@pytest.mark.parametrize("interrupted", [KeyboardInterrupt, _fail_while_handling])
def test_an_interrupt_while_a_command_is_imported(
    interrupted: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def imported(module: str) -> None:
        del module
        if interrupted is KeyboardInterrupt:
            raise KeyboardInterrupt
        interrupted()

    monkeypatch.setattr(entry, "import_module", imported)
    with pytest.raises(SystemExit) as ended:
        entry.sambarun()
    assert ended.value.code == 130
    assert capsys.readouterr().err == "Interrupted.\n"


def test_a_fault_while_a_command_is_imported_is_no_interrupt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def imported(module: str) -> None:
        raise ImportError(module)

    monkeypatch.setattr(entry, "import_module", imported)
    with pytest.raises(ImportError):
        entry.sambac()
