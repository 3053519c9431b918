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
from sambac.reconstruct.verify import check_plans


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

    def done(self):
        return False


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


class _Deep(nn.Module):
    """Four layers of 4 MiB, so that gradients come in several buckets."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(1024, 1024) for _ in range(4))

    def forward(self, x):
        for layer in self.layers:
            x = torch.relu(layer(x))
        return x.square().mean()


@cache
def _deep(batch, **options):
    torch.manual_seed(0)
    wish = sambac.CompileOptions(
        train=True, optimizers=(sambac.SGD(lr=0.5, momentum=0.9),), data_parallel=True, **options
    )
    return sambac.compile(_Deep(), wish, inputs=(torch.randn(batch, 1024),))


def _types(program):
    return [program.sections[section].type.name for section in program.schedule]


def test_gradients_of_the_last_layers_are_reduced_while_the_backward_pass_goes_on():
    program = _deep(4)
    assert check_plans(program) == []
    assert check_program(program) == []
    steps = ["BCKWD", "REDUCE"] * 4
    assert _types(program) == ["FWD", *steps, *["OPT"] * 4, "FWD"]
    reduced = [s.inputs for s in program.sections if s.type is SectionType.REDUCE]
    assert [program.symbols[inputs[0]].size >> 20 for inputs in reduced] == [4] * 4
    assert [len(inputs) for inputs in reduced] == [1, 1, 1, 2]  # small ones come last
    made = {
        program.symbols[i].name
        for s in program.sections
        for i in s.outputs
        if s.name == "bckwd_0_0"
    }
    assert "layers.3.weight__grad" in made
    assert "layers.2.weight__grad" not in made


def test_clipping_takes_norms_as_gradients_arrive():
    types = [kind for kind in _types(_deep(4, max_grad_norm=0.1)) if kind not in ("FWD", "OPT")]
    assert types == [*["BCKWD", "REDUCE"] * 4, *["GRADNORM"] * 4]


def test_who_asks_for_a_number_of_sections_gets_no_more():
    assert _types(_deep(4, sections=1)) == ["FWD", "BCKWD", "REDUCE", "OPT", "FWD"]


class _Late(Averaging):
    """The gradients that are reduced last, from number `late` on, arrive first."""

    def __init__(self, late):
        super().__init__(1)
        self.late = late
        self.waited = []

    def of(self, rank):
        return _LateReducer(self, rank)


class _LateReducer(_Reducer):
    def start(self, name, buffer):
        self._group.names[self._rank].append(name)
        return _LateHandle(self._group, self._rank, name, buffer)


class _LateHandle:
    def __init__(self, group, rank, name, buffer):
        self._group = group
        self._meet = lambda: group.meet(rank, name, buffer)
        self._name = name

    def done(self):
        return self._group.names[0].index(self._name) >= self._group.late

    def wait(self):
        self._group.waited.append(self._name)
        self._meet()


def _run(program, mode, reducer, batch):
    with sambarun.load(program, reducer=reducer, threads=1) as executable:
        executable.run({"x": batch}, reduction=mode)
        return executable.state()


@pytest.mark.parametrize("options", [{}, {"max_grad_norm": 0.01}], ids=["plain", "clipped"])
def test_all_ways_to_reduce_give_the_same_weights(options):
    x = np.random.default_rng(0).standard_normal((4, 1024)).astype("f")
    program = _deep(4, **options)
    found = {
        mode: _run(program, mode, Averaging(1).of(0), x)
        for mode in ("none", "normal", "inorder", "optimal")
    }
    for mode, state in found.items():
        for name, array in found["none"].items():
            np.testing.assert_array_equal(state[name], array, err_msg=f"{mode} {name}")


def test_reductions_overlap_with_sections_as_the_mode_says():
    x = np.zeros((4, 1024), np.float32)
    program = _deep(4)
    waited = {}
    for mode in ("none", "inorder", "optimal"):
        group = _Late(3)
        _run(program, mode, group.of(0), x)
        waited[mode] = [group.names[0].index(name) for name in group.waited]
    assert waited["none"] == []
    assert waited["inorder"] == [0, 1, 2, 3, 4]
    # The first section computes what all others need, so nothing overtakes it.
    assert waited["optimal"] == [0, 3, 4, 1, 2]


def test_an_unknown_way_to_reduce_is_told():
    with sambarun.load(compiled(16)) as executable, pytest.raises(sambarun.RunError) as caught:
        executable.run({}, reduction="fast")
    assert "no reduction 'fast'; it is one of none, normal, inorder, optimal" in str(caught.value)


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
    weights = {"trunk", "left", "right"}
    assert set(expected) == weights | {f"{name}__momentum_buffer" for name in weights}
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
