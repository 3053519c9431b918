"""Several lookups of one table: their gradients are one sum of rows, and that of PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest

from sambac.autodiff import differentiate
from sambac.passes.legalize.infer_shapes import infer

torch = pytest.importorskip("torch")
rng = np.random.default_rng(11)

FEEDS: dict[str, np.ndarray] = {
    "t": rng.normal(size=(9, 8)).astype(np.float32),
    "w": rng.normal(size=(8, 3)).astype(np.float32),
    "i": np.array([[8, -1], [0, 8]], np.int64),
    "j": np.array([[3, 0], [-8, 3]], np.int32),
    "k": np.array([2, -1, 2], np.int64),
    "many": np.tile(np.array([1, -2, 5], np.int64), 7),
    "one": np.array(-4, np.int64),
    "p": np.array([[1, -1], [8, 7]], np.int64),
    "q": np.array([[-1, 7], [2, 0], [1, 7]], np.int64),
    "e": np.zeros(0, np.int64),
}
_DECLARED = (
    "float[9,8] t, float[8,3] w, int64[2,2] i, int32[2,2] j, int64[3] k, int64[21] many,"
    " int64 one, int64[2,2] p, int64[3,2] q, int64[0] e"
)


@dataclass(frozen=True)
class Reading:
    """What reads the table, the results with their types, and the same in PyTorch.

    `sums` are the times that rows are summed into the whole table, `added` those that whole tables
    are added.
    """

    body: str
    results: str
    formula: Callable[..., tuple[Any, ...]]
    sums: int = 1
    added: int = 0


READINGS = {
    "rows": Reading(
        "a = Gather(t, i) b = Gather(t, j)",
        "float[2,2,8] a, float[2,2,8] b",
        lambda t, f: (t[f["i"]], t[f["j"]]),
    ),
    "rows of three shapes": Reading(
        "a = Gather(t, i) b = Gather(t, one) c = Gather(t, k)",
        "float[2,2,8] a, float[8] b, float[3,8] c",
        lambda t, f: (t[f["i"]], t[f["one"]], t[f["k"]]),
    ),
    "columns": Reading(
        "a = Gather<axis = 1>(t, j) b = Gather<axis = -1>(t, k)",
        "float[9,2,2] a, float[9,3] b",
        lambda t, f: (t[:, f["j"] % 8], t[:, f["k"]]),
    ),
    "rows, and columns": Reading(
        "a = Gather(t, i) b = Gather<axis = 1>(t, k) c = Gather(t, k)",
        "float[2,2,8] a, float[9,3] b, float[3,8] c",
        lambda t, f: (t[f["i"]], t[:, f["k"]], t[f["k"]]),
        sums=2,
        added=1,
    ),
    "places": Reading(
        "a = GatherND(t, p) b = GatherND(t, q)",
        "float[2] a, float[3] b",
        lambda t, f: (t[f["p"][:, 0], f["p"][:, 1]], t[f["q"][:, 0], f["q"][:, 1]]),
    ),
    "none of them": Reading(
        "a = Gather(t, i) b = Gather(t, e)",
        "float[2,2,8] a, float[0,8] b",
        lambda t, f: (t[f["i"]], t[f["e"]]),
        added=1,
    ),
    "more than the table has": Reading(
        "a = Gather(t, i) b = Gather(t, many)",
        "float[2,2,8] a, float[21,8] b",
        lambda t, f: (t[f["i"]], t[f["many"]]),
        sums=2,
        added=1,
    ),
    "one after the other": Reading(
        "a = Gather(t, i) s = Exp(a) b = Gather(t, j) c = Mul(s, b)",
        "float[2,2,8] c",
        lambda t, f: (t[f["i"]].exp() * t[f["j"]],),
    ),
    "and a product": Reading(
        "a = Gather(t, i) m = MatMul(t, w) b = Gather(t, k)",
        "float[2,2,8] a, float[9,3] m, float[3,8] b",
        lambda t, f: (t[f["i"]], t @ f["w"], t[f["k"]]),
        added=1,
    ),
    "of what is computed": Reading(
        "u = Exp(t) a = Gather(u, i) b = Gather(u, k) c = Mul(u, t)",
        "float[2,2,8] a, float[3,8] b, float[9,8] c",
        lambda t, f: (t.exp()[f["i"]], t.exp()[f["k"]], t.exp() * t),
        added=2,
    ),
}


@pytest.mark.parametrize("reading", READINGS.values(), ids=READINGS)
def test_lookups_of_a_table_are_summed_at_once(reading: Reading):
    text = f'<ir_version: 10, opset_import: ["": 23]> g ({_DECLARED}) => ({reading.results})'
    parsed = onnx.parser.parse_model(f"{text} {{ {reading.body} }}")
    model = ir.serde.deserialize_model(parsed)
    for number, node in enumerate(model.graph):
        node.name = f"node_{number}"
    infer(model)
    before = len(model.graph)
    seeds, given = {}, {}
    for output in tuple(model.graph.outputs):
        seed = ir.Value(name=f"d_{output.name}", type=output.type, shape=output.shape)
        given[f"d_{output.name}"] = rng.normal(size=output.shape.numpy()).astype(np.float32)
        model.graph.inputs.append(seed)
        seeds[output] = seed
    table = model.graph.inputs[0]
    gradient = differentiate(model, seeds, [table])[table]
    made = list(model.graph)[before:]
    model.graph.outputs.append(gradient)
    sums = [node for node in made if node.op_type == "ScatterElements"]
    added = [node for node in made if node.op_type == "Add" and node.outputs[0].shape == (9, 8)]
    assert (len(sums), len(added)) == (reading.sums, reading.added)

    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())
    (got,) = session.run([gradient.name], {**FEEDS, **given})
    tensors = {name: torch.tensor(array) for name, array in FEEDS.items()}
    tensors = {n: x.double() if x.is_floating_point() else x.long() for n, x in tensors.items()}
    leaf = tensors["t"].clone().requires_grad_()
    results = reading.formula(leaf, tensors)
    loss = sum((y * torch.tensor(d)).sum() for y, d in zip(results, given.values(), strict=True))
    loss.backward()
    np.testing.assert_allclose(got, leaf.grad.numpy(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("axis", [0, 1])
def test_rows_of_constant_numbers_go_to_their_places_without_a_sum(axis: int):
    sizes = [1024, 4]
    sizes.insert(axis, 3)
    shape = ",".join(map(str, sizes))
    row = ir.Shape(size for at, size in enumerate(sizes) if at != axis)
    reads = " ".join(f"r{at} = Gather<axis = {axis}>(x, n{at})" for at in range(3))
    parsed = onnx.parser.parse_model(
        f'<ir_version: 10, opset_import: ["": 23]> g (float[{shape}] x) => (float r0) '
        f"<int64 n0 = {{0}}, int64 n1 = {{1}}, int64 n2 = {{-1}}> {{ {reads} }}"
    )
    model = ir.serde.deserialize_model(parsed)
    infer(model)
    seeds = {node.outputs[0]: ir.Value(name=f"d{node.name}") for node in model.graph}
    for output, seed in seeds.items():
        seed.type, seed.shape = output.type, row
    model.graph.inputs.extend(seeds.values())
    (x, *_) = model.graph.inputs
    before = len(model.graph)
    differentiate(model, seeds, [x])
    made = {node.op_type for node in list(model.graph)[before:]}
    assert made <= {"Reshape", "Pad", "Add"}


def test_embeddings_train_as_in_pytorch():
    """Two lookups with padding, of many rows, and the tied output of a table; two steps."""
    import sambac
    import sambarun

    class Module(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(600, 24, padding_idx=3)

        def forward(self, x: Any, y: Any, wanted: Any) -> Any:
            mixed = self.table(x).mean(1) + torch.tanh(self.table(y)).sum(1)
            return torch.nn.functional.cross_entropy(mixed @ self.table.weight.t(), wanted)

    torch.manual_seed(2)
    module = Module()
    batch = tuple(torch.randint(0, 600, shape) for shape in ((40, 7), (40, 5), (40,)))
    batch[0][::3, 2] = batch[1][::4, 1] = 3
    options = sambac.CompileOptions(train=True, optimizers=(sambac.SGD(lr=0.5),))
    executable = sambarun.load(sambac.compile(module, options, inputs=batch))
    reference = module.double()
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.5)
    feeds = dict(zip(("x", "y", "wanted"), (each.numpy() for each in batch), strict=True))
    for _ in range(2):
        optimizer.zero_grad()
        reference(*batch).backward()
        optimizer.step()
        executable.step(feeds)
    got, want = executable.state()["table.weight"], reference.table.weight.detach().numpy()
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())
