"""The cases of the ONNX backend suite, as the installed onnx package brings them."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests

KINDS = ("node", "simple", "pytorch-operator", "pytorch-converted", "light")

_ONNX = Path(onnx.__file__).parent
DataSet = tuple[Sequence[Any], Sequence[Any]]


@dataclass(frozen=True)
class Case:
    """A model, the values to feed it, and the values it must give within rtol and atol."""

    name: str
    model: onnx.ModelProto | Path
    data_sets: Sequence[DataSet] | None
    rtol: float
    atol: float

    @property
    def is_expanded(self) -> bool:
        """Whether an operator is written with others, which have cases of their own."""
        return "_expanded" in self.name

    def proto(self) -> onnx.ModelProto:
        """The model as a protobuf."""
        return onnx.load(self.model) if isinstance(self.model, Path) else self.model

    def input_names(self) -> list[str]:
        """The inputs a caller feeds, in order: initializers that are inputs too do not count."""
        graph = self.proto().graph
        constant = {tensor.name for tensor in graph.initializer}
        constant |= {tensor.values.name for tensor in graph.sparse_initializer}
        return [value.name for value in graph.input if value.name not in constant]

    def sets(self) -> Iterator[DataSet]:
        """Pairs of input values and expected output values, read from files where they are."""
        if self.data_sets is not None:
            for inputs, outputs in self.data_sets:
                yield _as_arrays(inputs), _as_arrays(outputs)
        elif isinstance(self.model, Path) and self.name.startswith("light/"):
            yield _light_data(self.model)
        elif isinstance(self.model, Path):
            yield from _stored_data(self.model)


def load_cases() -> dict[str, Case]:
    """Every case by name (`node/test_abs`), in the same order with the same values each time."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # computing expected values overflows here and there
        np.random.seed(0)  # noqa: NPY002  the suite draws from the global generator
        node = load_model_tests(kind="node")
    cases = [
        Case(f"node/{case.name}", case.model, case.data_sets, case.rtol, case.atol)
        for case in sorted(node, key=lambda case: case.name)
    ]
    for kind in KINDS[1:]:
        cases.extend(_folder_cases(kind))
    return {case.name: case for case in cases}


def _folder_cases(kind: str) -> Iterator[Case]:
    """The cases of a kind that is stored as folders of files."""
    # The package calls the light networks 'real' and names their files by a relative address.
    stored = load_model_tests(kind="real" if kind == "light" else kind)
    for case in sorted(stored, key=lambda case: case.name):
        folder = Path(case.model_dir) if case.model_dir else _ONNX.parent / case.url
        model = folder / "model.onnx" if case.model_dir else folder
        yield Case(f"{kind}/{case.name}", model, None, case.rtol, case.atol)


def _light_data(path: Path) -> DataSet:
    """A ramp from 0 to 1 as picture; the expected output lies beside the model."""
    shape = (1, 3, 224, 224)
    ramp = np.arange(np.prod(shape)).reshape(shape) / np.prod(shape)
    expected = onnx.load_tensor(path.with_name(f"{path.stem}_output_0.pb"))
    return [ramp.astype(np.float32)], [numpy_helper.to_array(expected)]


def _stored_data(path: Path) -> Iterator[DataSet]:
    graph = onnx.load(path).graph
    for folder in sorted(path.parent.glob("test_data_set_*")):
        yield (
            [_read(folder / f"input_{i}.pb", v) for i, v in _existing(folder, "input", graph)],
            [_read(folder / f"output_{i}.pb", v) for i, v in _existing(folder, "output", graph)],
        )


def _existing(
    folder: Path, role: str, graph: onnx.GraphProto
) -> Iterator[tuple[int, onnx.ValueInfoProto]]:
    for index, value in enumerate(getattr(graph, role)):
        if (folder / f"{role}_{index}.pb").exists():
            yield index, value


def _read(path: Path, value: onnx.ValueInfoProto) -> Any:
    """A stored tensor, sequence or optional as Python value."""
    kind = value.type.WhichOneof("value")
    if kind == "sequence_type":
        return numpy_helper.to_list(onnx.SequenceProto.FromString(path.read_bytes()))
    if kind == "optional_type":
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(path.read_bytes()))
    return numpy_helper.to_array(onnx.TensorProto.FromString(path.read_bytes()))


def _as_arrays(values: Sequence[Any]) -> list[Any]:
    return [
        numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value
        for value in values
    ]
