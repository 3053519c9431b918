"""Settings of modules beside those that a PEF was compiled with, when traced and in each run."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from operator import attrgetter, call, is_, itemgetter
from typing import Any

from torch import nn
from torch.nn.modules.dropout import _DropoutNd

from pef.warned import warn
from pef.wording import listed
from sambaflow.samba.compile.application import SETTINGS, application_of, plain
from sambaflow.samba.trace.dropout_rates import own_rates
from sambaflow.samba.trace.module_settings import CLASS, MODE, Settings, is_plain
from sambahost.models import held

from .device import SambaDevice

_RATES: Mapping[type[nn.Module], str] = {
    _DropoutNd: "p",
    nn.MultiheadAttention: "dropout",
    nn.RNNBase: "dropout",
}
"""Where modules of torch have rates of dropout, which have no effect where nothing trains."""


def tell_other_settings(
    device: SambaDevice, graph: str, model: nn.Module, now: Settings, *, trains: bool
) -> None:
    """Warn of settings `now` of `model`, which `trains` or not, that the PEF has otherwise.

    `graph` is what a program of several graphs calls the model, else empty. Rates of `nn.Dropout`
    are hyperparameters, which are told of as such, but for those of 0, which a program has not.
    """
    recorded = application_of(device.program).get(SETTINGS)
    compiled = recorded.get(graph) if isinstance(recorded, dict) else None
    if not isinstance(compiled, dict):
        return  # a PEF of before, or one that nobody traced
    rates = {
        (path, rate)
        for path, part in model.named_modules()
        for kind, rate in _RATES.items()
        if isinstance(part, kind) and (kind is _DropoutNd or not device.host.trains)
    }
    if trains:
        rates -= set(_left_out(compiled, now))
    if not device.host.trains:
        rates |= {(p, rate) for p, part in model.named_modules() for rate in own_rates(type(part))}
    other = [f"{path} is in the model alone" for path in now if path not in compiled]
    other += [f"{path} is in it alone" for path in compiled if path not in now]
    other += [
        f"{_name(path, each)} is {_spelled(value)} in the model, {_spelled(known)} in it"
        for path, own in now.items()
        for each, value in own.items()
        if each in compiled.get(path, {})
        and (path, each) not in rates
        and (trains or each != MODE)
        and not _same(known := compiled[path][each], value)
    ]
    if other:
        warn(
            f"{device.path} was compiled with other settings of modules: {listed(other, 3, '; ')}. "
            f"Runs compute with its own; compile it again"
        )


def _left_out(compiled: Settings, now: Settings) -> Iterator[tuple[str, str]]:
    """Yield the rates that were 0 when `compiled`, of dropouts that are on in both models."""
    for path, own in now.items():
        known = compiled.get(path, {})
        if known.get("p") == 0 and known.get(MODE) and own.get(MODE):
            yield path, "p"


def _same(compiled: object, value: object) -> bool:
    """Return whether `value` is what JSON holds as `compiled`."""
    return json.dumps(plain(value), sort_keys=True) == json.dumps(compiled, sort_keys=True)


def _name(path: str, attribute: str) -> str:
    parts = (path,) if attribute == CLASS else (path, attribute)
    return ".".join(filter(None, parts)) or "it"


def _spelled(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


class SettingsWatch:
    """Tells, once each, of settings that modules get after they were traced: none has an effect.

    So it does of modules that take the place of others. What counts on, from other to other, is
    told of again only after it was as compiled. A look at what has not changed costs some
    50 ns for each module and setting.
    """

    def __init__(
        self, traced: Iterable[tuple[nn.Module, Settings, bool]] = (), *, modes: bool = False
    ) -> None:
        """Watch models, each with its settings and whether dropout in it is on in some runs.

        With `modes` what they look at is what of those trains that began to train, else the rest.
        """
        self._modes = modes
        self._names: list[str] = []
        self._getters: list[Callable[[Any], object]] = []
        self._owners: list[object] = []
        for model, settings, trains in traced:
            for path, module in model.named_modules():
                own = settings.get(path, {})
                if not modes:
                    self._watch(path, module, own, trains)
                elif trains and model.training and MODE in own:
                    self._add(_name(path, MODE), attrgetter(MODE), module)
        self._before = [*map(call, self._getters, self._owners)]
        self._held = [*map(held, self._before)]
        self._compiled, self._told = [*self._held], set[int]()
        self._filled = [n for n, v in enumerate(self._before) if isinstance(v, list | Mapping)]

    def _watch(self, path: str, module: nn.Module, settings: Collection[str], trains: bool) -> None:
        rates = {rate for kind, rate in _RATES.items() if isinstance(module, kind)}
        idle = {CLASS, MODE} if trains else {CLASS, MODE, *rates, *own_rates(type(module))}
        for name in settings:
            if name not in idle:
                self._add(_name(path, name), attrgetter(name), module)
        for name in module._modules:
            self._add(_name(path, name), itemgetter(name), module._modules)

    def _add(self, name: str, getter: Callable[[Any], object], owner: object) -> None:
        self._names.append(name)
        self._getters.append(getter)
        self._owners.append(owner)

    def tell(self, program: str, hyperparameters: Collection[str]) -> None:
        """Warn of what is no more as it was compiled; `program` is what computes as before."""
        try:
            same = all(map(is_, map(call, self._getters, self._owners), self._before))
            if same and all(held(self._before[n]) == self._held[n] for n in self._filled):
                return
        except (AttributeError, KeyError):
            pass  # something is gone
        other = dict(self._changed())
        if other:
            rates = [name for name in other if name in hyperparameters]
            cure = f", or give session.run hyperparam_dict for {listed(rates)}" if rates else ""
            cure = ", or give session.run train=False to evaluate" if self._modes else cure
            rows = [f"{name}{change}" for name, change in other.items()]
            warn(
                f"{program} goes on computing with what was compiled; set since, without effect: "
                f"{listed(rows, 3, '; ')}. Compile it again{cure}"
            )

    def _changed(self) -> Iterator[tuple[str, str]]:
        """Yield the names of what is other than compiled and was not told of, and how."""
        for number, (name, before) in enumerate(zip(self._names, self._before, strict=True)):
            now = _found(self._getters[number], self._owners[number])
            self._before[number], self._held[number] = now, held(now)
            if self._held[number] == self._compiled[number]:
                self._told.discard(number)
            elif number not in self._told:
                self._told.add(number)
                known = is_plain(now) and is_plain(before) and now is not before
                yield name, f" ({_spelled(before)}, now {_spelled(now)})" if known else ""


def _found(getter: Callable[[Any], object], owner: object) -> object:
    try:
        return getter(owner)
    except (AttributeError, KeyError):
        return "gone"
