"""ONNX files in the form that training needs, and dropout as a product with a mask."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir
import pytest
from onnx import parser
from onnxruntime import InferenceSession

from pef.symbols import SymbolKind
from sambac import SGD, CompileOptions
from sambac import compile as compile_model
from sambac.errors import CompileError
from sambac.facts import Roles
from sambac.training.canonical import (
    OPSET,
    to_training_opset,
    told_of_inner,
    train_dropouts,
    train_normalizations,
)
from sambac.training.dropout import take_masks

Parse = Callable[[str], ir.Model]

NORMALIZED = """
g (float[4,3] x, float[3] s, float[3] b, float[3] mean, float[3] var) => (float[4,3] y)
{ y = BatchNormalization<momentum = 0.75>(x, s, b, mean, var) }"""


def operators(model: ir.Model) -> list[str]:
    return [node.op_type for node in model.graph]


def evaluated(model: ir.Model, **feeds: object) -> list[np.ndarray]:
    session = InferenceSession(ir.to_proto(model).SerializeToString())
    return session.run(None, {name: np.asarray(a, np.float32) for name, a in feeds.items()})


def test_statistics_are_those_of_the_batch_and_move(parse: Parse) -> None:
    model = parse(NORMALIZED)
    updates = train_normalizations(model, Roles(buffers=("mean", "var")))
    assert updates == {"mean": "mean__next", "var": "var__next"}
    x = np.random.default_rng(0).normal(2, 3, (4, 3))
    y, mean, variance = evaluated(
        model, x=x, s=np.ones(3), b=np.zeros(3), mean=np.ones(3), var=np.full(3, 2)
    )
    np.testing.assert_allclose(y, (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5), atol=1e-5)
    np.testing.assert_allclose(mean, 0.75 + 0.25 * x.mean(0), rtol=1e-5)
    np.testing.assert_allclose(variance, 1.5 + 0.25 * x.var(0), rtol=1e-5)


def test_statistics_that_are_no_buffers_stay(parse: Parse) -> None:
    model = parse(NORMALIZED)
    assert train_normalizations(model, Roles()) == {}
    assert operators(model) == ["BatchNormalization"]


def test_dropouts_drop_with_masks_from_outside(parse: Parse) -> None:
    model = parse("""
        g (float[2,3] x) => (float[2,3] y, bool[2,3] kept)
        <float p = {0.25}> { h = Exp(x)  y, kept = Dropout(h, p) }""")
    train_dropouts(model)
    found = take_masks(model)
    ((name, mask),) = found.masks.items()
    assert (mask.rate, mask.seed) == (name.removesuffix(".mask") + ".p", "seed")
    assert found.states[mask.rate].kind is SymbolKind.ARGIN
    content = found.states[mask.rate].content
    assert content is not None
    assert float(content.numpy()) == 0.25
    assert operators(model) == ["Exp", "Mul", "Greater"]
    assert [value.name for value in model.graph.outputs] == ["y", "kept"]


def test_each_dropout_has_a_mask_of_its_own(parse: Parse) -> None:
    model = parse("g (float[2] x) => (float[2] y) { h = Dropout(x)  y = Dropout(h) }")
    train_dropouts(model)
    sites = [mask.site for mask in take_masks(model).masks.values()]
    assert sites == [0, 1]


def test_the_rate_of_a_mask_that_others_scale_is_no_hyperparameter(parse: Parse) -> None:
    model = parse("""
        g (float[2] x) => (float[2] y)
        <float[2] ones = {1, 1}> { noise = Dropout(ones)  z = Mul(x, noise)  y = Dropout(z) }""")
    train_dropouts(model)
    found = take_masks(model)
    noise, own = found.masks.values()
    assert [argin.name for argin in found.argins] == [own.rate, "seed"]
    assert noise.rate in found.states


def test_dropout_that_evaluates_has_no_mask(parse: Parse) -> None:
    model = parse("g (float[2] x) => (float[2] y) { y = Dropout(x) }")
    found = take_masks(model)
    assert not found.masks
    assert not found.states


def test_files_come_to_one_opset() -> None:
    text = '<ir_version: 8, opset_import: ["": 13]> g (float[2] x) => (float[2] y) { y = Exp(x) }'
    model = ir.from_proto(parser.parse_model(text))
    to_training_opset(model, "old.onnx")
    assert model.opset_imports[""] == OPSET


_RESIZED = {  # by opset, what its resizing and padding says, and what no converter keeps
    7: "y = Upsample<mode = 'linear', scales = [1.0, 1.0, 2.0, 1.5]>(x)",
    8: "y = Upsample<mode = 'nearest', scales = [1.0, 1.0, 2.7, 1.0]>(x)",
    9: "k = Constant<value = float[4] {1.0, 1.0, 3.0, 1.4}>() y = Upsample<mode = 'linear'>(x, k)",
    10: """
        a = Constant<value = float[4] {1.0, 1.0, 2.7, 1.0}>() u = Resize<mode = 'nearest'>(x, a)
        b = Constant<value = float[4] {1.0, 1.0, 0.4, 0.6}>() v = Resize<mode = 'nearest'>(u, b)
        c = Constant<value = float[4] {1.0, 1.0, 0.7, 1.6}>() w = Resize<mode = 'linear'>(v, c)
        y = Pad<mode = 'edge', value = 2.0, pads = [0, 0, 1, 0, 0, 0, 0, 2]>(w)""",
}


@pytest.mark.parametrize("opset", _RESIZED)
def test_old_resizing_takes_pixels_from_where_it_did(opset: int) -> None:
    body = _RESIZED[opset].replace("'", '"')
    text = f"g (float[1,1,5,7] x) => (float[1,1,h,w] y) {{ {body} }}"
    model = ir.from_proto(
        parser.parse_model(f'<ir_version: 5, opset_import: ["": {opset}]> {text}')
    )
    x = np.random.default_rng(0).normal(size=(1, 1, 5, 7))
    (expected,) = evaluated(model, x=x)
    to_training_opset(model, "old.onnx")
    np.testing.assert_allclose(evaluated(model, x=x)[0], expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("scales", "named"), [("float[4] k = {1, 1, 2, 0.5}", "0.5"), ("", "scales of a run")]
)
def test_a_nearest_pixel_that_no_mode_finds_is_refused(scales: str, named: str) -> None:
    inputs = "float[1,1,4,4] x" if scales else "float[1,1,4,4] x, float[4] k"
    text = f"g ({inputs}) => (float[1,1,h,w] y) <{scales}> {{ y = Resize(x, k) }}"
    model = ir.from_proto(parser.parse_model(f'<ir_version: 5, opset_import: ["": 10]> {text}'))
    with pytest.raises(CompileError, match=f"Resize.*{named}.*nearest pixel.*opset 11 or later"):
        to_training_opset(model, "old.onnx")


@pytest.mark.parametrize("sizes", ["2,6,4", "n,6,k"])
def test_old_groups_keep_what_they_are_normalised_by(sizes: str) -> None:
    """Converters forget epsilon, and scales of groups where they know no shape."""
    shared = "float[3] s = {1, 2, 3}, float[3] b = {3, 0, 1}"
    model = ir.from_onnx_text(f"""<ir_version: 8, opset_import: ["": 18]>
        g (float[{sizes}] x, bool c) => (float[l,m,n] y) <{shared}> {{
            h = Relu(x)
            y = If (c) <
                then_branch = t () => (float[a,d,e] u)
                    {{ u = GroupNormalization<num_groups = 3, epsilon = 0.1>(h, s, b) }},
                else_branch = f () => (float[a,d,e] v) {{ v = Neg(x) }}>
        }}""")
    x = np.random.default_rng(0).normal(size=(2, 6, 4)).astype(np.float32)
    results = []
    for convert in (None, to_training_opset):
        if convert is not None:
            convert(model, "old.onnx")
        session = InferenceSession(ir.to_proto(model).SerializeToString())
        results.append(session.run(None, {"x": x, "c": np.asarray(True)})[0])
    np.testing.assert_allclose(results[1], results[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("opset", "body", "said"),
    [
        (18, "y = GroupNormalization<num_groups = 3>(x, s, s)", "normalises c channels in 3 gro"),
        (11, "y, m = Dropout(x) z = Cast<to = 1>(m)", "the mask of .* is read.*opset 12"),
    ],
)
def test_what_a_converter_would_change_is_refused(opset: int, body: str, said: str) -> None:
    results = "float[n,c] y, float[n,c] z" if "z" in body else "float[n,c] y"
    model = ir.from_onnx_text(f"""<ir_version: 6, opset_import: ["": {opset}]>
        g (float[n,c] x) => ({results}) <float[3] s = {{1, 2, 3}}> {{ {body} }}""")
    with pytest.raises(CompileError, match=said):
        to_training_opset(model, "old.onnx")


_CALLING = """<ir_version: 8, opset_import: ["": {opset}, "local": 1]>
g (float[2,3] x) => (float[2,3] y) {{ h = local.f(x) y = Exp(h) }}
<domain: "local", opset_import: ["": {inside}]> f (a) => (b) {{ b = {op}(a) }}"""


def test_functions_are_of_an_opset_of_their_own() -> None:
    options = CompileOptions(train=True, backward_from=("y",), input_grads=("x",))
    text = _CALLING.format(opset=17, inside=23, op="Sin")
    program = compile_model(parser.parse_model(text), options)
    assert "x__grad" in {port.name for port in program.graphs[0].outputs}
    # On the axis before the last one since opset 20, on the first behind the batch before.
    text = _CALLING.format(opset=20, inside=17, op="DFT").replace("[2,3]", "[2,3,4,2]")
    with pytest.raises(CompileError, match=r"DFT \(opset 17\).* differs in the model's, 20"):
        compile_model(parser.parse_model(text))
    text = _CALLING.format(opset=11, inside=11, op="Hardmax")
    with pytest.raises(CompileError, match=r"uses Hardmax of opset 11.*opset 13"):
        compile_model(parser.parse_model(text), options)


def test_what_would_change_its_meaning_is_refused() -> None:
    text = (
        '<ir_version: 7, opset_import: ["": 11]> g (float[2] x) => (float[2] y) { y = Hardmax(x) }'
    )
    model = ir.from_proto(parser.parse_model(text))
    with pytest.raises(CompileError, match=r"old\.onnx uses Hardmax of opset 11.*opset 13"):
        to_training_opset(model, "old.onnx")


@pytest.mark.parametrize(
    "shared", [("s", "b", "b", "s"), ("s", "b", "m", "m"), ("w", "w", "w", "w")]
)
def test_statistics_that_share_a_constant_get_their_own(shared: tuple[str, ...]) -> None:
    """Files that store equal constants once train as those that do not."""
    names = ", ".join(shared)
    constants = ", ".join(f"float[3] {name} = {{1, 1, 1}}" for name in dict.fromkeys(shared))
    model = parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[4, 3] x) => (float y) <{constants}, float[1] k = {{0.5}}> {{
            n = BatchNormalization(x, {names})
            y = ReduceMean<keepdims = 0>(n)
        }}""")
    program = compile_model(model, CompileOptions(train=True, optimizers=(SGD(lr=0.5),)))
    kinds = {symbol.name: symbol.kind for symbol in program.symbols}
    buffers = [name for name, kind in kinds.items() if kind is SymbolKind.BUFFER]
    assert len(buffers) == 2
    assert kinds[shared[0]] is kinds[shared[1]] is SymbolKind.WEIGHT


