"""Packed sequences infer and train as in PyTorch, whose rows they have in its order."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest
import torch
from near import assert_near, exactly
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import PackedSequence, pack_padded_sequence, pad_packed_sequence

import sambac
import sambarun
from sambac.errors import CompileError

_X = torch.randn(3, 4, 2, generator=torch.Generator().manual_seed(0))
_LENGTHS = torch.tensor([2, 4, 1])

Arguments = tuple[Tensor, Tensor]


class _Classifier(nn.Module):
    """What is left of each sequence after its last step, in both directions."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.LSTM(2, 3, 2, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True, enforce_sorted=False)
        states, (last, cell) = self.layers(packed)
        padded, _ = pad_packed_sequence(states, batch_first=True, padding_value=-1, total_length=5)
        return padded.square().mean() + (last[-1] + 2 * last[-2] * cell[0]).mean()


class _Chain(nn.Module):
    """Two layers, with rows between that are computed like any others."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.GRU(2, 3), nn.RNN(3, 2, bias=False, bidirectional=True)
        self.start = nn.Parameter(torch.ones(1, 1, 3))

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        x = x.transpose(0, 1)
        packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
        states, _ = self.first(packed, self.start.repeat(1, 3, 1))
        between = PackedSequence(states.data.square(), *states[1:])
        states, last = self.second(between)
        return cross_entropy(states.data, (states.data[:, 0] > 0).long()) + last.square().mean()


class _Known(nn.Module):
    """Lengths that the code has, of which none has all steps."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.RNN(2, 3, nonlinearity="relu", batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(x + 0 * lengths.sum(), [3, 2, 2], batch_first=True)
        padded, lengths = pad_packed_sequence(self.layers(packed)[0], batch_first=True)
        return (padded.sum((1, 2)) / lengths).square().mean() * padded.shape[1]


class _Longest(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.GRU(2, 3, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return pad_packed_sequence(self.layers(packed)[0], batch_first=True)[0].mean((1, 2))


class _Written(nn.Module):
    """Lengths, and what is packed, that the module writes to once it is packed."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.GRU(2, 3, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        x, lengths = x * 2, lengths.sort(descending=True)[0]
        packed = pack_padded_sequence(x, lengths, batch_first=True)
        x.mul_(3)
        lengths.fill_(1)
        _, found = pad_packed_sequence(packed, total_length=4)
        found += 2
        padded, found = pad_packed_sequence(self.layers(packed)[0], total_length=4)
        return (padded.square().sum((0, 2)) * found).sum() + x.sum()


class _Targets(nn.Module):
    """What is predicted of each step, and what is expected, packed apart."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.LSTM(2, 2, batch_first=True)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        def packed(given: Tensor) -> PackedSequence:
            return pack_padded_sequence(given, lengths.cpu(), True, enforce_sorted=False)

        found = self.layers(packed(x))[0].data
        return cross_entropy(found, packed((x[..., 0] > 0).long()).data)


def _exact(module: nn.Module, x: Tensor, lengths: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
    exact = exactly(module)
    result = exact(exactly(x), lengths)
    result.sum().backward()
    return result.detach(), {name: one.grad for name, one in exact.named_parameters()}


@pytest.mark.parametrize("kind", [_Classifier, _Chain, _Known, _Written, _Targets])
def test_step(kind: type[nn.Module], tmp_path: Path) -> None:
    torch.manual_seed(1)
    module, path = kind(), tmp_path / "step.pef"
    expected, gradients = _exact(module, _X, _LENGTHS)
    options = sambac.CompileOptions(train=True, optimizers=(sambac.SGD(lr=1.0),))
    sambac.compile(module, options, inputs=(_X, _LENGTHS)).save(path)
    with sambarun.load(path) as executable:
        (loss,) = executable.step({"x": _X.numpy(), "lengths": _LENGTHS.numpy()}).values()
        after = executable.read(*gradients)
    assert_near(loss, expected)
    for name, parameter in module.named_parameters():
        size = float(parameter.detach().abs().max())
        assert_near(parameter.detach().numpy() - after[name], gradients[name], size=size, what=name)


def test_what_is_sorted_twice_is_two_tensors() -> None:
    """Sorted lengths are known again, but any other tensor may be sorted, and written to."""

    class Sorting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.tensor([3.0, 1, 2]))

        def forward(self, x: Tensor) -> Tensor:
            scores = self.w * x
            with torch.no_grad():
                weights = torch.sort(scores, descending=True)[0]
            found, _ = torch.sort(scores, descending=True)
            weights += 1
            return (found * weights).sum()

    module, x = Sorting(), torch.tensor([1.0, 2, 4])
    options = sambac.CompileOptions(train=True, optimizers=(sambac.SGD(lr=1.0),))
    with sambarun.load(sambac.compile(module, options, inputs=(x,))) as executable:
        (loss,) = executable.step({"x": x.numpy()}).values()
        taken = module.w.detach().numpy() - executable.read("w")["w"]
    exact = exactly(module)
    expected = exact(exactly(x))
    expected.backward()
    assert_near(loss, expected.detach())
    assert_near(taken, exact.w.grad)


def test_other_lengths_at_inference() -> None:
    """Lengths are an input like any other, and what stands behind a sequence counts for nothing."""
    module = _Classifier()
    program = sambac.compile(module, inputs=(_X, _LENGTHS))
    x, lengths = _X.clone(), torch.tensor([4, 3, 3])
    x[1:, 3] = torch.nan
    with sambarun.load(program) as executable:
        (found,) = executable.run({"x": x.numpy(), "lengths": lengths.numpy()}).values()
    assert_near(found, _exact(module, x, lengths)[0])


def test_open_sizes() -> None:
    module, sizes = _Longest(), {0: torch.export.Dim("batch"), 1: torch.export.Dim("steps", max=9)}
    shapes = {"x": sizes, "lengths": {0: sizes[0]}}
    with pytest.warns(UserWarning, match="to the longest one"):
        program = sambac.compile(module, inputs=(_X, _LENGTHS), dynamic_shapes=shapes)
    x, lengths = torch.linspace(-1, 1, 60).reshape(5, 6, 2), torch.tensor([1, 6, 2, 3, 3])
    with sambarun.load(program) as executable:
        (found,) = executable.run({"x": x.numpy(), "lengths": lengths.numpy()}).values()
    assert_near(found, _exact(module, x, lengths)[0])


def test_the_longest_is_told() -> None:
    """How many steps padding leaves depends on lengths: the program has all of them."""
    module = _Longest()
    with pytest.warns(
        UserWarning, match="to the longest one at test_torch_packed.py:.* all 4 steps"
    ):
        program = sambac.compile(module, inputs=(_X, _LENGTHS))
    with sambarun.load(program) as executable:
        (found,) = executable.run({"x": _X.numpy(), "lengths": _LENGTHS.numpy()}).values()
    assert_near(found, _exact(module, _X, _LENGTHS)[0])
    with pytest.raises(CompileError, match="the longest of the example inputs has 2; give"):
        sambac.compile(module, inputs=(_X, torch.tensor([2, 1, 2])))


def test_padding_is_not_assumed_where_a_length_is_given() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        sambac.compile(_Classifier(), inputs=(_X, torch.tensor([2, 3, 1])))


def test_projections_are_refused() -> None:
    module = _Classifier()
    module.layers = nn.LSTM(2, 3, 2, batch_first=True, bidirectional=True, proj_size=1)
    with pytest.raises(CompileError, match="LSTM with projections"):
        sambac.compile(module, inputs=(_X, _LENGTHS))
