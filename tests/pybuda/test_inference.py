"""Inference as programs do it: in one call, on placed modules, and by hand."""

from __future__ import annotations

import queue
import threading
from itertools import pairwise

import pytest
import torch
from onnx import TensorProto, helper
from pybuda_runs import ONE, Times, evaluated, later, near, tanh
from torch import nn

import pybuda
import sambac


class Scaled(pybuda.PyBudaModule):
    """(a w + v) b, and relu(a w)."""

    def __init__(self, name: str = "scaled") -> None:
        super().__init__(name)
        torch.manual_seed(0)
        self.weight = pybuda.Parameter(torch.randn(8, 4))
        self.shift = pybuda.Parameter(torch.randn(1, 4))

    def forward(self, a: pybuda.Tensor, b: pybuda.Tensor) -> tuple[pybuda.Tensor, ...]:
        product = pybuda.op.Matmul("product", a, self.weight)
        return pybuda.op.Add("shifted", product, self.shift) * b, pybuda.op.Relu("", product)

    def expected(self, a: torch.Tensor, b: torch.Tensor) -> list[torch.Tensor]:
        product = a @ self.weight.value()
        return [(product + self.shift.value()) * b, torch.relu(product)]


@pytest.fixture
def perceptron() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.Dropout(0.5), nn.ReLU(), nn.Linear(16, 4))


def test_one_call_runs_a_module() -> None:
    module = Scaled()
    batches = [(torch.randn(5, 8), torch.randn(5, 4)) for _ in range(3)]
    results = pybuda.run_inference(module, inputs=batches)
    for batch in batches:
        near(results.get(timeout=60), module.expected(*batch))
    assert results.empty()


def test_a_module_runs_itself_and_is_compiled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[object] = []
    monkeypatch.setattr(sambac, "compile", lambda *args, f=sambac.compile, **more: (
        compiled.append(args[0]), f(*args, **more))[1])  # fmt: skip
    module = Scaled()
    for _ in range(3):
        a, b = torch.randn(2, 8), torch.randn(2, 4)
        near(module.run(a, b), module.expected(a, b))
    assert len(compiled) == 1


def test_a_torch_module_evaluates_and_stays_as_it_was(perceptron: nn.Module) -> None:
    image = torch.randn(3, 8)
    near(pybuda.PyTorchModule("p", perceptron).run(image), [evaluated(perceptron, image)])
    assert all(part.training for part in perceptron.modules())


def test_another_module_takes_the_place_of_the_first(perceptron: nn.Module) -> None:
    image = torch.randn(2, 8)
    first = pybuda.run_inference(pybuda.PyTorchModule("p", perceptron), inputs=[(image,)])
    near(first.get(timeout=60), [evaluated(perceptron, image)])
    second = pybuda.run_inference(pybuda.PyTorchModule("q", nn.Tanh()), inputs=[(image,)])
    near(second.get(timeout=60), [torch.tanh(image)])
    assert second is not first


def test_inputs_by_name() -> None:
    class Sum(nn.Module):
        def forward(self, first: torch.Tensor, second: torch.Tensor) -> dict[str, torch.Tensor]:
            return {"difference": first - second, "nothing": None}

    a, b = torch.randn(2, 8), torch.randn(2, 8)
    module = pybuda.PyTorchModule("sum", Sum())
    results = pybuda.run_inference(module, inputs=[{"second": b, "first": a}])
    near(results.get(timeout=60), [a - b])
    pybuda.run_inference(module, inputs=[{"first": a, "second": b}])
    near(results.get(timeout=60), [a - b])
    pybuda.run_inference(module, inputs=[(a, b)])
    with pytest.raises(pybuda.PyBudaError, match=r"without names came, .* called second, first"):
        results.get(timeout=60)


def test_modules_in_sequence_of_all_kinds(perceptron: nn.Module) -> None:
    """An ONNX model between torch and PyBuda is a program of its own."""

    class Twice(pybuda.PyBudaModule):
        def forward(self, x: pybuda.Tensor) -> pybuda.Tensor:
            return pybuda.op.Add("", x, x)

    device = pybuda.TTDevice("tt0")
    device.place_module(pybuda.PyTorchModule("first", perceptron))
    device.place_module((pybuda.OnnxModule("second", tanh(4)), Twice("third")))
    image = torch.randn(3, 8)
    device.push_to_inputs(image)
    near(
        pybuda.run_inference().get(timeout=60),
        [2 * torch.tanh(evaluated(perceptron, image))],
    )


