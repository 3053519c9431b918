"""Reading and writing the memory of an executable between runs, by the names of symbols."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
import torch

import pef
import sambac
import sambarun
from sambac import CompileOptions

RNG = np.random.default_rng(0)
X, K = RNG.standard_normal((6, 4)).astype("f"), RNG.standard_normal((6, 3)).astype("f")
BATCH = {"x": X, "k": K}


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Linear(4, 5)
        self.b = torch.nn.Linear(5, 3)

    def forward(self, x: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(((self.b(torch.tanh(self.a(x))) - k) ** 2).mean())


def net() -> Net:
    torch.manual_seed(0)
    return Net()


def compiled(**options: Any) -> pef.Program:
    inputs = (torch.from_numpy(X), torch.from_numpy(K))
    return sambac.compile(net(), CompileOptions(**options), inputs=inputs)


@pytest.fixture(scope="module")
def training() -> pef.Program:
    return compiled(train=True, optimizers=(sambac.SGD(lr=0.5),), input_grads=("x",))


@pytest.fixture(scope="module")
def inference() -> pef.Program:
    return compiled()


def gradients() -> dict[str, np.ndarray]:
    module, x = net(), torch.from_numpy(X).requires_grad_()
    module(x, torch.from_numpy(K)).backward()
    found = {**{name: p.grad for name, p in module.named_parameters()}, "x": x.grad}
    return {f"{name}__grad": g.numpy() for name, g in found.items() if g is not None}


@pytest.mark.parametrize(
    ("level", "accumulate"), [("O0", False), ("O1", True), ("O3", True), ("O3", False)]
)
def test_gradients_are_there_after_a_whole_step(level: str, accumulate: bool) -> None:
    program = compiled(
        level=level,
        train=True,
        optimizers=(sambac.AdamW(lr=0.1),),
        max_grad_norm=0.01,
        accumulate=accumulate,
        input_grads=("x",),
    )
    executable = sambarun.load(program)
    executable.step(BATCH)
    wanted = gradients()
    found = executable.read(*wanted)
    weights = [wanted[name] for name in wanted if name != "x__grad"]
    norm = np.sqrt(sum(float((g.astype("d") ** 2).sum()) for g in weights))
    for name, array in wanted.items():
        scale = 1.0 if name == "x__grad" else 0.01 / norm
        np.testing.assert_allclose(found[name], array * scale, rtol=1e-3, atol=1e-7, err_msg=name)


def test_gradients_written_between_the_passes_are_what_the_optimizer_reads(
    training: pef.Program,
) -> None:
    executable = sambarun.load(training)
    executable.run(BATCH, section_types=("FWD", "BCKWD"), train=True)
    before = executable.state()
    given = {f"{name}__grad": np.full(p.shape, 2, "f") for name, p in net().named_parameters()}
    executable.write({name: array for name, array in given.items() if name != "a.bias__grad"})
    executable.run({}, section_types="OPT")
    after = executable.state()
    moved = {name: before[name] - after[name] for name, _ in net().named_parameters()}
    for name in ("a.weight", "b.weight", "b.bias"):
        np.testing.assert_allclose(moved[name], 1.0, rtol=1e-5)
    np.testing.assert_allclose(moved["a.bias"], 0.5 * gradients()["a.bias__grad"], rtol=1e-4)


def test_parameters_are_written(training: pef.Program) -> None:
    executable = sambarun.load(training)
    weight = RNG.standard_normal((5, 4)).astype("f")
    executable.write({"a.weight": weight})
    np.testing.assert_array_equal(executable.state()["a.weight"], weight)
    module = net()
    module.a.weight.data = torch.from_numpy(weight)
    wanted = module(torch.from_numpy(X), torch.from_numpy(K)).item()
    (loss,) = executable.run(BATCH, section_types="FWD").values()
    np.testing.assert_allclose(loss, wanted, rtol=1e-5)


def test_an_input_written_once_serves_later_runs(inference: pef.Program) -> None:
    executable = sambarun.load(inference)
    given = X.copy()
    executable.write({"x": given})
    given[:] = 0  # a copy was taken
    (first,) = executable.run({"k": K}).values()
    (other,) = executable.run({"x": 2 * X, "k": K}).values()
    (again,) = executable.run({"k": K}).values()
    (clone,) = executable.clone().run({"k": K}).values()
    assert first == again == clone != other
    np.testing.assert_array_equal(executable.read("x")["x"], X)
    executable.write({"x": 2 * X})
    (rewritten,) = executable.run({"k": K}).values()
    assert rewritten == other


def test_an_input_filled_in_place_serves_later_runs(inference: pef.Program) -> None:
    executable = sambarun.load(inference)
    (wanted,) = executable.run(BATCH).values()
    x, k = executable.input_buffer("x"), executable.input_buffer("k")
    x[:], k[:] = X, K
    (first,) = executable.run({}).values()
    (given,) = executable.run({"x": 2 * X}).values()
    np.testing.assert_array_equal(x, X)
    (again,) = executable.run({}).values()
    assert first == again == wanted != given
    x *= 2
    (other,) = executable.run({}).values()
    executable.write({"x": X})
    np.testing.assert_array_equal(x, X)
    assert other == given
    (clone,) = executable.clone().run({}).values()
    assert clone == wanted


def test_runs_that_are_given_nothing_read_what_is_there_now(training: pef.Program) -> None:
    executable, other = sambarun.load(training), sambarun.load(training)
    executable.input_buffer("x")[:], executable.input_buffer("k")[:] = X, K
    for scale in (1, 1, 2, 2, 1):
        executable.input_buffer("x")[:] = scale * X
        for part in ("FWD", None):
            given = {"x": scale * X, "k": K}
            found, wanted = (
                one.run(feeds, section_types=part)
                for one, feeds in ((executable, {}), (other, given))
            )
            np.testing.assert_equal(found, wanted)
    executable.write({"x": 3 * X})
    for given in ({}, {"k": 2 * K}, {}):
        found, wanted = executable.run(given), other.run({"x": 3 * X, "k": K, **given})
        np.testing.assert_equal(found, wanted)


def test_what_is_written_counts_after_a_run_with_the_default() -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (float[2] x, float[2] d = {1, 2}) => (float[2] y) { y = Add(x, d) }
    """)
    executable = sambarun.load(sambac.compile(model))
    executable.input_buffer("x")[:] = 3
    for wanted in ([4, 5], [4, 5]):
        np.testing.assert_array_equal(executable.run({})["y"], wanted)
    executable.write({"d": np.float32([5, 6])})
    np.testing.assert_array_equal(executable.run({})["y"], [8, 9])


