"""Plans that are rebuilt from a file alone: they give the estimates that the file has."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import pytest
import torch
from explained import ADAM, PROGRAMS, Net, device, heavy, net
from onnx import TensorProto, helper, numpy_helper

import pef
import sambac
from benchmarks.models import transformers
from benchmarks.models.transformers import Shape
from pef.errors import PefError
from sambac.arch import arch_of, device_numbers, load_arch, load_device
from sambac.explain.symbols import SymbolFacts
from sambac.reconstruct.rebuilt import rebuild

_BERT = Shape(layers=1, heads=2, hidden=32, length=8, vocabulary=40)


@pytest.mark.parametrize("name", PROGRAMS)
def test_estimates_of_rebuilt_plans_are_those_of_the_file(name, tmp_path):
    rebuilt = rebuild(PROGRAMS[name](tmp_path))
    assert rebuilt.differing == ()
    assert any(section.estimate.latency for section in rebuilt.program.sections)


@pytest.mark.parametrize("level", ["O0", "O1", "O3"])
@pytest.mark.parametrize("chips", [1, 4])
def test_transformers(level, chips):
    options = sambac.CompileOptions(level=level, n_chips=chips)
    rebuilt = rebuild(sambac.compile(transformers.bert(_BERT), options))
    assert rebuilt.differing == ()
    assert rebuilt.arch.chips == chips


def test_a_step_whose_gradients_are_reduced(tmp_path):
    program = net(tmp_path, layers=2, data_parallel=True, precision="mixed")
    assert rebuild(program).differing == ()


def _narrow(level="O3"):
    model = onnx.parser.parse_model(
        """<ir_version: 10, opset_import: ["" : 21]>
        g (bfloat16[16,64] x, bfloat16[64,32] k) => (bfloat16[16,32] y) {
            scores = MatMul(x, k)
            y = Softmax(scores)
        }"""
    )
    return sambac.compile(model, sambac.CompileOptions(level=level))


@pytest.mark.parametrize("level", ["O0", "O3"])
def test_a_model_in_few_bits_moves_few_bits_whatever_the_host_makes(level):
    """Kernels of the host give scores in float32; a device has them in the type of the model."""
    program = _narrow(level)
    assert rebuild(program).differing == ()
    moved = [(s.estimate.bytes_in, s.estimate.bytes_out) for s in program.sections]
    first, between, last = 2 * (16 * 64 + 64 * 32), 2 * 16 * 32, 2 * 16 * 32
    assert moved == ([(first, last)] if level == "O3" else [(first, between), (between, last)])
    if level == "O0":
        wide = next(at for at, symbol in enumerate(program.symbols) if symbol.declared)
        told = " ".join(fact.text for fact in SymbolFacts(rebuild(program)).facts(wide))
        assert "The model has it as bfloat16" in told
        assert "count the 1.00 KiB" in told
        assert "2 times: 2.00 KiB," in told


def test_types_for_other_results_than_an_operator_has_are_refused():
    program = _narrow()
    section, *others = program.sections
    group, *groups = section.groups
    operator, *operators = group.operators
    wrong = replace(operator, declared=(16, 16, 16))
    changed = replace(section, groups=(replace(group, operators=(wrong, *operators)), *groups))
    with pytest.raises(PefError, match=f"'{operator.name}' makes .*, and has 3 types for them"):
        rebuild(replace(program, sections=(changed, *others)))


def test_several_graphs():
    module = Net(2, 8)
    batch = torch.zeros(4, 8), torch.zeros(4, 8)
    options = sambac.CompileOptions(train=True, optimizers=ADAM)
    graphs = [
        sambac.GraphSource("fit", module, options=options, inputs=batch),
        sambac.GraphSource("see", module, inputs=batch),
    ]
    assert rebuild(sambac.compile_graphs(graphs)).differing == ()


def test_a_file_is_rebuilt_like_the_program(tmp_path):
    program = heavy(tmp_path)
    program.save(tmp_path / "heavy.pef")
    with pef.open(tmp_path / "heavy.pef") as file:
        assert rebuild(file.program).costs() == rebuild(program).costs()


def test_an_older_file_says_too_little(tmp_path):
    program = replace(heavy(tmp_path), device=())
    with pytest.raises(PefError, match=r"numbers of its device.*compile the model again"):
        rebuild(program)


def test_an_estimate_that_is_not_that_of_the_plan_is_found(tmp_path):
    program = heavy(tmp_path)
    first, *others = program.sections
    wrong = replace(first, estimate=replace(first.estimate, pmus=first.estimate.pmus + 1))
    assert rebuild(replace(program, sections=(wrong, *others))).differing == (0,)


@pytest.mark.parametrize("name", ["sn10", "sn30", "sn40l"])
@pytest.mark.parametrize("chips", [1, 3])
def test_devices_come_back_from_their_numbers(name, chips):
    arch = load_device(name, None, chips)
    found = arch_of(name, device_numbers(arch))
    assert found is not None
    assert device_numbers(found) == device_numbers(arch)
    assert found.capacities == arch.capacities
    assert all(found.speed(kind) == arch.speed(kind) for kind in arch.regions)
    assert found.flops_per_pcu == arch.flops_per_pcu


def test_half_a_device_is_none():
    numbers = device_numbers(load_arch("sn30"))
    assert arch_of("sn30", [each for each in numbers if each.name != "launch"]) is None
    assert arch_of("sn30", numbers) is not None


def test_tiles_are_those_of_the_device(tmp_path):
    program = heavy(tmp_path, arch="sn30", num_tiles=4)
    assert rebuild(program).arch.pcus.value == 640
    assert np.isclose(rebuild(program).arch.peak_flops.value, 344e12)


def test_own_devices_are_those_of_their_file(tmp_path):
    rebuilt = rebuild(heavy(tmp_path))
    own = load_arch(device(tmp_path, pcus=64, pmus=24, stage_pmus=2))
    assert device_numbers(rebuilt.arch) == device_numbers(own)


def test_what_is_kept_on_chip_may_be_a_literal():
    """A small constant is part of its operator, and no value of the view."""
    model = helper.make_model(
        helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
            "literal",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 1])],
            [helper.make_tensor_value_info("y", TensorProto.FLOAT, [8, 1])],
            [numpy_helper.from_array(np.full((1, 1), 3, np.float32), "w")],
        ),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    program = sambac.compile(model)
    assert not program.sections[0].weights
    assert rebuild(program).differing == ()
