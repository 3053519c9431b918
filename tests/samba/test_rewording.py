"""Errors of the host in samba's words: each class that has a cure gets samba's."""

from __future__ import annotations

import pytest

from sambaflow.samba import SambaError
from sambaflow.samba.errors import in_samba_words, worded
from sambahost.errors import HostError, LaunchedAloneError, NoStartError, NotReducedError

CURES = {
    LaunchedAloneError: "launch several processes: torchrun",
    NotReducedError: "compile the model with --data-parallel",
    NoStartError: "compile it with loss_indices",
}


def test_every_class_of_errors_has_its_cure() -> None:
    assert {*HostError.__subclasses__()} == {*CURES}


@pytest.mark.parametrize(("kind", "cure"), CURES.items(), ids=lambda item: str(item)[-30:])
def test_the_cure_stands_behind_what_is_wrong(kind: type[HostError], cure: str) -> None:
    told = worded(kind("something is wrong"))
    assert type(told) is SambaError
    assert str(told).startswith(f"something is wrong; {cure}")


def test_other_errors_keep_their_words() -> None:
    """What is told once is not told again as its own cause; what lies behind it is."""
    behind = ValueError("behind")
    with pytest.raises(SambaError, match=r"^it does not fit$") as caught, in_samba_words():
        raise HostError("it does not fit") from behind
    assert caught.value.__cause__ is behind
    assert caught.value.__suppress_context__