@pytest.mark.parametrize("in_sequence", [False, True], ids=["in threads", "in sequence"])
def test_devices_in_the_order_in_which_they_were_made(
    perceptron: nn.Module, in_sequence: bool
) -> None:
    first = pybuda.CPUDevice("cpu0", module=pybuda.PyTorchModule("tanh", nn.Tanh()))
    pybuda.TTDevice("tt0", module=pybuda.PyTorchModule("p", perceptron))
    pybuda.CPUDevice("cpu1", module=pybuda.PyTorchModule("softmax", nn.Softmax(0)))
    between: list[queue.Queue[object]] = [queue.Queue(), queue.Queue()]
    images = [torch.randn(3, 8) for _ in range(20)]
    own: queue.Queue[object] = queue.Queue()
    results = pybuda.initialize_pipeline(
        training=False, output_queue=own, sample_inputs=(images[0],), d2d_fwd_queues=between
    )
    assert results is own
    for image in images:
        first.push_to_inputs(image)
    pybuda.run_forward(len(images), _sequential=in_sequence)
    for image in images:
        logits = evaluated(perceptron, torch.tanh(image))
        near(results.get(timeout=60), [torch.softmax(logits, 0)])
        near(between[0].get(timeout=60), [torch.tanh(image)])
        near(between[1].get(timeout=60), [logits])


def test_inputs_may_come_after_the_call(perceptron: nn.Module) -> None:
    device = pybuda.TTDevice("tt0", module=pybuda.PyTorchModule("p", perceptron))
    results = pybuda.run_inference(input_count=0)
    for _ in range(5):
        image = torch.randn(2, 8)
        device.push_to_inputs((image,))
        near(results.get(timeout=60), [evaluated(perceptron, image)])


def test_the_first_queue_goes_on() -> None:
    module = Scaled()
    batch = torch.randn(1, 8), torch.randn(1, 4)
    first = pybuda.run_inference(module, inputs=[batch])
    second = pybuda.run_inference(module, inputs=[batch], output_queue=queue.Queue())
    assert second is first
    for _ in range(2):
        near(first.get(timeout=60), module.expected(*batch))


def test_a_cpu_computes_in_float32_unless_it_is_told_types() -> None:
    device = pybuda.CPUDevice("cpu0", module=pybuda.PyTorchModule("i", nn.Identity()))
    device.push_to_inputs(torch.ones(1, 2, dtype=torch.bfloat16))
    assert pybuda.run_inference().get(timeout=60)[0].value().dtype is torch.float32
    pybuda.shutdown()
    told = pybuda.CPUDevice("cpu0", input_dtypes=[torch.float64])
    told.place_module(pybuda.PyTorchModule("i", nn.Identity()))
    told.push_to_inputs(torch.ones(1, 2))
    assert pybuda.run_inference().get(timeout=60)[0].value().dtype is torch.float64


def test_what_fails_in_a_device_reaches_who_waits_for_it(perceptron: nn.Module) -> None:
    first = pybuda.TTDevice("tt0", module=pybuda.PyTorchModule("p", perceptron))
    pybuda.CPUDevice("cpu0", module=pybuda.PyTorchModule("tanh", nn.Tanh()))
    results = pybuda.run_inference(inputs=[(torch.zeros(1, 8),)])
    results.get(timeout=60)
    first.push_to_inputs(torch.zeros(1, 9))
    pybuda.run_inference(input_count=3)
    for _ in range(3):
        with pytest.raises(
            pybuda.PyBudaError, match=r"'input 0' has shape \[1, 9\]; float32\[1, 8\]"
        ):
            results.get(timeout=60)
    with pytest.raises(pybuda.PyBudaError, match="the pipeline has failed"):
        pybuda.run_forward()
    image = torch.randn(2, 8)
    near(
        pybuda.run_inference(inputs=[image]).get(timeout=60),
        [torch.tanh(evaluated(perceptron, image))],
    )