def test_sections_in_any_order_read_what_is_there_now(training: pef.Program) -> None:
    quick, slow = sambarun.load(training), sambarun.load(training)
    quick.input_buffer("x")[:], quick.input_buffer("k")[:] = X, K
    kinds = ("FWD", "BCKWD", "OPT", None)
    parts = [sambarun.Selection(kind and (kind,)) for kind in kinds]
    parts.append(sambarun.Selection(("FWD",), train=True))

    def outcome(one: sambarun.Executable, part: sambarun.Selection) -> object:
        try:
            return one.run({}, part)
        except sambarun.RunError as error:
            return str(error)

    refused = 0
    for number in np.random.default_rng(0).integers(len(parts), size=80):
        slow.write({"x": X, "k": K})  # after which it looks at everything anew
        found, wanted = (outcome(one, parts[number]) for one in (quick, slow))
        np.testing.assert_equal(found, wanted)
        refused += isinstance(wanted, str)
    assert 0 < refused < 40


def test_only_inputs_of_a_fixed_size_have_a_buffer(training: pef.Program) -> None:
    executable = sambarun.load(training)
    with pytest.raises(sambarun.RunError, match=r"no symbol 'xx' \(did you mean 'x'"):
        executable.input_buffer("xx")
    with pytest.raises(sambarun.RunError, match=r"'a.weight' has no memory of its own"):
        executable.input_buffer("a.weight")


def test_an_input_that_was_only_given_does_not_stay(inference: pef.Program) -> None:
    executable = sambarun.load(inference)
    executable.run(BATCH)
    with pytest.raises(sambarun.RunError, match="Input 'x' is missing"):
        executable.run({"k": K})


def test_constants_are_read_but_not_written(inference: pef.Program) -> None:
    executable = sambarun.load(inference)
    index = next(i for section in inference.sections for i in section.weights)
    name = inference.symbols[index].name
    (found,) = executable.read(name).values()
    assert found.size * found.itemsize == inference.symbols[index].size
    with pytest.raises(sambarun.RunError, match=r"constant of the program"):
        executable.write({name: found})


def test_all_that_is_wrong_is_told_at_once_and_nothing_is_written(training: pef.Program) -> None:
    executable = sambarun.load(training)
    before = executable.state()
    with pytest.raises(sambarun.RunError) as caught:
        executable.write(
            {
                "a.weight": np.zeros((5, 4), "f"),
                "a.bias": np.zeros(4, "f"),
                "b.bias": np.zeros(3, "d"),
                "b.wait": np.zeros(3, "f"),
            }
        )
    lines = str(caught.value).splitlines()
    assert len(lines) == 3
    assert all(any(word in line for line in lines) for word in ("[4]", "float64", "b.weight"))
    np.testing.assert_array_equal(executable.state()["a.weight"], before["a.weight"])
