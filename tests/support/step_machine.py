"""A training step on given gradients, run stage by stage with memory that outlives a run.

What `add_step` appends is executed as a PEF would: each stage as a graph of its own, whose inputs
are bound to named memory and whose outputs overwrite what the facts say. Members of a pack are
views into the memory of the pack.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime as ort

from pef.program import SectionType
from pef.symbols import SymbolKind
from sambac.graph.editor import Editor
from sambac.passes.legalize.check_legal import check_legal
from sambac.training.step import StepOptions, StepParts, add_step

Arrays = Mapping[str, np.ndarray]

ORDER = (
    SectionType.ZEROGRAD,
    SectionType.BCKWD,
    SectionType.GRADNORM,
    SectionType.OPT,
)


class StepMachine:
    """Holds `parameters` and what their optimizers keep; `run` takes one step."""

    def __init__(self, parameters: Arrays, asked: StepOptions) -> None:
        model = _model(parameters)
        values = {str(value.name): value for value in model.graph.inputs}
        editor = Editor(model, "backward/")
        gradients = {
            name: editor.op("Mul", values[f"given/{name}"], np.ones((), array.dtype))
            for name, array in parameters.items()
        }
        self.parts: StepParts = add_step(model, gradients, asked)
        assert check_legal(model) == []
        self.model = model
        self.memory = _memory(model, self.parts)
        for name, array in parameters.items():
            self.memory[name][...] = array
        self._stages = {
            stage: _stage_session(model, self.parts.stages, stage)
            for stage in ORDER
            if stage in self.parts.stages.values()
        }

    def run(
        self,
        gradients: Arrays,
        hyperparams: Mapping[str, float] | None = None,
        stages: Sequence[SectionType] = ORDER,
    ) -> None:
        """Run `stages` in order; hyperparameters are kept for later runs."""
        for name, number in (hyperparams or {}).items():
            self.memory[name][...] = number
        given = {f"given/{name}": np.asarray(array) for name, array in gradients.items()}
        for stage in stages:
            if stage not in self._stages:
                continue
            session = self._stages[stage]
            wanted = [item.name for item in session.get_inputs()]
            feeds = {name: given[name] if name in given else self.read(name) for name in wanted}
            names = [item.name for item in session.get_outputs()]
            for name, array in zip(names, session.run(names, feeds), strict=True):
                self.memory[self.symbol(name)][...] = array

    def symbol(self, name: str) -> str:
        """Return the memory that holds the value `name`."""
        while name in self.parts.updates:
            name = self.parts.updates[name]
        return name

    def read(self, name: str) -> np.ndarray:
        """Return a copy of what the memory of the value `name` holds."""
        return self.memory[self.symbol(name)].copy()


def _model(parameters: Arrays) -> ir.Model:
    graph = ir.Graph([], [], nodes=[], opset_imports={"": 23, "com.microsoft": 1}, name="step")
    model = ir.Model(graph, ir_version=10)
    editor = Editor(model)
    for prefix in ("", "given/"):
        for name, array in parameters.items():
            dtype = ir.DataType.from_numpy(array.dtype)
            editor.input(f"{prefix}{name}", dtype, array.shape)
    return model


def _memory(model: ir.Model, parts: StepParts) -> dict[str, np.ndarray]:
    memory: dict[str, np.ndarray] = {}
    shapes = {
        str(value.name): (value.dtype.numpy(), tuple(value.shape))
        for value in (*model.graph.inputs, *model.graph.outputs)
    }
    for pack in parts.packs:
        memory[pack.name] = np.zeros(shapes[pack.name][1], shapes[pack.name][0])
        assert memory[pack.name].nbytes == pack.size
        for member, offset in pack.members:
            dtype, shape = shapes[member]
            count = int(np.prod(shape))
            begin = offset // dtype.itemsize
            memory[member] = memory[pack.name][begin : begin + count].reshape(shape)
    for name, (dtype, shape) in shapes.items():
        if name not in memory and name not in parts.updates:
            memory[name] = np.zeros(shape, dtype)
    for name, state in parts.states.items():
        assert state.content is not None or state.kind in (
            SymbolKind.OPT_STATE,
            SymbolKind.GRADIENT,
        )
        if state.content is not None:
            memory[name][...] = state.content.numpy()
    return memory


def _stage_session(
    model: ir.Model, stages: Mapping[str, SectionType], stage: SectionType
) -> ort.InferenceSession:
    """Return the part of the graph that makes the outputs of `stage` from memory."""
    graph = ir.to_proto(model).graph
    outputs = [value for value in graph.output if stages[value.name] == stage]
    earlier = {name for name, other in stages.items() if ORDER.index(other) < ORDER.index(stage)}
    needed = {value.name for value in outputs}
    nodes = []
    for node in reversed(graph.node):
        if any(name in needed and name not in earlier for name in node.output):
            nodes.insert(0, node)
            needed.update(node.input)
    made = {name for node in nodes for name in node.output}
    inputs = [
        value
        for value in (*graph.input, *graph.output)
        if value.name in needed and value.name not in made
    ]
    constants = [item for item in graph.initializer if item.name in needed]
    part = onnx.helper.make_graph(nodes, "stage", inputs, outputs, constants)
    opsets = [onnx.helper.make_opsetid(*item) for item in model.opset_imports.items()]
    proto = onnx.helper.make_model(part, opset_imports=opsets, ir_version=10)
    return ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
