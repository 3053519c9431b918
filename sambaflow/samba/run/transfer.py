"""Between the memory of the host and that of the device: parameters, buffers, optimizer state.

And to the processes that train one model together: whether they have met, and are alike since.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager

import numpy as np
import torch
from torch import Tensor, nn

from pef.graphs import gradient_name
from pef.program import Program, SectionType
from pef.states import states_of
from pef.symbols import SymbolKind
from pef.warned import warn
from pef.wording import listed
from sambaflow.samba.arguments.options import ReductionMode
from sambaflow.samba.errors import SambaError, in_samba_words, worded
from sambaflow.samba.optim.state import KeptState, forget_new, kept_states
from sambaflow.samba.profiler import SET_TENSORS_BROADCAST, Profiler
from sambaflow.samba.tensors.tensor import SambaTensor, to_torch
from sambaflow.samba.trace.models import buffers_of, parameter_names, parameters_of
from sambaflow.samba.trace.tracing import Traced
from sambahost.data_parallel import align
from sambahost.errors import HostError, NoStartError
from sambahost.launch import launched_together
from sambahost.leaving import leave_group_at_exit
from sambahost.rendezvous import join
from sambahost.wording import no_such_start, spelled
from sambarun import Selection

from .device import SambaDevice


def default_gradients(
    traced: Traced, chosen: Sequence[int] | None, device: SambaDevice
) -> dict[str, Tensor]:
    """Return what the backward pass starts from where it is not ones, by name on the device.

    Losses start with ones: the outputs that are `chosen`, else `Traced.losses`. What else the PEF
    could start from starts with zeros: it counts once it is given a gradient. Raises `SambaError`
    for a chosen one that the backward pass of the PEF does not start from.
    """
    names = [traced.outputs[number].sn_name for number in chosen or ()]
    other = [name for name in names if device.host.seeds and name not in device.host.seeds]
    if other:
        raise worded(NoStartError(no_such_start(other[0])))
    losses = traced.losses if chosen is None else chosen
    return {
        output.sn_grad_name: torch.zeros(output.shape, dtype=output.dtype)
        for number, output in enumerate(traced.outputs)
        if output.sn_name in device.host.seeds and number not in losses
    }


def fetched(
    device: SambaDevice,
    asked: Sequence[SambaTensor] | SambaTensor,
    results: Mapping[str, np.ndarray],
    measured: AbstractContextManager[None],
) -> tuple[SambaTensor, ...]:
    """Return the outputs `asked` for, from the results of a run or else from memory.

    It takes place in `measured`. Raises `SambaError` for what has no name on the device.
    """
    given: object = asked
    wanted = (asked,) if isinstance(asked, Tensor) else () if given is None else asked
    try:
        with measured:
            return tuple([device.result(tensor.sn_name, results) for tensor in wanted])
    except (AttributeError, TypeError) as error:
        items = [*given] if isinstance(given, Iterable) else [given]
        odd = [type(item).__name__ for item in items if not isinstance(item, SambaTensor)]
        if not odd:
            raise
        raise SambaError(
            f"output_tensors has a {odd[0]}; give what trace_graph returned, also kept as "
            f"model.output_tensors (get_tensors_by_name reads by name)"
        ) from error


def gradients_by_name(
    given: Sequence[Tensor | None] | Tensor, outputs: Sequence[SambaTensor], device: SambaDevice
) -> dict[str, Tensor]:
    """Return the gradients given for traced outputs, by their names on the device.

    Raises `SambaError` for more or fewer than there are outputs, for an output the backward pass
    does not start from, and if there is no such pass.
    """
    given = (given,) if isinstance(given, Tensor) else given
    listing: object = given
    if not isinstance(listing, (list, tuple)):
        raise SambaError(
            f"grad_of_outputs is a {type(listing).__name__}; give a list of tensors, one for each "
            f"output, None for those without"
        )
    if not device.host.trains and any(value is not None for value in given):
        raise SambaError(
            "grad_of_outputs is given, and the PEF has no backward pass; compile it with an "
            "optimizer, and without --inference"
        )
    if len(given) != len(outputs):
        raise SambaError(
            f"grad_of_outputs has {len(given)} gradients, the model {len(outputs)} "
            f"outputs; give one for each, None for those without"
        )
    found = {}
    for number, (output, value) in enumerate(zip(outputs, given, strict=True)):
        if output.sn_name in device.host.seeds:
            found[output.sn_grad_name] = (
                _implicit_gradient(output) if value is None else _fitting(value, output)
            )
        elif value is not None:
            raise SambaError(
                f"the backward pass of the PEF does not start from '{output.sn_name}'; compile "
                f"it with loss_indices in which output {number} is"
            )
    return found


def _fitting(value: Tensor, output: SambaTensor) -> Tensor:
    """Return the gradient `value` of `output` in its type. Raises `SambaError` for its shape."""
    if not isinstance(value, Tensor):
        raise SambaError(
            f"the gradient of '{output.sn_name}' is a {type(value).__name__}; give a tensor of "
            f"the output's shape, {list(output.shape)}"
        )
    if value.shape != output.shape:
        raise SambaError(
            f"the gradient of '{output.sn_name}' is {list(value.shape)}, and the output "
            f"{list(output.shape)}; give one of the output's shape"
        )
    return to_torch(value).to(output.dtype)


def _implicit_gradient(output: SambaTensor) -> Tensor:
    """Return the gradient of an output that is given none: 1 for a number, as in torch, else 0."""
    value = float(output.numel() == 1)
    return torch.full(output.shape, value, dtype=output.dtype)


def to_device(device: SambaDevice, tensors: Iterable[tuple[str, Tensor]]) -> None:
    """Copy those of `tensors` that the device holds to it.

    Raises `SambaError` for one that was compiled in with other values.
    """
    for name, tensor in tensors:
        if device.host.writable(name):
            device.write(name, tensor.torch_tensor() if isinstance(tensor, SambaTensor) else tensor)
        elif device.host.is_constant(name):
            _require_equal(name, to_torch(tensor), device.read(name))


def states_to_device(
    device: SambaDevice, model: nn.Module, optimizers: Iterable[torch.optim.Optimizer]
) -> None:
    """Copy parameters, buffers and optimizer state that the device holds to it.

    Raises `SambaError` for a constant with other values, and as `_counts_of_groups` does.
    """
    kept = [*kept_states(optimizers, parameter_names(model))]
    updated = _updated(device, kept)
    to_device(device, (*parameters_of(model), *buffers_of(model)))
    to_device(device, ((state.name, state.tensor) for state in kept if not state.counts))
    counts = [state for state in kept if state.counts and state.parameter in updated]
    to_device(device, _counts_of_groups(counts).items())


def _updated(device: SambaDevice, kept: Iterable[KeptState]) -> set[str]:
    """Return the parameters of which the device has state: others have no gradient there."""
    own = (state for state in kept if not state.counts)
    return {state.parameter for state in own if device.host.writable(state.name)}


def _counts_of_groups(counts: Iterable[KeptState]) -> dict[str, Tensor]:
    """Return the count of steps of each group, by its name; torch has one for each parameter.

    That of a parameter which no step updates says nothing, and is not among `counts`. Raises
    `SambaError` where the others differ.
    """
    found: dict[str, KeptState] = {}
    for state in counts:
        first = found.setdefault(state.name, state)
        if float(first.tensor) != float(state.tensor):
            raise SambaError(
                f"the optimizer counts {float(first.tensor):g} steps of '{first.parameter}' and "
                f"{float(state.tensor):g} of '{state.parameter}', and the device one number for "
                f"the parameters of a group; make groups of those that have taken as many steps, "
                f"and compile again, or set their optimizer.state[parameter]['step'] alike"
            )
    return {name: state.tensor for name, state in found.items()}


def _require_equal(name: str, given: Tensor, compiled: Tensor) -> None:
    if not (given.is_meta or torch.equal(given, compiled)):
        raise SambaError(
            f"'{name}' has other values than when the PEF was compiled, where it is a constant, as "
            f"buffers with persistent=False are; compile again, or make it persistent"
        )


def to_host(device: SambaDevice, tensors: Iterable[tuple[str, Tensor]], *, inplace: bool) -> None:
    """Copy from the device what it holds of `tensors`, and gradients it has.

    With `inplace` the memory on the host stays the same, else the tensors get new memory. Raises
    `SambaError` for tensors of other shapes; nothing is copied then.
    """
    asked = list(tensors)
    _require_shapes(device, asked)
    for name, tensor in asked:
        value = device.find(name)
        if value is None:
            continue
        if inplace and not tensor.is_meta:
            with torch.no_grad():
                to_torch(tensor).copy_(value)
        else:
            tensor.data = value.to(tensor.dtype)
        gradient = device.find(gradient_name(name)) if tensor.requires_grad else None
        if gradient is not None:
            tensor.grad = gradient


def states_to_host(
    device: SambaDevice,
    tensors: Iterable[tuple[str, Tensor]],
    optimizers: Sequence[torch.optim.Optimizer],
    names: Mapping[int, str],
    *,
    inplace: bool,
) -> None:
    """Copy `tensors` and the state of `optimizers`, of parameters with `names`, as `to_host` does.

    Parameters that no step updates have no state then, as in torch.
    """
    kept = [*kept_states(optimizers, names)]
    updated = _updated(device, kept)
    states = ((state.name, state.tensor) for state in kept if state.parameter in updated)
    to_host(device, (*tensors, *states), inplace=inplace)
    forget_new(optimizers, names, updated)


def require_known(
    device: SambaDevice, model: nn.Module, optimizers: Iterable[torch.optim.Optimizer]
) -> None:
    """Raise `SambaError` for a model of which the device has no parameter, and for its optimizers.

    A part of the traced model, and one inside of a wrapper, have other names: nothing would be
    copied, and nobody told. So it is with an optimizer of the parameters of another model.
    """
    own = {id(parameter) for parameter in model.parameters()}
    groups = [group for item in optimizers for group in item.param_groups]
    if groups and own.isdisjoint(
        id(parameter) for group in groups for parameter in group["params"]
    ):
        raise SambaError(
            f"no parameter of the optimizers belongs to this {type(model).__name__}; give those of "
            f"the model"
        )
    names = [name for name, _ in parameters_of(model)]
    if names and device.host.keeps_parameters and not any(map(device.described, names)):
        raise SambaError(
            f"the PEF has no parameter of this {type(model).__name__}, '{names[0]}' for one; give "
            f"the model that was traced, with {listed(device.host.weights(), 3, ', ')}"
        )


def _require_shapes(device: SambaDevice, tensors: Iterable[tuple[str, Tensor]]) -> None:
    for name, tensor in tensors:
        known = device.described(name)
        if known is not None and known[1] != tuple(tensor.shape):
            raise SambaError(
                f"'{name}' is {spelled(*known)} on the device and "
                f"{spelled(tensor.dtype, tensor.shape)} in the model; give the model that was "
                f"traced"
            )


class Replicas:
    """The devices of several processes with the PEF that `device` has."""

    def __init__(self, device: SambaDevice, profiler: Profiler) -> None:
        self._device = device
        self._profiler = profiler
        self.met = False
        """Whether they have met since the PEF was loaded."""
        self._told = False

    def meet(self) -> None:
        """Join the others, and give all of them what process 0 has.

        Raises `SambaError` for a process that was launched alone, if others do not come, if their
        programs do not fit together, and if a process has ended.
        """
        with in_samba_words():
            join()
        try:
            with self._profiler.event(SET_TENSORS_BROADCAST):
                align(self._device.executable)
        except HostError as error:  # in all of them: a rendezvous is everybody's
            leave_group_at_exit()
            raise worded(error) from error.__cause__
        self.met = True

    def reduction(self, mode: ReductionMode) -> ReductionMode:
        """Return how to reduce gradients in a run; in the first one the processes meet."""
        if not self.met:
            self.meet()
        return mode

    def tell_if_apart(self, chosen: Iterable[Selection]) -> None:
        """Warn, once, of runs that update the replica of one process of several by its own data."""
        others, program = launched_together() - 1, self._device.program
        if self._told or not others or not any(_updates_alone(program, part) for part in chosen):
            return
        self._told = True
        warn(
            f"this process was launched together with {others} more, and trains for itself: the "
            f"run reduces no gradients, though the PEF has REDUCE sections; give session.run "
            f"data_parallel=args.data_parallel, and the command line --data-parallel"
        )


def _updates_alone(program: Program, chosen: Selection) -> bool:
    """Return whether optimizers run, and gradients are not reduced that could be."""
    if chosen.reduction != "none" or all(s.type.name != "REDUCE" for s in program.sections):
        return False
    return "OPT" in _types(program, chosen)


def _types(program: Program, chosen: Selection) -> set[str]:
    """Return the types of the sections that are `chosen`."""
    if chosen.section_types is not None:
        return {each if isinstance(each, str) else each.name for each in chosen.section_types}
    calls = range(len(program.schedule)) if chosen.calls is None else chosen.calls
    ids = chosen.section_ids or [program.schedule[call] for call in calls]
    return {program.sections[number].type.name for number in ids}


class GradientsWatch:
    """Warns of optimizers that run before any backward pass, where gradients add up over runs."""

    def __init__(self, device: SambaDevice) -> None:
        self._device = device
        self._adds_up = any(s.type is SectionType.ZEROGRAD for s in device.program.sections)
        self._waits = True

    def tell(self, chosen: Iterable[Selection]) -> None:
        """Warn if `chosen` updates by zeros: gradients begin with them, ZEROGRAD makes them."""
        if not self._adds_up:
            return
        for part in chosen:
            types = _types(self._device.program, part)
            cleared = "ZEROGRAD" in types
            if "BCKWD" in types or cleared:
                self._waits = "BCKWD" not in types
            if "OPT" in types and self._waits and (cleared or not self._has_gradients()):
                warn(
                    "OPT runs before any BCKWD has: gradients are zero, and parameters move by "
                    "weight decay alone, if at all"
                )

    def _has_gradients(self) -> bool:
        """Return whether the device was given gradients by hand."""
        program = self._device.program
        kept = (program.symbols[index] for index in states_of(program).own)
        names = (symbol.name for symbol in kept if symbol.kind is SymbolKind.GRADIENT)
        found = map(self._device.find, names)
        return any(bool(each.any()) for each in found if each is not None)