def test_operators_in_any_order_train() -> None:
    """As for inference: a model that is read before it is made is brought into order first."""
    unsorted = parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (float[4, 3] x) => (float l) <float[3, 2] w = {1, 2, 3, 4, 5, 6}> {
          l = ReduceMean<keepdims = 0>(h)
          h = MatMul(x, w)
        }""")
    program = compile_model(unsorted, CompileOptions(train=True, optimizers=(SGD(),)))
    assert any(symbol.name == "w" for symbol in program.symbols)


@pytest.mark.parametrize(
    ("labels", "says"), [((4, 3), "labels of 4x3 for scores of 4x5"), ((3,), "3 for scores of 4x5")]
)
def test_labels_that_do_not_fit_the_scores_are_refused(labels: tuple[int, ...], says: str) -> None:
    dims = ", ".join(map(str, labels))
    model = parser.parse_model(f"""<ir_version: 8, opset_import: ["": 17]>
        g (float[4, 5] x, int64[{dims}] t) => (float l) <float[5] w = {{1, 2, 3, 4, 5}}> {{
          h = Add(x, w)
          l = SoftmaxCrossEntropyLoss<reduction = "mean">(h, t)
        }}""")
    with pytest.raises(CompileError, match=says):
        compile_model(model, CompileOptions(train=True))


def test_a_skip_that_does_not_fit_is_refused() -> None:
    model = parser.parse_model("""<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
        g (float[1, 2, 4] x, float[1, 3, 4] z) => (float[1, 2, 4] y) <float[4] g = {1, 1, 1, 1}> {
          y = com.microsoft.SkipLayerNormalization(x, z, g)
        }""")
    with pytest.raises(CompileError, match="a skip of 1x3x4 to an input of 1x2x4"):
        compile_model(model, CompileOptions(train=True, backward_from=("y",)))


@pytest.mark.parametrize(
    ("chosen", "by"), [("bool c = {1}, ", ""), ("", "s = Shape(x) w = Size(s) c = Equal(w, two)")]
)
def test_what_a_constant_chooses_trains_as_all_else(chosen: str, by: str) -> None:
    """Its dropouts drop, its normalisations take statistics, and its weights move."""
    numbers = ", ".join(f"float[3] {name} = {{1, 1, 1}}" for name in "rumv")
    model = parser.parse_model(f"""<ir_version: 8, opset_import: ["": 18]>
        g (float[4, 3] x) => (float l) <{chosen} int64 two = {{2}}> {{
            {by}
            y = If (c) <
                then_branch = t () => (float[4, 3] d) <{numbers}> {{
                    n = BatchNormalization(x, r, u, m, v) d = Dropout(n) }},
                else_branch = f () => (float[4, 3] e) <float[3] r = {{2, 2, 2}}> {{
                    e = Mul(x, r) }}>
            l = ReduceMean<keepdims = 0>(y)
        }}""")
    options = CompileOptions(train=True, optimizers=(SGD(lr=0.5),))
    program = compile_model(model, options)
    kinds = {symbol.name: symbol.kind for symbol in program.symbols}
    assert {kinds[name] for name in ("r", "u")} == {SymbolKind.WEIGHT}
    assert {kinds[name] for name in ("m", "v")} == {SymbolKind.BUFFER}
    assert {"u__grad", "Dropout.p"} <= kinds.keys()


def test_what_stays_in_a_branch_is_told_of(parse: Parse) -> None:
    model = parse("""
        g (float[4,3] x, bool c, float[3] m) => (float[4,3] y) {
            y = If (c) <
                then_branch = t () => (float[4,3] d) {
                    [norm] n = BatchNormalization(x, m, m, m, m) [drop] d = Dropout(n) },
                else_branch = f () => (float[4,3] e) { e = Identity(x) }>
        }""")
    told = told_of_inner(model, Roles(buffers=("m",)), ("w",))
    assert [text.partition(" while")[0] for text in told] == [
        "'drop' drop nothing",
        "'norm' keep their running statistics",
        "'w' stay as they are",
    ]


def test_weights_that_stay_are_told_of() -> None:
    """Those of a branch that an input chooses, and of a loop's body; numbers are none."""
    model = parser.parse_model("""<ir_version: 8, opset_import: ["": 18]>
        g (float[4, 3] x, bool c, float[3] h) => (float l) <float[3] w = {1, 2, 3}> {
            y = If (c) <
                then_branch = t () => (float[4, 3] d) <float[3] r = {2, 2, 2}, float two = {2}> {
                    q = Mul(x, two) d = Mul(q, r) },
                else_branch = f () => (float[4, 3] e) { e = Identity(x) }>
            last, all = Scan<num_scan_inputs = 1, body = b (float[3] s, float[3] a)
                => (float[3] n, float[3] m) <float[3] k = {1, 1, 1}> {
                    p = Mul(a, k) n = Add(s, p) m = Identity(n) }>(h, y)
            z = Mul(all, w)
            l = ReduceMean<keepdims = 0>(z)
        }""")
    program = compile_model(model, CompileOptions(train=True, optimizers=(SGD(lr=0.5),)))
    (told,) = [text for text in program.warnings if "stay as they are" in text]
    assert told.startswith("'r', 'k' stay as they are while the model trains")
    kinds = {symbol.name: symbol.kind for symbol in program.symbols}
    assert kinds["w"] == SymbolKind.WEIGHT
