"""Errors in what the caller passes: all at once, each with what came and what was expected."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

import sambarun


@pytest.fixture
def executable(spec_type, sec_type, value_type):
    node = helper.make_node
    nodes = [
        node("Add", ["image", "mask"], ["a"]),
        node("Cast", ["half"], ["c"], to=TensorProto.FLOAT),
        node("Add", ["a", "c"], ["y"]),
    ]
    names = ["image", "mask", "half"]
    spec = spec_type(
        sections=[sec_type(nodes, names, ["y"])],
        values={
            "image": value_type(("n", 3)),
            "mask": value_type(("n", 1)),
            "half": value_type((3,), TensorProto.BFLOAT16),
            "y": value_type(("n", 3)),
        },
        inputs=names,
        outputs=["y"],
    )
    with sambarun.load(spec.program()) as loaded:
        yield loaded


@pytest.fixture
def good():
    return {
        "image": np.ones((2, 3), np.float32),
        "mask": np.ones((2, 1), np.float32),
        "half": np.ones(3, ml_dtypes.bfloat16),
    }


def problems(executable, inputs):
    with pytest.raises(sambarun.RunError) as caught:
        executable.run(inputs)
    return str(caught.value).splitlines()


def test_good_inputs(executable, good):
    np.testing.assert_array_equal(executable.run(good)["y"], np.full((2, 3), 3))


def test_all_missing_inputs_are_listed(executable):
    assert problems(executable, {}) == [
        "Input 'image' is missing: float32[n, 3] was expected.",
        "Input 'mask' is missing: float32[n, 1] was expected.",
        "Input 'half' is missing: bfloat16[3] was expected.",
    ]


def test_an_input_of_an_earlier_run_is_not_taken_again(executable, good):
    executable.run(good)
    del good["mask"]
    assert problems(executable, good) == ["Input 'mask' is missing: float32[n, 1] was expected."]


def test_all_wrong_inputs_are_listed_at_once(executable, good):
    good["imgae"] = good.pop("image")
    good["mask"] = good["mask"].astype(np.float64)
    good["half"] = np.ones((3, 1), ml_dtypes.bfloat16)
    assert problems(executable, good) == [
        "Input 'mask' is float64[2, 1]; float32[n, 1] was expected.",
        "Input 'half' has shape [3, 1]; bfloat16[3] was expected.",
        "There is no input 'imgae' (did you mean 'image'?). The inputs are image, mask, half.",
    ]


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("image", np.ones((2, 4), np.float32), "has shape [2, 4]; float32[n, 3] was expected."),
        ("image", np.ones(3, np.float32), "has shape [3]; float32[n, 3] was expected."),
        ("half", np.ones(3, np.float16), "is float16[3]; bfloat16[3] was expected."),
        ("half", [1.0, 2.0], "has shape [2]; bfloat16[3] was expected."),
        ("image", "text", "is <U4[]; float32[n, 3] was expected."),
        ("image", None, "is object[]; float32[n, 3] was expected."),
    ],
)
def test_wrong_shapes_and_types(executable, good, name, value, message):
    assert problems(executable, {**good, name: value}) == [f"Input '{name}' {message}"]


def test_ragged_lists(executable, good):
    (problem,) = problems(executable, {**good, "image": [[1.0, 2.0, 3.0], [1.0]]})
    assert problem.startswith("Input 'image' is no array of float32[n, 3]: ")


def test_masks_are_not_dropped(executable, good):
    masked = np.ma.masked_equal(good["image"], good["image"][0, 0])
    (problem,) = problems(executable, {**good, "image": masked})
    assert problem.endswith("some of its elements are masked; give what they are with 'filled'.")
    plain = np.ma.array(good["image"])
    np.testing.assert_array_equal(executable.run({**good, "image": plain})["y"], np.full((2, 3), 3))


def test_equal_dimension_names_are_equal_sizes(executable, good):
    good["mask"] = np.ones((5, 1), np.float32)
    assert problems(executable, good) == [
        "Dimension 'n' is 2 in input 'image' and 5 in 'mask'; it must be the same."
    ]


def test_raw_bits_lists_and_numbers_are_taken(executable, good):
    bits = np.ones(3, ml_dtypes.bfloat16).view(np.uint16)
    expected = np.full((2, 3), 3)
    for half in (bits, [1.0, 1.0, 1.0], [1, 1, 1]):
        np.testing.assert_array_equal(executable.run({**good, "half": half})["y"], expected)


def test_objects_that_are_not_sequences(spec_type, sec_type, value_type):
    inner = helper.make_tensor_type_proto(TensorProto.FLOAT, None)
    kind = helper.make_sequence_type_proto(inner)
    spec = spec_type(
        sections=[
            sec_type([helper.make_node("SequenceLength", ["s"], ["y"])], ["s"], ["y"]),
        ],
        values={"s": value_type(None, 0, kind), "y": value_type((), TensorProto.INT64)},
        inputs=["s"],
        outputs=["y"],
    )
    with sambarun.load(spec.program()) as executable:
        assert executable.run({"s": [np.ones(2, np.float32)]}) == {"y": 1}
        assert problems(executable, {"s": np.ones(2, np.float32)}) == [
            "Input 's' is a ndarray; seq(tensor(float)) was expected."
        ]
        assert problems(executable, {"s": [np.ones(2)]}) == [
            "Input 's' holds float64[2]; seq(tensor(float)) was expected."
        ]


def test_a_computed_symbol_cannot_be_fed_to_the_section_that_computes_it(executable, good):
    assert problems(executable, {**good, "y": np.ones((2, 3), np.float32)}) == [
        "'y' cannot be given: section 0 's0', which is to run, computes it."
    ]


def test_inputs_of_no_fixed_size_have_no_buffer(executable):
    with pytest.raises(sambarun.RunError, match="'image' has no memory of its own"):
        executable.input_buffer("image")
    half = executable.input_buffer("half")
    assert (half.dtype, half.shape) == (np.dtype(ml_dtypes.bfloat16), (3,))


def test_inputs_written_in_another_size_are_read_in_that_size(executable, good):
    for size in (2, 2, 3, 1):
        sized = {
            name: np.ones((size, good[name].shape[1]), np.float32) for name in ("image", "mask")
        }
        executable.write({**sized, "half": good["half"]})
        for _ in range(3):
            np.testing.assert_array_equal(executable.run({})["y"], np.full((size, 3), 3))


@pytest.mark.parametrize(
    ("value", "number", "kept"),
    [
        ([2**31 - 1], TensorProto.INT32, True),
        ([2**40], TensorProto.INT32, False),
        ([0, 255], TensorProto.UINT8, True),
        ([-1], TensorProto.UINT8, False),
        ([256], TensorProto.UINT8, False),
        ([1e38, np.inf, np.nan], TensorProto.FLOAT, True),
        ([1e39], TensorProto.FLOAT, False),
        ([70000], TensorProto.FLOAT16, False),
        ([0.1], TensorProto.BFLOAT16, True),
    ],
)
def test_numbers_of_a_list_neither_wrap_around_nor_become_infinite(
    spec_type, sec_type, value_type, value, number, kept
):
    node = helper.make_node("Identity", ["x"], ["y"])
    shape = (len(value),)
    spec = spec_type(
        sections=[sec_type([node], ["x"], ["y"])],
        values={"x": value_type(shape, number), "y": value_type(shape, number)},
        inputs=["x"],
        outputs=["y"],
    )
    with sambarun.load(spec.program()) as loaded:
        if kept:
            found = loaded.run({"x": value})["y"].astype(np.float64)
            np.testing.assert_allclose(found, value, rtol=1e-2)
        else:
            (problem,) = problems(loaded, {"x": value})
            assert problem.startswith("Input 'x' is ")
