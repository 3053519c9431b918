"""Gradients of LSTM, GRU and RNN, each written out step by step as the reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import onnxruntime
import pytest
from gradient_check import Case, build, check_against_torch, check_finite_differences

from sambac.autodiff import differentiate
from sambac.errors import CompileError
from sambac.graph.decisions import Decisions
from sambac.graph.nodes import all_nodes
from sambac.ops.gradients.recurrent_layer import RECURRENT_LAYERS
from sambac.ops.gradients.recurrent_walk import STYLES
from sambac.passes.base import Pass
from sambac.passes.differentiation.keep_gates import KeepGates, LowerKeptGates

torch = pytest.importorskip("torch")
rng = np.random.default_rng(7)

STEPS, BATCH, INPUT, HIDDEN = 5, 3, 4, 2
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
NO_LENGTHS = "onnx's reference evaluator ignores lengths"
ONLY_TANH = "onnx's reference evaluator has no other activation than Tanh"


def lstm_step(x, h, c, w, r, wb, rb, p, attributes):
    zi, zo, zf, zg = (x @ w.T + h @ r.T + wb + rb).chunk(4, -1)
    pi, po, pf = p.chunk(3)
    i, f = torch.sigmoid(zi + pi * c), torch.sigmoid(zf + pf * c)
    c = f * c + i * torch.tanh(zg)
    return torch.sigmoid(zo + po * c) * torch.tanh(c), c


def gru_step(x, h, c, w, r, wb, rb, p, attributes):
    wz, wr, wn = (x @ w.T + wb).chunk(3, -1)
    rz, rr, rn = r.chunk(3)
    bz, br, bn = rb.chunk(3)
    z, reset = torch.sigmoid(wz + h @ rz.T + bz), torch.sigmoid(wr + h @ rr.T + br)
    after = attributes.get("linear_before_reset")
    n = torch.tanh(wn + (reset * (h @ rn.T + bn) if after else (reset * h) @ rn.T + bn))
    return (1 - z) * n + z * h, c


ACTIVATIONS = {"tanh": torch.tanh, "relu": torch.relu, "sigmoid": torch.sigmoid}


def rnn_step(x, h, c, w, r, wb, rb, p, attributes):
    f = ACTIVATIONS[attributes.get("activations", ["Tanh"])[0].lower()]
    return f(x @ w.T + h @ r.T + wb + rb), c


STEP: dict[str, Callable[..., Any]] = {"LSTM": lstm_step, "GRU": gru_step, "RNN": rnn_step}


def formula(
    op: str,
    lengths: Sequence[int],
    attributes: dict[str, Any],
    read: Sequence[int] | None = None,
) -> Callable[..., Any]:
    """Every sequence of the batch on its own, step by step."""
    direction = attributes.get("direction", "forward")
    flags = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[direction]

    def run(x, w, r, b=None, lens=None, h0=None, c0=None, p=None):
        states = torch.zeros(len(flags), x.shape[1], r.shape[2], dtype=x.dtype)
        h0, c0 = (states if value is None else value for value in (h0, c0))
        b = torch.zeros(len(flags), 2 * w.shape[1], dtype=x.dtype) if b is None else b
        p = torch.zeros(len(flags), 3 * r.shape[2], dtype=x.dtype) if p is None else p
        ys, hs, cs = [], [], []
        for d, backwards in enumerate(flags):
            wb, rb = b[d].chunk(2)
            y = [[torch.zeros_like(h0[0, 0])] * x.shape[1] for _ in range(x.shape[0])]
            last_h, last_c = [], []
            for n, length in enumerate(lengths):
                h, c = h0[d, n], c0[d, n]
                steps = range(length)
                for t in reversed(steps) if backwards else steps:
                    h, c = STEP[op](x[t, n], h, c, w[d], r[d], wb, rb, p[d], attributes)
                    y[t][n] = h
                last_h.append(h)
                last_c.append(c)
            ys.append(torch.stack([torch.stack(row) for row in y]))
            hs.append(torch.stack(last_h))
            cs.append(torch.stack(last_c))
        made = (torch.stack(ys, 1), torch.stack(hs), torch.stack(cs))
        return [made[n] for n in read or range(3 if op == "LSTM" else 2)]

    return run


KEEPING = (KeepGates(), LowerKeptGates())


def keeping(
    op: str, formulation: str, *, steps: int = STEPS, directions: int = 1
) -> tuple[Pass, Pass]:
    """Layers of these sizes in a formulation, whatever is guessed to be the fastest."""
    point = RECURRENT_LAYERS[op]
    sizes = {"sequence": (steps, BATCH, INPUT), "hidden": (HIDDEN,), "directions": (directions,)}
    types = (ir.DataType.FLOAT, ir.DataType.DOUBLE)
    decisions = Decisions(
        {point.question(point.pose(sizes, dtype)): formulation for dtype in types}
    )
    return KeepGates(decisions), LowerKeptGates(decisions)


def in_formulations(op: str, **attributes: Any) -> list[Case]:
    """A layer that keeps its gates, in every formulation and with all that one may meet."""
    both = {"direction": "bidirectional"}
    variants: list[tuple[str, dict[str, Any]]] = [
        ("", {}),
        ("reverse", {"direction": "reverse"}),
        ("plain", {"bias": False, "initial": False}),
        ("last-states", {"read": (1, 2) if op == "LSTM" else (1,)}),
        ("both-ways", both),
        ("both-ways-plain", {**both, "bias": False, "initial": False}),
        ("both-ways-last-states", {**both, "read": (1,)}),
        ("both-ways-one-step", {**both, "steps": 1}),
    ]
    cases = []
    for label, given in variants:
        steps, directions = given.get("steps", STEPS), 1 + ("bidirectional" in given.values())
        for name, style in STYLES.items():
            if directions == 2 or not style.together:
                around = keeping(op, name, steps=steps, directions=directions)
                called = f"kept-{name.replace(' ', '-')}-{label}"
                cases.append(layer(op, called, around=around, **given, **attributes))
    return cases


def layer(
    op: str,
    label: str,
    *,
    steps: int = STEPS,
    bias: bool = True,
    initial: bool = True,
    peepholes: bool = False,
    lengths: Sequence[int] | None = None,
    read: tuple[int, ...] | None = None,
    around: tuple[Pass, Pass] | None = None,
    **attributes: Any,
) -> Case:
    directions = 2 if attributes.get("direction") == "bidirectional" else 1
    gates = GATES[op]

    def normal(*shape: int) -> np.ndarray:
        return np.asarray(rng.normal(size=shape))

    state = (directions, BATCH, HIDDEN)
    lstm = op == "LSTM"
    inputs = [
        normal(steps, BATCH, INPUT),
        normal(directions, gates * HIDDEN, INPUT),
        normal(directions, gates * HIDDEN, HIDDEN),
        normal(directions, 2 * gates * HIDDEN) if bias else None,
        None if lengths is None else np.array(lengths, np.int32),
        normal(*state) if initial else None,
        normal(*state) if initial and lstm else None,
        normal(directions, 3 * HIDDEN) if peepholes else None,
    ]
    while inputs[-1] is None:
        inputs.pop()
    unsupported = "" if lengths is None else NO_LENGTHS
    if op == "RNN" and "activations" in attributes:
        unsupported = ONLY_TANH
    return Case(
        op,
        tuple(inputs),
        formula(op, lengths or [steps] * BATCH, attributes, read),
        {"hidden_size": HIDDEN, **attributes},
        outputs=3 if lstm else 2,
        label=label,
        without_finite_differences=unsupported,
        around=around,
        read=read,
    )


CASES = [
    layer("LSTM", "forward"),
    layer("LSTM", "reverse", direction="reverse"),
    layer("LSTM", "bidirectional", direction="bidirectional"),
    layer("LSTM", "plain", bias=False, initial=False),
    layer("LSTM", "one-step", steps=1, direction="bidirectional"),
    layer("LSTM", "peepholes", peepholes=True),
    layer("LSTM", "peepholes-both-ways", peepholes=True, direction="bidirectional"),
    layer("LSTM", "lengths", lengths=[5, 2, 3]),
    layer("LSTM", "lengths-both-ways", lengths=[4, 1, 5], direction="bidirectional"),
    layer("LSTM", "lengths-peepholes", lengths=[2, 5, 3], peepholes=True, direction="reverse"),
    layer("LSTM", "named", activations=["Sigmoid", "Tanh", "Tanh"]),
    *in_formulations("LSTM"),
    layer("LSTM", "kept-not-peepholes", around=KEEPING, peepholes=True),
    layer("LSTM", "kept-not-lengths", around=KEEPING, lengths=[5, 2, 3]),
    layer("GRU", "forward"),
    layer("GRU", "reverse", direction="reverse"),
    layer("GRU", "bidirectional", direction="bidirectional"),
    layer("GRU", "plain", bias=False, initial=False),
    layer("GRU", "lengths", lengths=[3, 5, 2], direction="bidirectional"),
    layer("GRU", "after", linear_before_reset=1),
    layer("GRU", "after-both-ways", linear_before_reset=1, direction="bidirectional"),
    layer("GRU", "after-plain", linear_before_reset=1, bias=False, initial=False),
    layer("GRU", "after-lengths", lengths=[1, 4, 5], linear_before_reset=1, direction="reverse"),
    *in_formulations("GRU", linear_before_reset=1),
    layer("GRU", "kept-not-before", around=KEEPING),
    layer("GRU", "kept-not-lengths", around=KEEPING, lengths=[5, 2, 3], linear_before_reset=1),
    layer("RNN", "forward"),
    layer("RNN", "bidirectional", direction="bidirectional"),
    layer("RNN", "relu", activations=["Relu"]),
    layer("RNN", "sigmoid", activations=["Sigmoid"], direction="reverse"),
    layer("RNN", "plain", bias=False, initial=False),
    layer("RNN", "lengths", lengths=[3, 1, 4], direction="bidirectional"),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_finite_differences(case: Case):
    check_finite_differences(case)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_torch(case: Case):
    check_against_torch(case)


def last_state_only() -> ir.Model:
    """An LSTM with inputs x, w and r, of which only the last hidden state is an output."""
    node = onnx.helper.make_node("LSTM", ["x", "w", "r"], ["", "h"], "layer", hidden_size=2)
    shapes = {"x": [5, 3, 4], "w": [1, 8, 4], "r": [1, 8, 2]}
    inputs = [onnx.helper.make_tensor_value_info(n, 1, shape) for n, shape in shapes.items()]
    output = onnx.helper.make_tensor_value_info("h", 1, [1, 3, 2])
    graph = onnx.helper.make_graph([node], "g", inputs, [output])
    opsets = [onnx.helper.make_opsetid("", 23)]
    model = onnx.helper.make_model(graph, ir_version=10, opset_imports=opsets)
    return ir.serde.deserialize_model(model)


def test_only_the_last_state_is_an_output():
    model = last_state_only()
    x, w, r = model.graph.inputs
    seed = ir.val("seed", ir.DataType.FLOAT, (1, 3, 2))
    model.graph.inputs.append(seed)
    found = differentiate(model, {model.graph.outputs[0]: seed}, [x, w, r])
    model.graph.outputs.extend(found.values())
    feeds = {
        v.name: rng.normal(size=v.shape.numpy()).astype(np.float32) for v in model.graph.inputs
    }
    session = onnxruntime.InferenceSession(ir.to_proto(model).SerializeToString())
    actual = session.run([found[value].name for value in (x, w, r)], feeds)
    tensors = [torch.tensor(feeds[n].astype(np.float64), requires_grad=True) for n in "xwr"]
    h = formula("LSTM", [5, 5, 5], {})(*tensors)[1]
    expected = torch.autograd.grad((h * torch.tensor(feeds["seed"])).sum(), tensors)
    for got, wanted in zip(actual, expected, strict=True):
        np.testing.assert_allclose(got, wanted.numpy(), rtol=1e-4, atol=1e-5)


def kinds_of(case: Case) -> list[str]:
    """The operators of a case and its gradients, in order."""
    model = ir.serde.deserialize_model(build(case, np.float32).model)
    return [node.op_type for node in all_nodes(model.graph)]


@pytest.mark.parametrize(("op", "attributes"), [("LSTM", {}), ("GRU", {"linear_before_reset": 1})])
def test_gates_are_kept_where_the_gradients_read_them(op: str, attributes: dict[str, Any]):
    kept, anew = (
        kinds_of(layer(op, "", around=around, **attributes)) for around in (KEEPING, None)
    )
    assert op not in kept
    # x W^T and h R^T, dW and dR; anew, the kernel has the first two as well.
    assert anew.count("Gemm") == 4
    # The way back adds what a result gets. What a GRU's reset gate acts on is multiplied apart.
    assert kept.count("Gemm") == {"LSTM": 5, "GRU": 7}[op]
    assert op in anew


@pytest.mark.parametrize(
    "case",
    [
        layer("LSTM", "peepholes", around=KEEPING, peepholes=True),
        layer("LSTM", "lengths", around=KEEPING, lengths=[5, 2, 3]),
        layer("GRU", "lengths", around=KEEPING, lengths=[5, 2, 3], linear_before_reset=1),
        layer("GRU", "before", around=KEEPING),
    ],
    ids=str,
)
def test_gates_are_computed_anew_in_other_forms(case: Case):
    assert case.op in kinds_of(case)


def test_an_lstm_without_gradients_stays_one():
    case = layer("LSTM", "", around=KEEPING)
    model = ir.serde.deserialize_model(build(replace(case, wrt=()), np.float32).model)
    (node,) = model.graph
    assert (node.op_type, len(node.outputs)) == ("LSTM", 3)


def test_the_graph_does_not_grow_with_the_sequence():
    def count(steps: int) -> int:
        model = ir.serde.deserialize_model(build(layer("LSTM", "", steps=steps), np.float32).model)
        return sum(1 for _ in all_nodes(model.graph))

    assert count(3) == count(50)


@pytest.mark.parametrize(
    ("attributes", "reason"),
    [
        ({"clip": 1.0}, "its gates are clipped"),
        ({"input_forget": 1}, "its input and forget gates are coupled"),
        ({"layout": 1}, "layout=1"),
        ({"activations": ["Sigmoid", "Relu", "Tanh"]}, "not sigmoid, relu, tanh"),
    ],
)
def test_forms_without_a_gradient_are_named(attributes: dict[str, Any], reason: str):
    with pytest.raises(CompileError, match=f"LSTM 'node' .*{reason}"):
        build(layer("LSTM", "", **attributes), np.float32)
