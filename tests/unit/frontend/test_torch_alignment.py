"""CTC losses, and rectifiers whose slopes are random: run and trained as PyTorch computes them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

import numpy as np
import onnx
import pytest
import torch
from near import assert_near, exactly
from torch import nn
from torch.nn import functional
from torch_runs import Lambda

import pef
import sambarun
from sambac import SGD, CompileOptions, compile
from sambac.errors import CompileError
from sambac.frontend.torch.recording.alignment import ctc_loss

_STEPS, _BATCH, _CLASSES, _LABELS = 6, 3, 4, 3


@pytest.mark.parametrize("seed", range(40))
def test_losses_are_those_of_torch(seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)

    def drawn(low: int, high: int, *shape: int) -> torch.Tensor:
        return torch.randint(low, high, shape, generator=generator)

    blank = int(drawn(0, _CLASSES))
    labels, steps = drawn(0, _LABELS + 1, _BATCH), drawn(0, _STEPS + 1, _BATCH)
    targets = (blank + drawn(1, _CLASSES, _BATCH, _LABELS)) % _CLASSES
    if seed % 2:
        targets = torch.cat([row[:size] for row, size in zip(targets, labels, strict=True)])
    lengths = (steps, labels) if seed % 3 else (steps.tolist(), labels.tolist())
    shape = (_STEPS, _BATCH, _CLASSES)
    scores = torch.randn(shape, generator=generator, dtype=torch.float64).mul(3).requires_grad_()
    for reduction in range(3):
        found, expected = (
            loss(scores.log_softmax(-1), targets, *lengths, blank, reduction, seed % 5 > 1)
            for loss in (ctc_loss, torch.ctc_loss)
        )
        torch.testing.assert_close(found, expected)
        if expected.isfinite().all():
            ours, theirs = (
                torch.autograd.grad(loss.sum(), scores)[0] for loss in (found, expected)
            )
            torch.testing.assert_close(ours, theirs)


def test_a_loss_of_one_alone() -> None:
    scores = torch.linspace(-1, 1, 20).reshape(5, 4).log_softmax(-1)
    for lengths in ((torch.tensor(5), torch.tensor(2)), ((5,), (2,))):
        found, expected = (
            loss(scores, torch.tensor([1, 3]), *lengths, 0, 0)
            for loss in (ctc_loss, torch.ctc_loss)
        )
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"blank": 4}, "got 4 for the blank of 4 classes"),
        ({"blank": -1}, "got -1 for the blank of 4 classes"),
        ({"steps": (6, 7)}, "got input_lengths of 7 where there are 6"),
        ({"steps": (6, -1)}, "got input_lengths of -1 where there are 6"),
        ({"steps": (6,)}, "got 1 input_lengths for a batch of 2"),
        (
            {"steps": torch.ones(2), "labels": torch.ones(3)},
            "got 3 target_lengths for a batch of 2",
        ),
        ({"labels": (1, 4)}, "got target_lengths of 4 where there are 3"),
        ({"targets": torch.ones(3), "labels": (2, 2)}, "target_lengths of 4 where there are 3"),
    ],
)
def test_what_is_not_there_is_refused(changes: dict[str, object], says: str) -> None:
    given = {"targets": torch.ones(2, 3), "steps": (6, 6), "labels": (3, 1), "blank": 0} | changes
    scores = torch.zeros(6, 2, 4).log_softmax(-1)
    module = Lambda(lambda x: functional.ctc_loss(x, *given.values()))  # type: ignore[arg-type]
    with pytest.raises(CompileError, match=rf"at test_torch_alignment\.py:\d+: ctc_loss .*{says}"):
        compile(module, inputs=(scores,))
    with pytest.raises(RuntimeError):
        module(scores)


@pytest.mark.parametrize("shape", [(2, 3), (5,)])
def test_lengths_of_what_is_not_there_have_no_loss(shape: tuple[int, ...]) -> None:
    scores, targets = torch.zeros(6, 2, 4).log_softmax(-1), torch.ones(shape, dtype=torch.int64)
    for steps, labels, there in (
        ((6, 7), (1, 1), (True, False)),
        ((-1, 6), (1, 1), (False, True)),
        ((6, 6), (3, 4), (True, False)),
        ((6, 6), (-1, 3), (False, True)),
    ):
        found = ctc_loss(scores, targets, torch.tensor(steps), torch.tensor(labels))
        assert found.isnan().logical_not().tolist() == [*there]


class _Reader(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(5, _CLASSES)
        self.loss = nn.CTCLoss()

    def forward(
        self, x: torch.Tensor, targets: torch.Tensor, steps: torch.Tensor, labels: torch.Tensor
    ) -> torch.Tensor:
        return self.loss(self.layer(x).log_softmax(-1), targets, steps, labels)


def test_lengths_and_targets_of_a_loss_are_inputs() -> None:
    module, x = _Reader(), torch.linspace(-2, 2, _STEPS * 2 * 5).reshape(_STEPS, 2, 5).sin()
    first = (torch.tensor([[1, 2, 1], [3, 3, 0]]), torch.tensor([6, 5]), torch.tensor([3, 2]))
    other = (torch.tensor([[2, 2, 3], [1, 0, 0]]), torch.tensor([5, 6]), torch.tensor([3, 1]))
    options = CompileOptions(train=True, optimizers=(SGD(lr=1.0),))
    program = compile(module, options, inputs=(x, *first))
    with sambarun.load(program) as executable:
        begin = executable.state()
        for given in (first, other):
            names = ("targets", "steps", "labels")
            arrays = {name: one.numpy() for name, one in zip(names, given, strict=True)}
            (loss,) = executable.step({"x": x.numpy(), **arrays}).values()
            found = {name: begin[name] - now for name, now in executable.state().items()}
            executable.write(begin)
            module.double().zero_grad()
            expected = module(exactly(x), *given)
            expected.backward()
            assert_near(loss, expected.detach().numpy())
            for name, parameter in module.named_parameters():
                assert_near(found[name], parameter.grad.numpy(), what=name)


class _Apart(_Reader):
    """A loss that counts, but has no gradient."""

    def forward(self, x: torch.Tensor, *given: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            size = super().forward(x, *given)
        return size * self.layer(x).square().mean()


class _Slopes(_Reader):
    def forward(self, x: torch.Tensor, *given: torch.Tensor) -> torch.Tensor:
        scores = self.layer(x)
        loss = self.loss(scores.log_softmax(-1), *given)
        (slope,) = torch.autograd.grad(loss, scores, create_graph=True)
        return (slope * x[..., :_CLASSES]).sum()


_TWO = (torch.tensor([[1, 2, 1], [3, 3, 0]]), torch.tensor([6, 5]), torch.tensor([3, 2]))


def _stepped(module: nn.Module, x: torch.Tensor) -> tuple[object, dict[str, np.ndarray]]:
    """Return the loss, and what a step of rate 1 takes off the parameters."""
    options = CompileOptions(train=True, optimizers=(SGD(lr=1.0),))
    with sambarun.load(compile(module, options, inputs=(x, *_TWO))) as executable:
        begin = executable.state()
        names = [port.name for port in executable.program.graphs[0].inputs]
        arrays = {name: one.numpy() for name, one in zip(names, (x, *_TWO), strict=False)}
        (loss,) = executable.step(arrays).values()
        return loss, {name: begin[name] - now for name, now in executable.state().items()}


def test_a_loss_without_gradients_has_none() -> None:
    module, x = _Apart(), torch.linspace(-2, 2, _STEPS * 2 * 5).reshape(_STEPS, 2, 5).sin()
    loss, found = _stepped(module, x)
    expected = module.double()(exactly(x), *_TWO)
    expected.backward()
    assert_near(loss, expected.detach())
    for name, parameter in module.named_parameters():
        assert_near(found[name], parameter.grad, what=name)


def test_derivatives_of_derivatives() -> None:
    """PyTorch has none; they are here by how much slopes change."""
    torch.manual_seed(0)
    module, x = _Slopes(), torch.linspace(-2, 2, _STEPS * 2 * 5).reshape(_STEPS, 2, 5).sin()
    loss, found = _stepped(module, x)
    module, x, ends = module.double(), exactly(x), []
    assert_near(loss, module(x, *_TWO).detach())
    towards = {name: torch.randn_like(one) for name, one in module.named_parameters()}
    for step in (-1e-5, 2e-5):
        with torch.no_grad():
            for name, parameter in module.named_parameters():
                parameter += step * towards[name]
        ends.append(module(x, *_TWO).detach())
    change = sum(float((one * torch.tensor(found[name])).sum()) for name, one in towards.items())
    assert change == pytest.approx(float(ends[1] - ends[0]) / 2e-5, rel=1e-4)


def test_loops_in_regions_have_no_derivatives_of_derivatives() -> None:
    """They would be missing from what a step takes off."""

    class Region(_Slopes):
        def forward(self, x: torch.Tensor, *given: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", enabled=False):
                return super().forward(x, *given)

    with pytest.raises(CompileError, match="no gradient flows through Scan"):
        _stepped(Region(), torch.ones(_STEPS, 2, 5))


@pytest.mark.parametrize("steps", [1, 40])
def test_a_loss_is_a_loop_over_its_steps(steps: int) -> None:
    module, x = _Reader(), torch.linspace(-2, 2, steps * 2 * 5).reshape(steps, 2, 5).sin()
    given = (torch.tensor([[1, 2], [3, 0]]), torch.tensor([steps] * 2), torch.tensor([1, 0]))
    options = CompileOptions(train=True, optimizers=(SGD(lr=1.0),))
    program = compile(module, options, inputs=(x, *given))
    assert sum(map(len, _operators(program))) < 300
    names = ("x", "targets", "steps", "labels")
    with sambarun.load(program) as executable:
        begin = executable.state()
        arrays = {name: one.numpy() for name, one in zip(names, (x, *given), strict=True)}
        (loss,) = executable.step(arrays).values()
        found = {name: begin[name] - now for name, now in executable.state().items()}
    exact = module.double()(exactly(x), *given)
    exact.backward()
    assert_near(loss, exact.detach().numpy())
    for name, parameter in module.named_parameters():
        assert_near(found[name], parameter.grad.numpy(), what=name)


def _operators(program: pef.Program) -> list[Sequence[onnx.NodeProto]]:
    graphs = (stored.graph for stored in program.programs)
    contents = (program.segments[graph.segment].content(graph) for graph in graphs)
    return [onnx.load_from_string(content).graph.node for content in contents]


def test_a_loss_of_any_number_of_steps() -> None:
    module = _Reader()
    x, sizes = torch.ones(_STEPS, 2, 5), (torch.tensor([3, 6]), torch.tensor([2, 1]))
    shapes = {"x": {0: torch.export.Dim("steps", max=100)}}
    targets = torch.tensor([[1, 1, 2], [3, 0, 0]])
    others = dict.fromkeys(("targets", "steps", "labels"))
    program = compile(module, inputs=(x, targets, *sizes), dynamic_shapes=shapes | others)
    with sambarun.load(program) as executable:
        for steps in (2, 5, 70):
            x = torch.linspace(-2, 2, steps * 2 * 5).reshape(steps, 2, 5).sin()
            given = (targets, torch.tensor([steps, steps - 1]), torch.tensor([1, 1]))
            arrays = {name: one.numpy() for name, one in zip(others, given, strict=True)}
            (loss,) = executable.run({"x": x.numpy(), **arrays}).values()
            assert_near(loss, copy.deepcopy(module).double()(exactly(x), *given).detach())


class _Selecting(nn.Module):
    """Reads labels of which some are none, as models of speech do."""

    def __init__(self, *, by_index: bool) -> None:
        super().__init__()
        self.layer = nn.Linear(5, _CLASSES)
        self.by_index = by_index

    def forward(self, x: torch.Tensor, labels: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        known = labels >= 0
        targets = labels[known] if self.by_index else labels.masked_select(known)
        scores = self.layer(x).log_softmax(-1)
        return functional.ctc_loss(scores, targets, steps, known.sum(-1), zero_infinity=True)


@pytest.mark.parametrize("by_index", [False, True])
def test_targets_of_a_loss_are_what_a_mask_selects(by_index: bool) -> None:
    module = _Selecting(by_index=by_index)
    x = torch.linspace(-2, 2, 4 * 2 * 5).reshape(4, 2, 5).sin()
    steps, options = torch.tensor([4, 3]), CompileOptions(train=True, optimizers=(SGD(lr=1.0),))
    rows = ([[1, -100, 2], [3, 1, -100]], [[-100] * 3, [2, 3, 1]], [[1, 1, 1], [-1, -1, 2]])
    program = compile(module, options, inputs=(x, torch.tensor(rows[0]), steps))
    with sambarun.load(program) as executable:
        begin = executable.state()
        for labels in map(torch.tensor, rows):
            given = {"x": x, "labels": labels, "steps": steps}
            (loss,) = executable.step({key: one.numpy() for key, one in given.items()}).values()
            found = {name: begin[name] - now for name, now in executable.state().items()}
            executable.write(begin)
            module.double().zero_grad()
            expected = module(exactly(x), labels, steps)
            expected.backward()
            assert_near(loss, expected.detach().numpy())
            for name, parameter in module.named_parameters():
                assert_near(found[name], parameter.grad.numpy(), what=name)


def test_targets_behind_what_a_mask_selects_are_none() -> None:
    class Reader(nn.Module):
        def forward(self, x: torch.Tensor, row: torch.Tensor, sizes: torch.Tensor) -> torch.Tensor:
            return functional.ctc_loss(
                x, row[row > 0], torch.tensor([4, 4]), sizes, reduction="none"
            )

    x, row = torch.zeros(4, 2, 4).log_softmax(-1), torch.tensor([1, 0, 2, 0, 3])
    with sambarun.load(compile(Reader(), inputs=(x, row, torch.tensor([1, 2])))) as executable:
        for sizes, ended in (([1, 2], False), ([1, 3], True)):
            arrays = {"x": x.numpy(), "row": row.numpy(), "sizes": np.array(sizes)}
            (found,) = executable.run(arrays).values()
            assert np.isnan(found).tolist() == [False, ended]


_RELUS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "function": lambda x: functional.rrelu(x, 0.1, 0.4),
    "in place": lambda x: functional.rrelu(x * 2, 0.1, 0.4, inplace=True),
    "module": nn.RReLU().eval(),
}


@pytest.mark.parametrize("name", _RELUS)
def test_random_slopes_are_their_mean_where_nothing_is_drawn(name: str) -> None:
    x = torch.linspace(-3, 3, 12).reshape(3, 4)
    with sambarun.load(compile(Lambda(_RELUS[name]), inputs=(x,))) as executable:
        (found,) = executable.run({executable.program.graphs[0].inputs[0].name: x.numpy()}).values()
    assert_near(found, _RELUS[name](exactly(x)).numpy())


def test_random_slopes_are_drawn_in_training_and_gradients_have_the_same() -> None:
    class Leaky(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.cat((-torch.ones(500), torch.ones(20))))
            self.relu = nn.RReLU(0.1, 0.3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.relu(self.w * x).sum()

    x, options = torch.ones(520), CompileOptions(train=True, optimizers=(SGD(lr=1.0),))
    with sambarun.load(compile(Leaky(), options, inputs=(x,))) as executable:
        begin, steps = executable.state()["w"].astype(np.float64), []
        for _ in range(2):
            (loss,) = executable.step({"x": x.numpy()}).values()
            slopes = begin - executable.state()["w"]
            executable.write({"w": begin.astype("f")})
            assert loss == pytest.approx((begin * slopes).sum(), rel=1e-5)
            assert np.all(np.abs(slopes[:500] - 0.2) < 0.1001)
            assert slopes[500:] == pytest.approx(np.ones(20))
            assert slopes[:500].std() == pytest.approx(0.2 / np.sqrt(12), rel=0.1)
            steps.append(slopes)
        assert np.any(steps[0] != steps[1])
        (found,) = executable.run({"x": x.numpy()}, section_types="FWD").values()
        assert found == pytest.approx(20 - 0.2 * 500, rel=1e-5)
