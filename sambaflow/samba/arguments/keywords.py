"""Keywords that other versions of SambaFlow know: what each does here. All others are refused."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import wraps
from inspect import signature
from typing import ParamSpec, TypeVar, cast

from pef.warned import warn
from pef.wording import did_you_mean, listed

from .app_options import as_given, defaults, spelled_option

P = ParamSpec("P")
R = TypeVar("R")


class UnusedKeywordWarning(UserWarning):
    """A keyword that would change the result in another version, and changes nothing here."""


@dataclass(frozen=True)
class Keyword:
    """What a keyword does: nothing, for the reason given, unless it `means` a parameter.

    `told` warns where it is given something that another version would act on.
    """

    effect: str
    means: str = ""
    told: bool = False


_OPTIMIZER = Keyword("another name of `optimizers`", means="optimizers")
_OPTIMIZERS = Keyword("another name of `optim`", means="optim")
_COMPILING = {
    "get_output_grads": Keyword("nothing: gradients of outputs are read when they are asked for"),
    "graph_names": Keyword("nothing: deprecated there"),
    "graph_transform_hook": Keyword("nothing: deprecated there, and not called here", told=True),
    "is_split_batch": Keyword("nothing: the batch is compiled as it was traced"),
}
_SHAPES = {
    "app_dir": Keyword("nothing: the PEF does not depend on the folder of the application"),
    "metadata": Keyword("nothing: hints for tiling on hardware"),
    "squeeze_bs_dim": Keyword("nothing: shapes are compiled as they were traced"),
}
_GRADIENTS = {
    "init_output_grads": Keyword("nothing: deprecated there; tracing sets gradients of outputs")
}
_TRACING = {
    "dev_mode": Keyword("nothing: a mode of SambaFlow's own developers"),
    "optimizers": _OPTIMIZERS,
}

KEYWORDS: Mapping[str, Mapping[str, Keyword]] = {
    "SambaSession.compile": {"optim": _OPTIMIZER, **_COMPILING, **_SHAPES, **_GRADIENTS},
    "SambaSession.compile_multigraph": {
        "enable_hypersection": Keyword("nothing: how graphs share a device of hardware"),
        **_COMPILING,
        **_SHAPES,
        **_GRADIENTS,
    },
    "SambaSession.run": {},
    "SambaSession.trace_graph": _TRACING,
    "utils.trace_graph": _TRACING,
    "SambaSession.trace_multigraph": {"optim": _OPTIMIZER},
    "utils.trace_multigraph": {"optim": _OPTIMIZER},
    "utils.common.common_app_driver": {"optimizers": _OPTIMIZERS, **_COMPILING},
    "utils.measure_performance": {
        "json_counters": Keyword("nothing: counters of hardware, which is modelled here")
    },
    "utils.measure_sections": {},
    "directives.op_fusion": {
        "heuristic_params": Keyword("nothing: for a library that is not loaded"),
        "reuse_last_id": Keyword("nothing: how hardware numbers what is fused"),
    },
}
"""By function, below `sambaflow.samba`: the keywords that it takes beside its parameters."""


def tolerant(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Let a function take the keywords that `KEYWORDS` has under `name`.

    They are gone, or have become the parameters they mean, when the function is called. Any other
    keyword, and two names of one parameter, are a `TypeError`. `checked` can do so, too.
    """

    def decorated(function: Callable[P, R]) -> Callable[P, R]:
        parameters = tuple(signature(function).parameters)
        known = frozenset(parameters)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            if kwargs.keys() <= known:
                return function(*args, **kwargs)
            given = translated(name, parameters, len(args), kwargs)
            return cast(Callable[..., R], function)(*args, **given)

        return call

    return decorated


def translated(
    name: str,
    parameters: tuple[str, ...],
    positional: int,
    given: Mapping[str, object],
) -> dict[str, object]:
    """Return `given` as keywords of `parameters`, the first of which are `positional` arguments.

    What else may be given is in `KEYWORDS` under `name`; see `tolerant`.
    """
    table = KEYWORDS[name]
    function = name.rpartition(".")[2]
    unknown = [word for word in given if word not in parameters and word not in table]
    if unknown:
        told = no_keyword(unknown, (*parameters, *table))
        raise TypeError(f"{function}() {told}{_of_options(unknown, parameters)}")
    found = {word: value for word, value in given.items() if word in parameters}
    for word, value in given.items():
        keyword = table.get(word)
        if keyword is None or word in found:
            continue
        if keyword.told and value is not None:
            message = f"{function}(): the keyword '{word}' does {keyword.effect}"
            warn(message, UnusedKeywordWarning)
        if keyword.means:
            if keyword.means in found or keyword.means in parameters[:positional]:
                raise TypeError(
                    f"{function}() is given both '{keyword.means}' and '{word}', which mean the "
                    f"same; give one of them"
                )
            found[keyword.means] = value
    return found


def _of_options(unknown: Iterable[str], parameters: tuple[str, ...]) -> str:
    """Return where those of `unknown` belong that are options of the command line."""
    found = [told for word in unknown if (told := _as_option(word))]
    if not found or "config_dict" not in parameters:
        return ""
    return f"; config_dict takes {listed(found, separator=', ')}"


def _as_option(word: str) -> str:
    """Return how a dict of options has what `word` means to a command line; "" if nothing."""
    if word in defaults():
        return f"'{word}'"
    option = spelled_option(word)
    return "" if option is None else as_given(option)


def no_keyword(unknown: Iterable[str], known: Iterable[str]) -> str:
    """Return what to say of keywords that a function with those that are `known` does not take."""
    words = [word for word in known if word not in ("self", "cls")]
    told = ", ".join(f"'{word}'{did_you_mean(word, words)}" for word in unknown)
    return f"takes no keyword {told}"
