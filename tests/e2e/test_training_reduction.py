"""Processes that train together: gradients are reduced between BCKWD and what uses them."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import cache

import numpy as np
import onnx
import onnx.parser
import pytest
import torch
from torch import nn
from training_run import feeds

import sambac
import sambarun
from benchmarks.models import training as models
from pef import SectionType, SymbolKind
from pef.rules import check_program
from sambac.verify import check_plans


class Averaging:
    """Reducers of executables in threads of one process: each gives the mean over all of them."""

    def __init__(self, count):
        self._barrier = threading.Barrier(count)
        self._buffers = [{} for _ in range(count)]
        self.names = [[] for _ in range(count)]

    def of(self, rank):
        return _Reducer(self, rank)

    def meet(self, rank, name, buffer):
        self._buffers[rank][name] = buffer.copy()
        self._barrier.wait(60)
        mean = sum(found[name] for found in self._buffers) / len(self._buffers)
        self._barrier.wait(60)
        np.copyto(buffer, mean)


class _Reducer:
    def __init__(self, group, rank):
        self._group = group
        self._rank = rank

    def start(self, name, buffer):
        self._group.names[self._rank].append(name)
        return _Handle(lambda: self._group.meet(self._rank, name, buffer))


class _Handle:
    def __init__(self, wait):
        self.wait = wait


@cache
def compiled(batch, **options):
    torch.manual_seed(0)
    trainee = models.mlp(batch=batch)
    wish = sambac.CompileOptions(
        train=True, **{"optimizers": (sambac.AdamW(lr=1e-2),), "data_parallel": True, **options}
    )
    return sambac.compile(trainee.module, wish, inputs=trainee.batch(0))


def trained_in_halves(program, batches, reducers, link):
    """Return the states of two executables that train together, each on half of every batch."""
    found = [None, None]

    def work(rank):
        with sambarun.load(program, reducer=reducers.of(rank), threads=1, link=link) as mine:
            for batch in batches:
                half = len(batch[0]) // 2
                rows = tuple(item[rank * half :][:half] for item in batch)
                mine.step(feeds(program, rows))
            found[rank] = mine.state()

    threads = [threading.Thread(target=work, args=(rank,)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.parametrize(
    ("options", "link"),
    [
        ({}, True),
        ({"max_grad_norm": 0.1}, True),
        ({"max_grad_norm": 0.1, "accumulate": True}, False),
        ({"level": "O0"}, False),
    ],
    ids=["linked", "clipped", "accumulating", "O0"],
)
def test_two_half_batches_that_are_reduced_are_one_batch(options, link):
    batches = [models.mlp(batch=32).batch(seed) for seed in range(4)]
    reducers = Averaging(2)
    halves = trained_in_halves(compiled(16, **options), batches, reducers, link)
    whole = compiled(32, **options)
    with sambarun.load(whole) as executable:  # without a reducer nothing is reduced
        for batch in batches:
            executable.step(feeds(whole, batch))
        expected = executable.state()
    for name, array in expected.items():
        np.testing.assert_array_equal(halves[0][name], halves[1][name])
        np.testing.assert_allclose(halves[0][name], array, rtol=2e-4, atol=2e-6, err_msg=name)
    assert reducers.names[0] == reducers.names[1]


def test_a_program_lists_few_large_buffers_to_reduce():
    program = compiled(16)
    (reduce,) = (section for section in program.sections if section.type is SectionType.REDUCE)
    types = [program.sections[section].type.name for section in program.schedule]
    assert types == ["FWD", "BCKWD", "REDUCE", "OPT", "FWD"]
    listed = [program.symbols[index] for index in reduce.inputs]
    assert {symbol.kind for symbol in listed} == {SymbolKind.GRADIENT}
    trained = [symbol for symbol in program.symbols if symbol.kind is SymbolKind.WEIGHT]
    parameters = sum(symbol.size for symbol in trained if "pack" not in symbol.name)
    assert sum(symbol.size for symbol in listed) == parameters
    assert len(listed) < 4
    assert (reduce.variants, reduce.outputs, reduce.groups) == ((), (), ())
    assert check_plans(program) == []


def test_gradients_are_reduced_before_they_are_clipped():
    program = compiled(16, accumulate=True, max_grad_norm=1.0)
    assert check_plans(program) == []
    types = [program.sections[section].type.name for section in program.schedule]
    assert [kind for kind in types if kind != "FWD"] == [
        "ZEROGRAD", "BCKWD", "REDUCE", "GRADNORM", "OPT",
    ]  # fmt: skip


_HEADS = """
<ir_version: 10, opset_import: ["": 23]>
heads (float[{rows},6] x, float[6,8] trunk, float[8,3] left, float[8,2] right)
  => (float small, float large)
