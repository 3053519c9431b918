"""Element types and kinds of values, through every way of calling a section."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import sambarun
from pef import CallForm

FLOATS = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
SEQUENCE = helper.make_sequence_type_proto(FLOATS)
OPTIONAL = helper.make_optional_type_proto(helper.make_tensor_type_proto(TensorProto.FLOAT, [4]))
OPTIONAL_SEQUENCE = helper.make_optional_type_proto(SEQUENCE)

ARRAYS = {
    TensorProto.FLOAT: np.arange(4, dtype=np.float32),
    TensorProto.DOUBLE: np.arange(4, dtype=np.float64),
    TensorProto.FLOAT16: np.arange(4, dtype=np.float16),
    TensorProto.BFLOAT16: np.arange(4).astype(ml_dtypes.bfloat16),
    TensorProto.FLOAT8E4M3FN: np.arange(4).astype(ml_dtypes.float8_e4m3fn),
    TensorProto.FLOAT8E5M2FNUZ: np.arange(4).astype(ml_dtypes.float8_e5m2fnuz),
    TensorProto.INT8: np.arange(-2, 2, dtype=np.int8),
    TensorProto.UINT64: np.arange(4, dtype=np.uint64),
    TensorProto.BOOL: np.array([True, False, True, True]),
    TensorProto.STRING: np.array(["a", "", "ß", "d"], object),
}


@pytest.fixture(params=[True, False], ids=["linked", "unlinked"])
def run(request):
    """Run a program on inputs, linked and not."""

    def run_spec(spec, inputs):
        with sambarun.load(spec.program(), link=request.param) as executable:
            executable.run(inputs)
            return executable.run(inputs)

    return run_spec


@pytest.fixture
def copies(spec_type, sec_type, value_type):
    """Two sections, each an Identity, on values like the given one."""

    def make(value, form=CallForm.BOUND):
        node = helper.make_node
        return spec_type(
            sections=[
                sec_type([node("Identity", ["x"], ["h"])], ["x"], ["h"], form=form),
                sec_type([node("Identity", ["h"], ["y"])], ["h"], ["y"], form=form),
            ],
            values=dict.fromkeys("xhy", value),
            inputs=["x"],
            outputs=["y"],
        )

    return make


@pytest.mark.parametrize("shape", [(4,), ("n",), None], ids=["static", "symbolic", "no-rank"])
@pytest.mark.parametrize("dtype", ARRAYS, ids=TensorProto.DataType.Name)
def test_every_element_type_comes_back_as_it_went_in(run, copies, value_type, dtype, shape):
    form = CallForm.HOST if dtype == TensorProto.STRING else CallForm.BOUND
    y = run(copies(value_type(shape, dtype), form), {"x": ARRAYS[dtype]})["y"]
    assert y.dtype == ARRAYS[dtype].dtype
    np.testing.assert_array_equal(y, ARRAYS[dtype])


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1, 1, 1)])
def test_scalars_and_empty_tensors(run, copies, value_type, shape):
    x = np.ones(shape, np.float32)
    y = run(copies(value_type(shape)), {"x": x})["y"]
    np.testing.assert_array_equal(y, x, strict=True)


def test_a_symbolic_dimension_may_change_from_run_to_run(copies, value_type):
    with sambarun.load(copies(value_type(("n", 2))).program(), link=False) as executable:
        for size in (3, 1, 0, 5):
            x = np.random.default_rng(size).random((size, 2), np.float32)
            np.testing.assert_array_equal(executable.run({"x": x})["y"], x, strict=True)


def test_packed_elements(run, spec_type, sec_type, value_type):
    """int4 as input, between sections and as output: two to a byte in memory, one in numpy."""
    cast = helper.make_node("Cast", ["x"], ["h"], to=TensorProto.FLOAT)
    back = helper.make_node("Cast", ["h"], ["y"], to=TensorProto.INT4)
    again = helper.make_node("Cast", ["y"], ["z"], to=TensorProto.FLOAT)
    values = np.array([-8, 7, 0, -1, 5])
    spec = spec_type(
        sections=[
            sec_type([cast], ["x"], ["h"]),
            sec_type([back], ["h"], ["y"]),
            sec_type([again], ["y"], ["z"]),
        ],
        values={
            "x": value_type((5,), TensorProto.INT4),
            "h": value_type((5,)),
            "y": value_type((5,), TensorProto.INT4),
            "z": value_type((5,)),
        },
        inputs=["x"],
        outputs=["y", "z"],
    )
    for given in (values.astype(ml_dtypes.int4), values.astype(np.int8)):
        outputs = run(spec, {"x": given})
        assert outputs["y"].dtype == ml_dtypes.int4
        np.testing.assert_array_equal(outputs["y"].astype(int), values)
        np.testing.assert_array_equal(outputs["z"], values)


@pytest.mark.parametrize(
    "weight",
    [
        np.zeros((0, 4), np.float32),
        np.float32(3).reshape(()),
        np.arange(8192, dtype=np.float32),
        np.arange(4096).astype(ml_dtypes.bfloat16),
    ],
    ids=["empty", "scalar", "in-the-file", "bfloat16"],
)
def test_weights_of_every_size(run, spec_type, sec_type, value_type, weight):
    node = helper.make_node("Cast", ["w"], ["y"], to=TensorProto.DOUBLE)
    spec = spec_type(
        sections=[sec_type([node], [], ["y"], ["w"])],
        values={"y": value_type(weight.shape, TensorProto.DOUBLE)},
        inputs=[],
        outputs=["y"],
        weights={"w": weight},
    )
    np.testing.assert_array_equal(run(spec, {})["y"], weight.astype(np.float64))


def test_a_packed_weight(run, spec_type, sec_type, value_type):
    values = np.arange(3000) % 16 - 8
    packed = np.packbits(
        np.unpackbits(values.astype(np.int8).view(np.uint8)[:, None], axis=1, bitorder="little")[
            :, :4
        ].reshape(-1),
        bitorder="little",
    )
    node = helper.make_node("Cast", ["w"], ["y"], to=TensorProto.FLOAT)
    spec = spec_type(
        sections=[sec_type([node], [], ["y"], ["w"])],
        values={"y": value_type((3000,))},
        inputs=[],
        outputs=["y"],
        weights={"w": packed},
        weight_types={"w": (TensorProto.INT4, (3000,))},
    )
    np.testing.assert_array_equal(run(spec, {})["y"], values)


def test_sequences_between_sections_and_as_outputs(run, spec_type, sec_type, value_type):
    make = helper.make_node("SequenceConstruct", ["x", "x"], ["s"])
    take = helper.make_node("SequenceAt", ["s", "i"], ["y"])
    values = {
        "x": value_type(),
        "i": value_type((), TensorProto.INT64),
        "s": value_type(None, 0, SEQUENCE),
        "y": value_type(),
    }
    sections = [
        sec_type([make], ["x"], ["s"], form=CallForm.VALUES),
        sec_type([take], ["s", "i"], ["y"], form=CallForm.VALUES),
    ]
    x = np.arange(4, dtype=np.float32)
    hidden = spec_type(sections, values, ["x", "i"], ["y"])
    np.testing.assert_array_equal(run(hidden, {"x": x, "i": 1})["y"], x)
    shown = spec_type(sections, values, ["x", "i"], ["y", "s"])
    outputs = run(shown, {"x": x, "i": 1})
    assert isinstance(outputs["s"], list)
    np.testing.assert_array_equal(outputs["s"], [x, x])


def test_sequences_from_the_caller(run, spec_type, sec_type, value_type):
    take = helper.make_node("SequenceAt", ["s", "i"], ["h"])
    spec = spec_type(
        sections=[
            sec_type([take], ["s", "i"], ["h"], form=CallForm.HOST),
            sec_type([helper.make_node("Neg", ["h"], ["y"])], ["h"], ["y"]),
        ],
        values={
            "i": value_type((), TensorProto.INT64),
            "s": value_type(None, 0, SEQUENCE),
            "h": value_type(("n",)),
            "y": value_type(("n",)),
        },
        inputs=["s", "i"],
        outputs=["y"],
    )
    items = [np.arange(size, dtype=np.float32) for size in (2, 3)]
    np.testing.assert_array_equal(run(spec, {"s": items, "i": 1})["y"], [0, -1, -2])


@pytest.mark.parametrize("inner", [OPTIONAL, OPTIONAL_SEQUENCE], ids=["tensor", "sequence"])
@pytest.mark.parametrize("given", [{"o": None}, {}, "value"], ids=["None", "left-out", "value"])
def test_optionals_from_the_caller(run, spec_type, sec_type, value_type, inner, given):
    value = value_type(None, 0, inner)
    spec = spec_type(
        sections=[
            sec_type(
                [helper.make_node("Identity", ["o"], ["p"])], ["o"], ["p"], form=CallForm.HOST
            ),
            sec_type(
                [helper.make_node("OptionalHasElement", ["p"], ["y"])],
                ["p"],
                ["y"],
                form=CallForm.VALUES,
            ),
        ],
        values={"o": value, "p": value, "y": value_type((), TensorProto.BOOL)},
        inputs=["o"],
        outputs=["y", "p"],
    )
    x = np.ones(4, np.float32)
    if given == "value":
        given = {"o": x if inner is OPTIONAL else [x]}
    outputs = run(spec, given)
    assert outputs["y"] == (given.get("o") is not None)
    assert (outputs["p"] is None) == (given.get("o") is None)


def test_an_empty_optional_between_sections(run, spec_type, sec_type, value_type):
    kind = helper.make_tensor_type_proto(TensorProto.FLOAT, [4])
    spec = spec_type(
        sections=[
            sec_type(
                [helper.make_node("Optional", [], ["p"], type=kind)],
                [],
                ["p"],
                form=CallForm.VALUES,
            ),
            sec_type(
                [helper.make_node("OptionalHasElement", ["p"], ["y"])],
                ["p"],
                ["y"],
                form=CallForm.VALUES,
            ),
        ],
        values={"p": value_type(None, 0, OPTIONAL), "y": value_type((), TensorProto.BOOL)},
        inputs=[],
        outputs=["y"],
    )
    assert run(spec, {}) == {"y": False}


def test_strings_and_sequences_in_one_section(run, spec_type, sec_type, value_type):
    """A value made by onnxruntime goes into a section that Python has to call."""
    spec = spec_type(
        sections=[
            sec_type(
                [helper.make_node("SequenceConstruct", ["x", "x"], ["s"])],
                ["x"],
                ["s"],
                form=CallForm.VALUES,
            ),
            sec_type(
                [
                    helper.make_node("SequenceAt", ["s", "i"], ["y"]),
                    helper.make_node("StringConcat", ["t", "t"], ["u"]),
                ],
                ["s", "i", "t"],
                ["y", "u"],
                form=CallForm.HOST,
            ),
        ],
        values={
            "x": value_type(),
            "s": value_type(None, 0, SEQUENCE),
            "i": value_type((), TensorProto.INT64),
            "t": value_type((2,), TensorProto.STRING),
            "y": value_type(),
            "u": value_type((2,), TensorProto.STRING),
        },
        inputs=["x", "i", "t"],
        outputs=["y", "u"],
    )
    outputs = run(spec, {"x": np.ones(4, np.float32), "i": 0, "t": ["a", "b"]})
    assert outputs["u"].tolist() == ["aa", "bb"]
    np.testing.assert_array_equal(outputs["y"], np.ones(4))


def test_sizes_that_depend_on_the_data(run, spec_type, sec_type, value_type):
    spec = spec_type(
        sections=[
            sec_type([helper.make_node("NonZero", ["x"], ["h"])], ["x"], ["h"]),
            sec_type([helper.make_node("Neg", ["h"], ["y"])], ["h"], ["y"]),
        ],
        values={
            "x": value_type(),
            "h": value_type((1, None), TensorProto.INT64),
            "y": value_type((1, None), TensorProto.INT64),
        },
        inputs=["x"],
        outputs=["y"],
    )
    y = run(spec, {"x": np.array([0, 1, 0, 2], np.float32)})["y"]
    np.testing.assert_array_equal(y, [[-1, -3]])


def test_defaults_are_used_until_another_value_is_given(spec_type, sec_type, value_type):
    spec = spec_type(
        sections=[sec_type([helper.make_node("Add", ["x", "d"], ["y"])], ["x", "d"], ["y"])],
        values={name: value_type() for name in "xdy"},
        inputs=["x", "d"],
        outputs=["y"],
        defaults={"d": np.full(4, 5, np.float32)},
    )
    one = np.ones(4, np.float32)
    with sambarun.load(spec.program()) as executable:
        for inputs, expected in (({}, 6), ({"d": one}, 2), ({}, 6)):
            y = executable.run({"x": one, **inputs})["y"]
            np.testing.assert_array_equal(y, np.full(4, expected))


def test_an_index_out_of_range_beside_what_is_no_array(spec_type, sec_type, value_type):
    wholes = value_type((2,), TensorProto.INT64)
    spec = spec_type(
        sections=[
            sec_type([helper.make_node("SequenceLength", ["s"], ["n"])], ["s"], ["n"]),
            sec_type([helper.make_node("Gather", ["x", "i"], ["y"])], ["x", "i"], ["y"]),
        ],
        values={
            "s": value_type(None, 0, SEQUENCE),
            "x": value_type(),
            "i": wholes,
            "n": value_type((), TensorProto.INT64),
            "y": value_type((2,)),
        },
        inputs=["s", "x", "i"],
        outputs=["n", "y"],
    )
    given = {"s": [np.zeros(size, np.float32) for size in (2, 3)], "x": ARRAYS[TensorProto.FLOAT]}
    with sambarun.load(spec.program()) as executable:
        assert executable.run(given | {"i": [3, 0]})["n"] == 2
        with pytest.raises(sambarun.RunError, match="Index 7 is out of range: 'i' holds 0 to 7"):
            executable.run(given | {"i": [7, 0]})
