"""Which layers fall back, so that the error of the outputs is not larger than wanted.

A layer falls back to float32; a product of bytes also to finer data (`quantized_layers.Way`).

Each layer has an error, which is what the outputs are off by where it alone is quantised, and an
amount of work, which is what it gains. Errors of layers have little to do with each other, so that
their squares add up: the steps that take most off them for the work that they cost come first, and
so the costliest gain last. An error of the layer's own result does not say that: what the next
layers make of it differs more than it does; but the two fall together, by which errors of finer
data are known. How many steps are taken is found by halving: the error of the outputs is measured
for each number that is tried, and the least that keeps the limit is taken.

Everything is measured on portable programs, whose products are exact, with data in bytes wherever a
host takes them so. Errors have three digits, as the sums of hosts differ in their last ones. Two
hosts choose differently only where an error lies between two such numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isfinite, isinf

import onnx_ir as ir

from pef.wording import listed
from sambac.errors import CompileError
from sambac.graph.constants import Array
from sambac.graph.editor import Editor
from sambac.passes.quantize.quantized_layers import Way, Ways
from sambac.passes.runner import PassContext

from .expected import ExpectedOutput
from .measuring import Errors, running
from .recipe import FoundLayer, LayerRecipe, layers_of
from .samples import Batch

_TWIN = "__quantised"
_MEASURED = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE)


@dataclass(frozen=True)
class Trials:
    """A `model`, which stays as it is, a `recipe` for it, and `batches` to try that on."""

    model: ir.Model
    recipe: LayerRecipe
    batches: Sequence[Batch]
    passes: PassContext

    def alone(self, way: Way | None = None) -> dict[str, float]:
        """Return the error of each layer's result by the layer's name, from exact data.

        Each layer is computed twice, from the same data, and only the second is quantised, in this
        way if it has it.
        """
        trial = self.model.clone()
        editor = Editor(trial)
        layers = layers_of(trial, self.recipe)
        twins = {layer.value: _twin(editor, layer) for layer in layers}
        known = self.recipe.scales
        scales = {twin: known[value] for value, twin in twins.items() if value in known}
        _show(trial, twins)
        recipe = replace(self.recipe, scales={**known, **scales})
        ways: dict[str, Way] = {layer.name: "float32" for layer in layers}
        if way is not None:
            again = layers_of(trial, recipe)
            ways |= {
                each.name: way for each in again if each.name not in ways and way in each.costs
            }
        self.passes.run(trial, recipe.measured(ways))
        found = Errors()
        with running(trial, ()) as run:
            for batch in self.batches:
                values = run(batch)
                for layer in layers:
                    found.see(layer.name, values[twins[layer.value]], values[layer.value])
        return found.of()

    def in_sequence(self, ways: Ways) -> dict[str, float]:
        """Return the errors of results of layers and of outputs, by value.

        All layers are quantised, some in these `ways`.
        """
        trial = self.model.clone()
        _show(trial, {layer.value for layer in layers_of(trial, self.recipe)})
        return self._compared(trial, ways)

    def of_outputs(self, ways: Ways) -> float:
        """Return the largest error of an output, with all layers quantised, some in `ways`."""
        trial, found = self.model.clone(), Errors()
        self.passes.run(trial, self.recipe.measured(ways))
        with running(trial, ()) as run:
            for batch, exact in zip(self.batches, self._exact, strict=True):
                values = run(batch)
                for name, wanted in exact.items():
                    found.see(name, values[name], wanted)
        return max(found.of().values(), default=0.0)

    @cached_property
    def _exact(self) -> list[dict[str, Array]]:
        """The outputs that have errors as they should be, by name for each batch."""
        names = measured_outputs(self.model)
        with running(self.model, ()) as run:
            found = [run(batch) for batch in self.batches]
        return [{name: values[name] for name in names} for values in found]

    def scores(self, expected: Sequence[ExpectedOutput], ways: Ways | None) -> dict[str, float]:
        """Return how wrong outputs are beside what is `expected`, by their public names.

        All layers are quantised, some in these `ways`; none is without them.
        """
        trial = self.model
        if ways is not None:
            trial = trial.clone()
            self.passes.run(trial, self.recipe.measured(ways))
        with running(trial, ()) as run:
            found = [run(batch) for batch in self.batches]
        return {
            each.output: each.score(values[each.value] for values in found) for each in expected
        }

    def fallen_back(
        self, alone: Mapping[str, float], limit: float, error_of: Callable[[Ways], float]
    ) -> Ways:
        """Return the ways of layers that fall back for an error of `limit` at most.

        `alone` are the errors of layers' results by name; `error_of` gives that of the model whose
        layers are quantised, some in other ways.
        """
        if error_of({}) <= limit:
            return {}
        steps = self._steps(alone)
        fewest, most = 1, len(steps)  # `most` keeps the limit: nothing is quantised then
        while fewest < most:
            tried = (fewest + most) // 2
            if error_of(_taken(steps[:tried])) <= limit:
                most = tried
            else:
                fewest = tried + 1
        return _taken(steps[:most])

    def _steps(self, alone: Mapping[str, float]) -> list[_Fall]:
        """Return the steps of all layers, those that gain most first.

        Where no output has an error, those `alone` decide.
        """
        layers = layers_of(self.model, self.recipe)
        exact: Ways = {layer.name: "float32" for layer in layers}
        finer = {way for layer in layers for way in layer.costs if way != "float32"}
        errors = {way: self.alone(way) for way in sorted(finer)}
        steps: list[_Fall] = []
        for layer in layers:
            name, own = layer.name, alone[layer.name]
            error = self.of_outputs({other: exact[other] for other in exact if other != name})
            left: dict[Way, float] = {
                way: errors[way][name] / own for way in errors if own and way in layer.costs
            }
            steps += _steps_of(layer, own, error, left)
        return sorted(steps, key=lambda step: (step.gain, step.alone), reverse=True)

    def _compared(self, trial: ir.Model, ways: Ways) -> dict[str, float]:
        """Return the errors of the outputs of `trial`, a copy of the model that is quantised."""
        names = measured_outputs(trial)
        self.passes.run(trial, self.recipe.measured(ways))
        found = Errors()
        with running(self.model, names) as run, running(trial, ()) as rerun:
            for batch in self.batches:
                wanted, values = run(batch), rerun(batch)
                for name in names:
                    found.see(name, values[name], wanted[name])
        return found.of()


class Goal:
    """What a largest error is one of: by what is `expected` of outputs, else by themselves."""

    def __init__(self, trials: Trials, expected: Sequence[ExpectedOutput]) -> None:
        self._trials = trials
        self._expected = expected
        self._exact = trials.scores(expected, None) if expected else {}
        # Nothing is more wrong than infinitely: no layer would be quantised, for no error of its.
        if endless := [repr(name) for name, score in self._exact.items() if isinf(score)]:
            raise CompileError(
                f"expect (--expect): {listed(endless)}: what is expected is infinite or NaN where "
                "the output in float32 is not, or the other way round; give what can be compared."
            )

    def error(self, ways: Ways) -> float:
        """Return the error of the model whose layers are quantised, some in these `ways`.

        Beside what is expected, it is by how much the worst output is more wrong than in float32.
        """
        if not self._expected:
            return self._trials.of_outputs(ways)
        scores = self._trials.scores(self._expected, ways)
        return max(score - self._exact[name] for name, score in scores.items())

    def lines(self, ways: Ways) -> tuple[str, ...]:
        """Return what became of outputs beside what is expected, for the log."""
        if not self._expected:
            return ()
        scores = self._trials.scores(self._expected, ways)
        return tuple(
            f"{each.measure} of '{each.output}': {scores[each.output]:g}, "
            f"{self._exact[each.output]:g} in float32"
            for each in self._expected
        )


@dataclass(frozen=True)
class _Fall:
    """A `layer` falls back to a `way`.

    `gain` is what the squared error of outputs falls by for the work that it costs, `alone` the
    error of the layer's own result.
    """

    layer: str
    way: Way
    gain: float
    alone: float


def _steps_of(
    layer: FoundLayer, alone: float, error: float, left: Mapping[Way, float]
) -> Iterator[_Fall]:
    """Yield the steps of a layer to float32, each to what gains most from where it is.

    Each way but float32 leaves a part of the `error`; those worth nothing are passed over.
    """
    squares = {way: (error * part) ** 2 for way, part in left.items() if isfinite(error * part)}
    squares["float32"] = 0.0
    costs, cost, square = layer.costs, 0.0, error**2
    while squares:
        gains = {way: (square - squares[way]) / (costs[way] - cost) for way in squares}
        way = max(gains, key=lambda each: (gains[each], costs[each]))
        yield _Fall(layer.name, way, gains[way] / max(layer.work, 1), alone)
        cost, square = costs[way], squares[way]
        squares = {each: left for each, left in squares.items() if costs[each] > cost}


def _taken(steps: Sequence[_Fall]) -> Ways:
    """Return the ways of layers when `steps` were taken, of which the last of a layer counts."""
    return {step.layer: step.way for step in steps}


def measured_outputs(model: ir.Model) -> list[str]:
    """Return the names of the outputs of `model` that have errors: those of floating point."""
    return [str(value.name) for value in model.graph.outputs if value.dtype in _MEASURED]


def _show(model: ir.Model, names: Mapping[str, object] | set[str]) -> None:
    """Let `model` give out the values `names`, too."""
    known = {str(value.name) for value in model.graph.outputs}
    made = [value for node in model.graph for value in node.outputs]
    model.graph.outputs.extend(v for v in made if v.name in names and v.name not in known)


def _twin(editor: Editor, layer: FoundLayer) -> str:
    """Compute a layer a second time, as an output of the model; return its name."""
    made = layer.node.outputs[0]
    value = _copied(editor, layer.node, {})
    last = layer.result.producer()
    if last is not None and last is not layer.node:
        value = _copied(editor, last, {made: value})
    editor.model.graph.outputs.append(value)
    return str(value.name)


def _copied(editor: Editor, node: ir.Node, reads: Mapping[ir.Value, ir.Value]) -> ir.Value:
    """Put a copy of `node` before it, which reads others in place of `reads`."""
    result = node.outputs[0]
    editor.go_before(node)
    return editor.op(
        node.op_type,
        *(None if value is None else reads.get(value, value) for value in node.inputs),
        domain=node.domain,
        like=result,
        name=f"{result.name}{_TWIN}",
        **{key: attr.value for key, attr in node.attributes.items()},
    )