<float hundred = {{100}}>
{{
  h = MatMul (x, trunk)  a = Tanh (h)
  l = MatMul (a, left)  small = ReduceMean <keepdims = 0> (l)
  r = MatMul (a, right)  s = Mul (r, r)  t = Mul (s, hundred)
  large = ReduceMean <keepdims = 0> (t)
}}"""


def _heads(rows, **options):
    """Compile a trunk with two heads, whose losses differ by a factor of hundreds."""
    model = onnx.parser.parse_model(_HEADS.format(rows=rows))
    rng = np.random.default_rng(5)
    for port in [*model.graph.input][1:]:
        shape = [dim.dim_value for dim in port.type.tensor_type.shape.dim]
        array = rng.standard_normal(shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(array, port.name))
        model.graph.input.remove(port)
    wish = sambac.CompileOptions(
        train=True, loss=("small", "large"), balance=True, optimizers=(sambac.SGD(lr=0.05),),
        data_parallel=True, **options,
    )  # fmt: skip
    return sambac.compile(model, wish)


@pytest.mark.parametrize("options", [{}, {"max_grad_norm": 0.5}], ids=["plain", "clipped"])
def test_balanced_losses_are_reduced_before_they_are_balanced(options):
    rng = np.random.default_rng(6)
    batches = [(torch.tensor(rng.standard_normal((8, 6)).astype("f")),) for _ in range(3)]
    program = _heads(4, **options)
    assert check_plans(program) == []
    halves = trained_in_halves(program, batches, Averaging(2), True)
    with sambarun.load(_heads(8, **options)) as executable:
        for (x,) in batches:
            executable.step({"x": x.numpy()})
        expected = executable.state()
    assert set(expected) == {"trunk", "left", "right"}
    for name, array in expected.items():
        np.testing.assert_array_equal(halves[0][name], halves[1][name])
        np.testing.assert_allclose(halves[0][name], array, rtol=2e-4, atol=2e-6, err_msg=name)


def test_half_precision_is_reduced_before_it_is_clipped():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 3), nn.Flatten(0)).half()
    loss = _Mean(module)
    x = torch.randn(8, 6).half()
    wish = sambac.CompileOptions(
        train=True, optimizers=(sambac.SGD(lr=0.5),), max_grad_norm=0.1, data_parallel=True
    )
    program = sambac.compile(loss, wish, inputs=(x[:4],))
    halves = trained_in_halves(program, [(x,)], Averaging(2), True)
    loss(x).backward()
    nn.utils.clip_grad_norm_(loss.parameters(), 0.1)
    torch.optim.SGD(loss.parameters(), lr=0.5).step()
    for name, expected in loss.state_dict().items():
        np.testing.assert_array_equal(halves[0][name], halves[1][name])
        np.testing.assert_allclose(halves[0][name], expected.numpy(), rtol=2e-3, atol=2e-3)


class _Mean(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x).square().mean()


def test_a_reduction_behind_what_uses_it_is_found():
    program = compiled(16)
    reduce = next(i for i, s in enumerate(program.sections) if s.type is SectionType.REDUCE)
    at = program.schedule.index(reduce)
    schedule = list(program.schedule)
    schedule[at], schedule[at + 1] = schedule[at + 1], schedule[at]
    found = check_program(replace(program, schedule=tuple(schedule)))
    assert "call 3 reduces gradients that an earlier call has used" in found


def test_data_parallel_is_for_training():
    with pytest.raises(sambac.CompileError, match="data_parallel: of use only in training"):
        sambac.CompileOptions(data_parallel=True)