def test_a_module_that_cannot_be_compiled_is_refused_in_the_call() -> None:
    class Bessel(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.special.bessel_j0(x)

    with pytest.raises(sambac.CompileError):
        pybuda.run_inference(pybuda.PyTorchModule("m", Bessel()), inputs=[(torch.zeros(1, 4),)])


def test_a_module_that_cannot_be_compiled_leaves_nothing_behind(perceptron: nn.Module) -> None:
    class Bessel(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.special.bessel_j0(x)

    device = pybuda.TTDevice("tt0", module=pybuda.OnnxModule("tanh", tanh(8)))
    device.place_module(pybuda.PyTorchModule("bessel", Bessel()))
    device.push_to_inputs(torch.zeros(1, 8))
    for _ in range(2):
        with pytest.raises(sambac.CompileError):
            pybuda.run_inference()


def test_shutdown_ends_what_runs_for_ever(perceptron: nn.Module) -> None:
    pybuda.TTDevice("tt0", module=pybuda.PyTorchModule("p", perceptron))
    before = threading.active_count()
    pybuda.run_inference(input_count=0)
    assert threading.active_count() == before + 1
    pybuda.shutdown()
    assert threading.active_count() == before


def test_a_microbatch_that_is_one_for_all_samples() -> None:
    module = Scaled()
    a, b = torch.randn(4, 8), torch.randn(1, 4)
    near(module.run(a, b), module.expected(a, b))


def test_outputs_without_a_dimension_of_the_microbatch_get_one() -> None:
    class Sums(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return x.sum(), x.reshape(-1, 2)

    image = torch.randn(3, 8)
    near(
        pybuda.PyTorchModule("s", Sums()).run(image),
        [image.sum(1), image.reshape(3, 4, 2)],
    )


@pytest.mark.parametrize("in_sequence", [False, True], ids=["in threads", "in sequence"])
def test_parameters_that_change_after_a_run_are_those_of_the_next(in_sequence: bool) -> None:
    module, linear = Scaled(), nn.Linear(4, 4)
    module.add_constant("unused")
    device = pybuda.TTDevice("tt0", module=[module, pybuda.PyTorchModule("two", Second(linear))])
    a, b = torch.randn(2, 8), torch.randn(2, 4)

    def check() -> None:
        device.push_to_inputs(a, b)
        results = pybuda.run_inference(_sequential=in_sequence)
        near(results.get(timeout=60), [evaluated(linear, module.expected(a, b)[1])])

    check()
    module.set_parameter("scaled.weight", torch.ones(8, 4))
    check()
    with torch.no_grad():
        linear.weight.mul_(2)
    check()
    linear.load_state_dict(nn.Linear(4, 4).state_dict())
    check()
    linear.weight.data = torch.randn(4, 4)
    check()
    for number in range(3):  # memory of the first may be that of the third
        linear.weight = nn.Parameter(torch.full((4, 4), float(number)))
    check()


class Second(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.inner(second)
        return found


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: pybuda.run_inference(), "there is no device"),
        (lambda: pybuda.run_inference(nn.Tanh()), "a Tanh came where a module was expected"),
        (lambda: pybuda.run_forward(), "there is no pipeline; call initialize_pipeline"),
        (lambda: pybuda.initialize_pipeline(training=False), "there is no device"),
        (lambda: pybuda.initialize_pipeline(training=True), "there is no device"),
        (lambda: pybuda.TTDevice("t", arch="grayskull"), "arch is 'grayskull'; a pybuda"),
        (lambda: pybuda.TTDevice("t").push_to_inputs(), "a microbatch without tensors"),
        (lambda: pybuda.TTDevice("t").push_to_inputs(torch.zeros(0, 2)), "without samples"),
        (lambda: pybuda.TTDevice("t").push_to_inputs(ONE.double()), "no format for torch.float64"),
        (lambda: pybuda.run_inference(input_count=-1), "input_count is -1"),
        (lambda: pybuda.run_inference(inputs=torch.zeros(2, 2)), "a list of microbatches was exp"),
        (lambda: pybuda.TTDevice("t", num_chips=2, chip_ids=[0]), "num_chips is 2, chip_ids are 1"),
        (lambda: pybuda.TTDevice("t", chip_ids=[]), "chip_ids is .*; give whole"),
        (lambda: pybuda.TTDevice("t", chip_ids=[0, 0]), "chip_ids is .*each once"),
        (lambda: pybuda.TTDevice("t", chip_ids=[-5]), "chip_ids is .*; give whole"),
        (lambda: pybuda.TTDevice("t", chip_ids=[True]), "chip_ids is .*; give whole"),
        (
            lambda: pybuda.TTDevice("t", fp32_fallback=pybuda.DataFormat.Int8),
            "fp32_fallback is DataFormat.Int8; floating-point numbers are held as",
        ),
        (lambda: pybuda.TTDevice("t").push_to_inputs("x"), "'x' came; a torch, numpy or"),
        (lambda: pybuda.CPUDevice("c", module=Scaled()), "a CPUDevice runs PyTorch modules"),
        (lambda: pybuda.TTDevice("t", module=[Scaled("a"), Scaled("a")]), "there is a module 'a'"),
        (lambda: pybuda.PyTorchModule("p", "x"), "a torch.nn.Module was expected"),
        (lambda: pybuda.OnnxModule("p", "x"), "an onnx.ModelProto was expected"),
        (lambda: Scaled().run(torch.zeros(2, 8), torch.zeros(3, 4)), "the microbatch, which is on"),
        (lambda: Scaled(3), "the name of a module came as a int"),
    ],
)  # fmt: skip
def test_what_is_refused(call, says) -> None:
    with pytest.raises(pybuda.PyBudaError, match=says):
        call()


def test_what_a_pipeline_refuses(perceptron: nn.Module) -> None:
    device = pybuda.TTDevice("tt0", module=pybuda.PyTorchModule("p", perceptron))
    with pytest.raises(pybuda.PyBudaError, match="nothing says what to compile for"):
        pybuda.initialize_pipeline(training=False)
    pair = [(torch.zeros(1, 8),)] * 2
    with pytest.raises(pybuda.PyBudaError, match="2 inputs came, and input_count is 3"):
        pybuda.run_inference(inputs=pair, input_count=3)
    device.push_to_inputs(torch.zeros(1, 8))
    with pytest.raises(pybuda.PyBudaError, match="for ever, which cannot be done in sequence"):
        pybuda.run_inference(input_count=0, _sequential=True)
    with pytest.raises(pybuda.PyBudaError, match="1 microbatches were pushed, 2 are to run"):
        pybuda.run_inference(input_count=2, _sequential=True)
    with pytest.raises(TypeError, match="_perf"):
        pybuda.run_inference(_perf=True)


class Shifted(pybuda.PyBudaModule):
    """x + shift, a plain attribute."""

    shift = 1.0

    def __init__(self) -> None:
        super().__init__("shifted")
        self.inner = [Squared("squared")]

    def forward(self, x: pybuda.Tensor) -> pybuda.Tensor:
        return self.inner[0](x) + self.shift


class Squared(pybuda.PyBudaModule):
    def forward(self, x: pybuda.Tensor) -> pybuda.Tensor:
        return x * x


def test_a_module_that_was_changed_is_compiled_again() -> None:
    """Other modules and values in it, which no tensor tells of; and it is not without a change."""
    layers = nn.Sequential(nn.Linear(2, 2), nn.Tanh(), Times(2.0))
    module, compiled = later(layers, "layers"), []
    changes = [
        lambda: None,
        lambda: layers.__setitem__(1, nn.ReLU()),
        lambda: setattr(layers[2], "factor", 3.0),
        lambda: layers[0].register_forward_hook(lambda _module, _given, found: found + 1),
        lambda: layers.append(Times(5.0)),
    ]
    for change in changes:
        change()
        for _ in range(2):
            near(module.run(ONE), [evaluated(layers, ONE)])
            device = module.get_device()
            compiled.append(device._runner)
    assert [id(one) == id(other) for one, other in pairwise(compiled)] == [True, False] * 4 + [True]
    pybuda.shutdown()
    shifted = Shifted()
    near(shifted.run(2 * ONE), [5 * ONE])
    shifted.shift = 3.0
    near(shifted.run(2 * ONE), [7 * ONE])


def test_an_onnx_model_of_a_fixed_batch_is_told_why() -> None:
    wide = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4, 6]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Relu", ["x"], ["y"])], "g", wide[:1], wide[1:])
    opsets = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    pybuda.TTDevice("tt0", module=pybuda.OnnxModule("m", model)).push_to_inputs(torch.ones(4, 6))
    with pytest.raises(
        pybuda.PyBudaError, match=r"\[4, 6\] was expected. A TTDevice .* one sample"
    ):
        pybuda.run_inference()
