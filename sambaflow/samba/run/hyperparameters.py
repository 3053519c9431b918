"""The hyperparameters of a program: what those of a run are, and what of them is to be set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isclose
from typing import SupportsFloat, cast

import torch
from torch.nn.modules.dropout import _DropoutNd

from pef.arguments import NUMBER
from pef.program import Program
from pef.warned import warn
from pef.wording import did_you_mean, listed
from sambaflow.samba.errors import SambaError
from sambaflow.samba.optim.values import Held, Values, news
from sambarun import RunError
from sambarun.device.hyperparams import matches, matching, number

_USUAL = frozenset({"lr", "momentum", "weight_decay", "p"})
"""Hyperparameters that applications give whether the model has them or not."""

_LEFT_OUT = {
    "momentum": " Its optimizers have no such term.",
    "weight_decay": " Its optimizers have no such term.",
    "p": " Dropout of rate 0 is left out when it is compiled.",
}
"""Those of them that change training, and why a program may not have them."""
_CHANGING = _LEFT_OUT.keys()
_AS_FLOAT32 = 1e-6
"""How near, of their size, numbers are that a program keeps as float32."""


class UnknownHyperparameterWarning(UserWarning):
    """A hyperparameter that the PEF, or a dropout in it, does not have; it is ignored."""


@dataclass(frozen=True, slots=True)
class _State:
    """What holds from run to run: one object, so that no interrupt comes between its parts.

    `wanted` are all numbers but seeds as a training run has them, `held` what optimizers held.
    `muted` tells whether dropout is off on the device, `sure` whether the device has the numbers.
    """

    wanted: Mapping[str, float] = field(default_factory=dict)
    held: Held = ()
    muted: bool = False
    sure: bool = True


class Hyperparameters:
    """The hyperparameters of a program, the optimizers that say some, and dropout rates.

    Unknown names are ignored, as applications give more than a PEF needs: with one warning each,
    but for those that most applications give and that would change nothing.
    """

    def __init__(self, program: Program) -> None:
        self.names = tuple(argin.name for argin in program.argins)
        self._options = {argin.name: argin.option for argin in program.argins}
        self.rates = self._of("p")
        self.seeds = self._of("seed")
        self.left_out: tuple[str, ...] = ()
        """Rates that the program has not, as they were 0 when it was compiled."""
        self._known: dict[str, bool] = {}
        self._told: set[str] = set()
        self._setters: dict[tuple[str, ...], Mapping[str, str]] = {}
        self._values: Values | None = None
        self._state = _State({argin.name: argin.default for argin in program.argins})

    def _of(self, option: str) -> tuple[str, ...]:
        return tuple(name for name, found in self._options.items() if found == option)

    def follow(
        self,
        optimizers: Sequence[torch.optim.Optimizer],
        graphs: Mapping[str, Sequence[torch.optim.Optimizer]] | None = None,
    ) -> None:
        """Let the numbers of `optimizers` be those of the program from the next run on.

        `graphs` are the optimizers of each graph in a program that has several.
        """
        self._values = Values(optimizers, self.names, graphs or {}) if optimizers else None
        self._state = replace(self._state, held=())

    def look_at_rates(self, models: Iterable[torch.nn.Module], pef: str) -> None:
        """Take note of the dropouts of traced `models`; warn of rates that `pef` has otherwise.

        Those of a program are its own: what modules hold is read when they are compiled.
        """
        found = {name: rate for model in models for name, rate in _rates(model)}
        self.left_out = tuple(n for n, rate in found.items() if not rate and n not in self.names)
        compiled = self._state.wanted
        other = {
            name: rate
            for name, rate in found.items()
            if not isclose(rate, compiled.get(name, rate), rel_tol=_AS_FLOAT32)
        }
        if other:
            rows = [f"{n} is {r:g} in the model, {compiled[n]:g} in it" for n, r in other.items()]
            warn(
                f"{pef} was compiled with other rates of dropout: {listed(rows, 3, '; ')}. Runs "
                f"take its own; compile it again, or give session.run hyperparam_dict={other}"
            )

    def settings(
        self, given: Mapping[str, float] | None, *, train: bool | None
    ) -> Mapping[str, float]:
        """Return what to set for a run: what is new of optimizers, and over it what is `given`.

        While `train` is False dropout rates are 0 on the device; what is given meanwhile is what
        they are in the next run that trains. None leaves them. `made` is to be called when the run
        is over: after one that broke off all numbers are set anew.

        Raises `SambaError` for what is no dict, and for what is no number.
        """
        before = self._state
        held = self._values.look() if self._values else ()
        muted = before.muted if train is None else not train and bool(self.rates)
        same = before.sure and held == before.held and muted == before.muted
        if same and (given is None or self._as_before(given)):
            return {}
        said = {} if given is None else self._said(given)
        if same and self._set(said):
            return {}
        fresh = {**self._news(held), **said}
        seeds = {name: fresh.pop(name) for name in self.seeds if name in fresh}
        wanted = {**before.wanted, **fresh}
        whole = muted != before.muted or not before.sure
        self._state = _State(wanted, held, muted, sure=False)
        sent = wanted if whole else fresh
        if muted:
            sent = {**sent, **dict.fromkeys(self.rates, 0.0)}
        return {**{name: sent[name] for name in sent if name not in self.seeds}, **seeds}

    def _as_before(self, given: Mapping[str, float]) -> bool:
        """Tell whether `given` are names given before, with the floats that are set.

        Steps give the same again and again: this takes no time, and what it does not know is
        looked at.
        """
        setters = self._setters.get(tuple(given)) if type(given) is dict else None
        if setters is None:
            return False
        wanted, seeds = self._state.wanted, self.seeds
        for argin, name in setters.items():
            value = given[name]
            if type(value) is not float or value != wanted[argin] or argin in seeds:
                return False
        return True

    def _set(self, said: Mapping[str, float]) -> bool:
        """Tell whether all that is `said` is so already; a seed given again begins anew."""
        wanted = self._state.wanted
        for name, value in said.items():
            if wanted[name] != value or name in self.seeds:
                return False
        return True

    def made(self) -> None:
        """Note that the run which the last settings were for has been made: the device has them."""
        if not self._state.sure:
            self._state = replace(self._state, sure=True)

    def _news(self, held: Held) -> dict[str, float]:
        """Return what is new of optimizers, which hold `held`, by argin."""
        if held == self._state.held:
            return {}
        found = news(held, self._state.held).items()
        return _numbers(self._options, ((name, name, value) for name, value in found))

    def _said(self, given: Mapping[str, float]) -> dict[str, float]:
        """Return the numbers in `given` by argin."""
        known = self._those_known(given)
        names = tuple(known)
        setters = self._setters.get(names)
        if setters is None:
            setters = self._setters[names] = matching(names, self.names)
        found = ((argin, name, known[name]) for argin, name in setters.items())
        numbers = _numbers(self._options, found)
        self._tell_left_out(known)
        return numbers

    def _tell_left_out(self, known: Mapping[str, float]) -> None:
        """Warn once of a rate that some dropout takes, where another that it names cannot."""
        for name, value in known.items() if self.left_out else ():
            if _is_zero(value) or name in self._told or name in self.names:
                continue
            stays = [rate for rate in self.left_out if matches(name, rate)]
            if not stays:
                continue
            self._told.add(name)

            warn(
                f"the hyperparameter {name} does not set {listed(stays, 3, ', ')}: dropout of rate "
                f"0 is left out when it is compiled; compile with a rate above 0",
                UnknownHyperparameterWarning,
            )

    def _those_known(self, given: Mapping[str, float]) -> Mapping[str, float]:
        """Return those of `given` that the program has."""
        if (what := _what_is_wrong(given)) is not None:
            raise SambaError(f"hyperparam_dict {what}; give a dict, such as {{'lr': 0.1}}")
        if all(map(self._known.get, given)):
            return given  # as usual
        unknown = {name for name in given if not self._knows(name)}
        told = {name for name in unknown if self._matters(name, given[name])} - self._told
        if told:
            self._told |= told
            reason = "".join(dict.fromkeys(_LEFT_OUT[name] for name in sorted(told & _CHANGING)))
            ends = {name.rpartition(".")[2] for name in self.names}
            spelled = ", ".join(f"{name}{did_you_mean(name, ends)}" for name in sorted(told))
            warn(
                f"the PEF has no hyperparameter {spelled}; it is ignored. "
                f"It has {', '.join(self.names) or 'none'}.{reason}",
                UnknownHyperparameterWarning,
            )
        return {name: value for name, value in given.items() if self._known[name]}

    def _matters(self, name: str, value: float) -> bool:
        """Return whether a user should hear that `name` is unknown."""
        trains = "lr" in self._options.values()
        return name not in _USUAL or (trains and name in _CHANGING and not _is_zero(value))

    def _knows(self, name: str) -> bool:
        """Return whether `name` sets something; looked up once, as steps give the same names."""
        found = self._known.get(name)
        if found is None:
            try:
                found = bool(matching([name], self.names))
            except RunError:
                found = False
            self._known[name] = found
        return found


def _rates(model: torch.nn.Module) -> Iterator[tuple[str, float]]:
    """Yield the rates of the dropouts in `model`, by what a program calls them."""
    for path, module in model.named_modules():
        if isinstance(module, _DropoutNd):
            yield (f"{path}.p" if path else "p"), module.p


def _what_is_wrong(given: object) -> str | None:
    """Return why `given` is no dict by name, None if it is."""
    if not isinstance(given, Mapping):
        return f"is a {type(given).__name__}"
    return next((f"has the name {n!r}" for n in given if not isinstance(n, str)), None)


def _is_zero(value: object) -> bool:
    """Tell whether `value` is 0; what is no number is none."""
    return NUMBER.fits(value) and not float(cast(SupportsFloat, value))


def _numbers(
    options: Mapping[str, str], given: Iterable[tuple[str, str, object]]
) -> dict[str, float]:
    """Return values as the runtime takes them, by argin; `given` has argins, names and values.

    `options` are what argins are, by their names.
    """
    try:
        return {argin: number(options[argin], name, value) for argin, name, value in given}
    except RunError as error:
        raise SambaError(str(error)) from error
