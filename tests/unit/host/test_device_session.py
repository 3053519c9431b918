"""A device session under the names of an API that nobody else has: samba is not needed for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import onnx
import pytest
import torch
from training_programs import COLUMNS, ROWS, Reference, batches, linear_regression

import pef
import sambac
import sambarun
from sambahost.arrays import holds
from sambahost.errors import HostError, NoStartError
from sambahost.model_session import ModelSession

NAMES = {"net.x": "x", "net.y": "y", "net.w": "w", "net.loss": "loss"}
"""What the API calls symbols of the program."""


@pytest.fixture
def session() -> Iterator[ModelSession]:
    program = linear_regression().program()
    numbers = {symbol.name: index for index, symbol in enumerate(program.symbols)}
    ours = [pef.Alias(name, numbers[symbol], "ours") for name, symbol in NAMES.items()]
    theirs = [pef.Alias("their.w", numbers["w"], "theirs")]
    named = replace(program, aliases=(*program.aliases, *ours, *theirs))
    made = ModelSession(sambarun.load(named), "ours", unused=["net.mask"])
    yield made
    made.close()


def _hold(session: ModelSession, seed: int = 11) -> dict[str, torch.Tensor]:
    (batch,) = batches(1, seed)
    given = {f"net.{name}": torch.from_numpy(batch[name]) for name in ("x", "y")}
    session.hold(given)
    return given


def test_names_are_those_of_one_api(session: ModelSession) -> None:
    assert session.symbols == NAMES
    assert session.weights() == ["net.w", "b"]
    assert session.described("net.w") == session.described("w")
    assert session.described("net.w") == (torch.float32, (COLUMNS, 1))
    assert session.described("net.elsewhere") is None


def test_a_step_is_that_of_the_reference(session: ModelSession) -> None:
    reference = Reference.of(linear_regression())
    (batch,) = batches(1)
    _hold(session)
    results = session.run(sambarun.Selection(train=True), {})
    expected = reference.step(batch["x"].astype("float64"), batch["y"].astype("float64"))
    assert session.result("net.loss", results).item() == pytest.approx(expected, rel=1e-5)
    assert session.read("net.w").numpy() == pytest.approx(reference.w, rel=1e-5)


def test_inputs_stay_and_are_the_device_s_own(session: ModelSession) -> None:
    given = _hold(session)
    forward = sambarun.Selection(section_types=("FWD",), train=False)
    first = session.result("net.loss", session.run(forward, {}))
    given["net.x"].zero_()
    assert torch.equal(session.result("net.loss", session.run(forward, {})), first)
    assert session.read("net.x").abs().sum() > 0


def test_what_is_read_is_a_copy_and_what_is_written_lasts(session: ModelSession) -> None:
    session.read("net.w").zero_()
    assert session.read("net.w").abs().sum() > 0
    session.write("net.w", torch.ones(COLUMNS, 1, dtype=torch.float64))
    assert torch.equal(session.read("w"), torch.ones(COLUMNS, 1))


def test_the_backward_pass_starts_from_ones_until_told(session: ModelSession) -> None:
    assert session.seeds == {"loss": "loss__grad", "net.loss": "loss__grad"}
    assert session.read("net.loss__grad").item() == 1
    session.start_from({"net.loss__grad": torch.tensor(3.0)})
    assert session.read("net.loss__grad").item() == 3
    session.start_from({})
    assert session.read("net.loss__grad").item() == 1


def test_a_profile_gives_what_a_run_gives(session: ModelSession) -> None:
    _hold(session)
    forward = sambarun.Selection(section_types=("FWD",), train=False)
    found = session.profile(forward, {})
    assert found.spans
    assert found.outputs.keys() == session.run(forward, {}).keys()


def test_inputs_that_the_program_does_not_read_are_left(session: ModelSession) -> None:
    session.hold({"net.mask": torch.ones(1)})
    with pytest.raises(HostError, match=r"there is no input 'net.z'; the inputs are 'net.x', "):
        session.hold({"net.z": torch.ones(1)})


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("net.v", torch.ones(1), r"^the PEF has no tensor 'net\.v' \(did you mean 'net\.[wy]'\?\)"),
        ("net.w", torch.ones(2), r"^'net\.w' is float32\[3, 1\], it is given float32\[2\]"),
        ("net.w", torch.full((3, 1), 1j), r"^'net\.w' is float32\[3, 1\], it is given complex64"),
        ("y__grad", torch.ones(1), r"^the PEF has no gradient of 'y': it was compiled for infe"),
    ],
    ids=["unknown", "shape", "type", "no gradient"],
)
def test_what_does_not_fit_is_told(
    session: ModelSession, name: str, value: torch.Tensor, says: str
) -> None:
    with pytest.raises(HostError, match=says):
        session.write(name, value)


def test_values_that_are_not_there_are_refused(session: ModelSession) -> None:
    with pytest.raises(HostError, match=r"'net\.x' is given a tensor without values, on the meta"):
        session.hold({"net.x": torch.empty(ROWS, COLUMNS, device="meta")})


def test_an_output_that_nothing_starts_from_is_told() -> None:
    """The class of the error lets an API add its cure."""
    info = onnx.helper.make_tensor_value_info
    x, y = (info(name, onnx.TensorProto.FLOAT, [2]) for name in ("x", "y"))
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    session = ModelSession(sambarun.load(sambac.compile(model)), "ours")
    (output,) = (port.name for port in session.program.graphs[0].outputs)
    assert session.seeds == {}
    with pytest.raises(NoStartError, match=rf"does not start from '{output}', so it has no grad"):
        session.read(f"{output}__grad")
    session.close()


def test_sections_that_are_not_there_are_told(session: ModelSession) -> None:
    with pytest.raises(HostError, match="REDUCE"):
        session.prepare([sambarun.Selection(section_types=("REDUCE",))])


def test_a_forward_pass_is_kept_for_its_backward_pass(session: ModelSession) -> None:
    forward = sambarun.Selection(("FWD",), train=True)
    backward = sambarun.Selection(("BCKWD",))
    with pytest.raises(HostError, match="has no value now: run what computes it first"):
        session.kept()
    expected, kept = {}, {}
    for seed in (1, 2, 3):
        _hold(session, seed)
        session.run(forward, {})
        kept[seed] = session.kept()
        session.run(backward, {})
        expected[seed] = session.read("net.w__grad")
    for seed in (2, 1, 3):
        _hold(session, seed)
        with session.restored(kept[seed]):
            session.run(backward, {})
        assert torch.equal(session.read("net.w__grad"), expected[seed])


@pytest.mark.parametrize(
    ("dtype", "value", "kept"),
    [
        (torch.int32, torch.tensor([2**31 - 1]), True),
        (torch.int32, torch.tensor([2**40]), False),
        (torch.uint8, torch.tensor([-1]), False),
        (torch.int64, torch.tensor([2.0]), True),
        (torch.int64, torch.tensor([1.5]), False),
        (torch.int64, torch.tensor([torch.nan]), False),
        (torch.bool, torch.tensor([2]), False),
        (torch.float32, torch.tensor([0.1, torch.inf, torch.nan], dtype=torch.float64), True),
        (torch.float32, torch.tensor([1e300], dtype=torch.float64), False),
        (torch.float16, torch.tensor([70000]), False),
        (torch.float8_e4m3fn, torch.tensor([1000.0]), False),
        (torch.float32, torch.tensor([1 + 0j]), False),
    ],
)
def test_a_type_holds_what_neither_wraps_around_nor_becomes_infinite(
    dtype: torch.dtype, value: torch.Tensor, kept: bool
) -> None:
    assert holds(dtype, value) is kept


def _ways(session: ModelSession) -> dict[str, Callable[[torch.Tensor], object]]:
    """How a tensor gets to the device: as the input of a run, or written there."""
    return {
        "hold": lambda value: session.hold({"net.x": value}),
        "write": lambda value: session.write("net.x", value),
    }


@pytest.mark.parametrize("way", ["hold", "write"])
def test_a_minus_that_is_a_mark_arrives(session: ModelSession, way: str) -> None:
    value = _hold(session)["net.x"]
    for given in (value * 2, torch._neg_view(value), torch._neg_view(value.t().contiguous().t())):
        _ways(session)[way](given)
        assert torch.equal(session.read("net.x"), given)


@pytest.mark.filterwarnings("ignore:.*nested tensors:UserWarning")
@pytest.mark.parametrize("way", ["hold", "write"])
@pytest.mark.parametrize(
    ("odd", "said"),
    [
        (torch.Tensor.to_sparse, r"sparse_coo .* give tensor\.to_dense"),
        (torch.Tensor.to_mkldnn, r"mkldnn .* give tensor\.to_dense"),
        (lambda x: torch.nested.nested_tensor([*x]), r"nested .* give tensor\.to_padded_tensor"),
    ],
)
def test_layouts_without_a_number_for_each_element_are_refused(
    session: ModelSession, way: str, odd: Callable[[torch.Tensor], torch.Tensor], said: str
) -> None:
    value = _hold(session)["net.x"]
    with pytest.raises(HostError, match=said):
        _ways(session)[way](odd(value))
    assert torch.equal(session.read("net.x"), value)


def test_large_results_stay_in_memory() -> None:
    """A program reads results by name after the run, whatever it did with those it got."""
    info = onnx.helper.make_tensor_value_info
    x, y = (info(name, onnx.TensorProto.FLOAT, [512, 512]) for name in ("x", "y"))
    graph = onnx.helper.make_graph([onnx.helper.make_node("Neg", ["x"], ["y"])], "g", [x], [y])
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
    session = ModelSession(sambarun.load(sambac.compile(model)), "ours")
    session.hold({"x": torch.ones(512, 512)})
    result = session.result("y", session.run(sambarun.Selection(), {}))
    assert torch.equal(result, -torch.ones(512, 512))
    result.zero_()
    assert torch.equal(session.read("y"), -torch.ones(512, 512))
    session.close()
