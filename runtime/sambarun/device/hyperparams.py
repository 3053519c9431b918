"""Names of hyperparameters: one name may set many argins, and the most specific name wins."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import SupportsFloat, cast

from pef.arguments import NUMBER, shown
from pef.hyperparameters import KINDS
from pef.wording import did_you_mean
from sambarun.errors import RunError


def matching(names: Collection[str], argins: Collection[str]) -> dict[str, str]:
    """Return the name that sets each argin, for those that one of `names` matches.

    Names have components with dots between them. A name matches an argin in three ways, here for
    the argin `layers.0.dropout.p`: as the whole of it, as its end (`dropout.p`, `p`), or as its
    beginning with its last component behind (`layers.p`). Of names that match one argin the whole
    one wins, then the one of most components, then the later one. Raises `RunError` with a line for
    each name that matches nothing.
    """
    problems: list[str] = []
    best: dict[str, str] = {}
    for name in names:
        found = [argin for argin in argins if matches(str(name), argin)]
        if not found:
            problems.append(_unknown(str(name), argins))
        for argin in found:
            if argin not in best or _rank(name, argin) >= _rank(best[argin], argin):
                best[argin] = name
    if problems:
        raise RunError("\n".join(problems))
    return best


def number(option: str, name: str, value: object) -> float:
    """Return the `value` given under `name` as a number for an argin that is such an `option`.

    Raises `RunError` if it is none, or not of the kind that `pef.hyperparameters` has for those.
    """
    # A float comes with every step; asking a protocol takes longer than setting an argin.
    if type(value) is float:
        found = value
    elif not NUMBER.fits(value):
        raise RunError(f"Hyperparameter '{name}' is {shown(value)}; a number was expected.")
    else:
        found = float(cast(SupportsFloat, value))
    if not math.isfinite(found):
        raise RunError(f"Hyperparameter '{name}' is {found}; a finite number was expected.")
    kind = KINDS.get(option)
    if kind is not None and not kind.fits(found):
        raise RunError(f"Hyperparameter '{name}' is {found}; {kind.words} was expected.")
    return found


def _rank(name: str, argin: str) -> tuple[bool, int]:
    return name == argin, name.count(".")


def matches(name: str, argin: str) -> bool:
    """Tell whether `name` sets `argin`, if no other name does; see `matching`."""
    if name == argin or argin.endswith(f".{name}"):
        return True
    prefix, _, last = name.rpartition(".")
    return bool(prefix) and argin.startswith(f"{prefix}.") and argin.endswith(f".{last}")


def _unknown(name: str, argins: Collection[str]) -> str:
    known = ", ".join(argins) or "none"
    said = f"There is no hyperparameter '{name}'{_hint(name, argins)}."
    return f"{said} The program's hyperparameters: {known}."


def _hint(name: str, argins: Collection[str]) -> str:
    """Return which hyperparameter is meant; of a name with a known prefix only its end is wrong."""
    prefix, dot, last = name.rpartition(".")
    ends = [a[len(prefix) + 1 :] for a in argins if prefix and a.startswith(f"{prefix}.")]
    if ends and (meant := did_you_mean(last, ends)):
        return meant.replace("'", f"'{prefix}{dot}", 1)
    return did_you_mean(name, (*argins, *(argin.rpartition(".")[2] for argin in argins)))
