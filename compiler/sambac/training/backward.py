"""The backward pass: where it starts, and the gradients that come out of it.

start    a loss, or any floating-point output: its gradient is the input `<output>__grad`,
         ones unless the caller gives another
end      each trained parameter, and the inputs of the model that the user asks for
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from pef.graphs import gradient_name
from pef.wording import did_you_mean, listed
from sambac.autodiff import differentiate
from sambac.autodiff.expansion import active_values, is_float
from sambac.errors import CompileError
from sambac.graph.decisions import Decisions
from sambac.graph.editor import Editor
from sambac.graph.nodes import static_shape

_ALL = ""
_NAMES_SHOWN = 8


@dataclass(frozen=True)
class Ends:
    """What the gradients are for: `parameters` that are trained, and `inputs` of the model."""

    parameters: tuple[str, ...]
    inputs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Gradients:
    """The gradients in the graph: `parameters` by loss and name, `inputs` by name.

    There is one key of `parameters`, the empty name, unless losses are kept apart. `seeds` are the
    inputs of the graph that start the pass, by public output, `defaults` their contents.
    """

    parameters: Mapping[str, Mapping[str, ir.Value]]
    inputs: Mapping[str, ir.Value]
    seeds: Mapping[str, str]
    defaults: Mapping[str, ir.TensorProtocol]

    @property
    def joined(self) -> Mapping[str, ir.Value]:
        """The gradients of the parameters where losses are not kept apart."""
        return self.parameters[_ALL]


def check_ends(model: ir.Model, wanted: Sequence[str], states: Iterable[str]) -> tuple[str, ...]:
    """Return the inputs in `wanted`, each once.

    Raises `CompileError` for what is no floating-point input; `states` are inputs of the graph that
    are none of the model.
    """
    hidden = frozenset(states)
    inputs = {str(v.name): v for v in model.graph.inputs if v.name not in hidden}
    problems = []
    for name in wanted:
        value = inputs.get(name)
        if value is None:
            hint = did_you_mean(name, inputs)
            shown = listed(list(inputs), _NAMES_SHOWN, ", ") or "none"
            problems.append(f"there is no input '{name}'{hint}; the inputs are {shown}")
        elif not is_float(value):
            problems.append(f"the input '{name}' is {value.dtype}, which has no gradient")
    if problems:
        raise CompileError(f"input_grads: {listed(problems)}")
    return tuple(dict.fromkeys(wanted))


def check_starts(
    model: ir.Model, wanted: Sequence[str], public: Mapping[str, str]
) -> tuple[str, ...]:
    """Return the outputs in `wanted` that can have a gradient, each once.

    `public` maps names of outputs to values. Outputs that are no floating-point tensors are left
    out. Raises `CompileError` for unknown names, and if nothing is left.
    """
    unknown = [
        f"there is no output '{name}'{did_you_mean(name, public)}"
        for name in wanted
        if name not in public
    ]
    shown = listed(list(public), _NAMES_SHOWN, ", ") or "none"
    if unknown:
        raise CompileError(f"backward_from: {listed(unknown)}; the outputs are {shown}")
    outputs = {str(value.name): value for value in model.graph.outputs}
    found = tuple(name for name in dict.fromkeys(wanted) if is_float(outputs[public[name]]))
    if wanted and not found:
        raise CompileError(
            f"backward_from: none of {listed(wanted, _NAMES_SHOWN, ', ')} is a floating-point "
            f"tensor; name one that is; the outputs are {shown}"
        )
    return found


def reached(
    model: ir.Model, starts: Sequence[str], public: Mapping[str, str], ends: Ends
) -> tuple[str, ...]:
    """Return those of the outputs `starts` from which a gradient reaches one of `ends`.

    Raises `CompileError` if it is none of several.
    """
    outputs = {str(value.name): value for value in model.graph.outputs}
    active = active_values(model.graph, _sources(model, ends))
    found = tuple(name for name in starts if outputs[public[name]] in active)
    if starts and not found:
        raise _reaches_nothing(starts, ends)
    return found


def add_gradients(
    model: ir.Model,
    starts: Mapping[str, str],
    ends: Ends,
    *,
    apart: bool,
    decisions: Decisions,
) -> Gradients:
    """Append the gradients of `ends` to the graph.

    `starts` maps public names of outputs to their values; several may share one. The gradients are
    those of each start if `apart`, else of all together, in formulations as `decisions` say.
    Raises `CompileError` for a start on which none of `ends` has an influence.
    """
    editor = Editor(model)
    outputs = {str(value.name): value for value in model.graph.outputs}
    seeds: dict[str, ir.Value] = {}
    defaults: dict[str, ir.TensorProtocol] = {}
    for name, value in starts.items():
        output = outputs[value]
        assert output.dtype is not None
        shape = static_shape(output) or ()
        seeds[name] = editor.input(gradient_name(name), output.dtype, shape)
        defaults[gradient_name(name)] = ir.Tensor(np.ones(shape, output.dtype.numpy()))
    chosen = {name: (name,) for name in starts} if apart else {_ALL: tuple(starts)}
    found = {
        key: _walk_from(
            model, {name: (starts[name], seeds[name]) for name in names}, ends, decisions
        )
        for key, names in chosen.items()
    }
    return Gradients(
        parameters={
            key: {name: value for name, value in gradients.items() if name in ends.parameters}
            for key, gradients in found.items()
        },
        inputs=_summed(model, found.values(), ends.inputs),
        seeds={name: str(seed.name) for name, seed in seeds.items()},
        defaults=defaults,
    )


def export_input_gradients(model: ir.Model, gradients: Mapping[str, ir.Value]) -> dict[str, str]:
    """Make the gradients of inputs outputs of the graph; return their names by input."""
    editor = Editor(model, "grad/")
    names = {}
    for name, gradient in gradients.items():
        names[name] = symbol = gradient_name(name)
        if gradient.is_graph_output() or gradient.producer() is None:
            value = editor.named(gradient, symbol)
        else:
            value = gradient
            editor.rename(value, symbol)
        model.graph.outputs.append(value)
    return names


def unreached(ends: Ends, parameters: Iterable[str], inputs: Iterable[str]) -> list[str]:
    """Return warnings about those of `ends` that have no gradient among the ones given."""
    have, have_inputs = frozenset(parameters), frozenset(inputs)
    idle = [name for name in ends.parameters if name not in have]
    warnings = []
    if idle:
        shown = listed(idle, _NAMES_SHOWN, ", ")
        warnings.append(f"no loss depends on {shown}: not trained")
    without = [name for name in ends.inputs if name not in have_inputs]
    if without:
        shown = listed(without, _NAMES_SHOWN, ", ")
        warnings.append(f"no loss depends on the input {shown}: it has no gradient")
    return warnings


def left_out(wanted: Sequence[str], found: Sequence[str]) -> list[str]:
    """Return warnings about outputs from which no gradient reaches anything."""
    idle = [name for name in wanted if name not in found]
    shown = listed(idle, _NAMES_SHOWN, ", ")
    return (
        [f"nothing trained has an influence on {shown}: no gradient starts there"] if idle else []
    )


def _sources(model: ir.Model, ends: Ends) -> list[ir.Value]:
    inputs = {str(value.name): value for value in model.graph.inputs}
    return [inputs[name] for name in (*ends.parameters, *ends.inputs)]


def _walk_from(
    model: ir.Model,
    starts: Mapping[str, tuple[str, ir.Value]],
    ends: Ends,
    decisions: Decisions,
) -> dict[str, ir.Value]:
    """Append the gradients that come from `starts`, values and their gradients by public name."""
    outputs = {str(value.name): value for value in model.graph.outputs}
    editor = Editor(model, "grad/")
    seeds: dict[ir.Value, ir.Value] = {}
    for name, seed in starts.values():
        before = seeds.get(outputs[name])
        seeds[outputs[name]] = seed if before is None else editor.op("Add", before, seed)
    sources = _sources(model, ends)
    found = differentiate(model, seeds, sources, decisions)
    if not found:
        raise _reaches_nothing(tuple(starts), ends)
    return {str(value.name): found[value] for value in sources if value in found}


def _summed(
    model: ir.Model, found: Iterable[Mapping[str, ir.Value]], inputs: Sequence[str]
) -> dict[str, ir.Value]:
    """Return the gradients of `inputs`, summed over losses that are kept apart."""
    editor = Editor(model, "grad/")
    total: dict[str, ir.Value] = {}
    for gradients in found:
        for name in inputs:
            if name in gradients:
                before, more = total.get(name), gradients[name]
                total[name] = more if before is None else editor.op("Add", before, more)
    return total


def _reaches_nothing(starts: Sequence[str], ends: Ends) -> CompileError:
    asked = f", and on none of the inputs {listed(ends.inputs, _NAMES_SHOWN, ', ')}"
    return CompileError(
        f"the loss {listed(starts, separator=', ')} depends on none of the parameters that are to "
        f"be trained ({listed(ends.parameters, _NAMES_SHOWN, ', ') or 'none'})"
        f"{asked if ends.inputs else ''}"
    )
