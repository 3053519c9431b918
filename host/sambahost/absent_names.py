"""What modules of an API answer where somebody asks for a name that they do not have."""

from __future__ import annotations

from types import ModuleType
from typing import NoReturn

from pef.wording import did_you_mean


def answer_for(module: ModuleType) -> None:
    """Let `module` answer a name that it has not with the one that may be meant."""

    def absent(name: str) -> NoReturn:
        known = [each for each in vars(module).get("__all__", vars(module)) if each[0] != "_"]
        raise AttributeError(f"{module.__name__} has no '{name}'{did_you_mean(name, known)}")

    vars(module).setdefault("__getattr__", absent)
