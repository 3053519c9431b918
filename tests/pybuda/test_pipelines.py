"""Calls that fail, overlap, or come while something runs; whose inputs and outputs they are."""

from __future__ import annotations

import queue
import threading
from collections import OrderedDict
from contextlib import nullcontext

import pytest
import torch
from pybuda_runs import ONE, Times, at_work, later, near, tanh
from torch import nn

import pybuda
import sambac
import sambarun
from pybuda.training_pipeline import API
from sambahost import inference_pipeline
from sambahost.crew import Action, Channel, Crew
from sambahost.samples import Samples


@pytest.mark.parametrize("kind", [pybuda.TTDevice, pybuda.CPUDevice])
def test_a_module_that_is_placed_twice_runs_twice(kind) -> None:
    double = Times(2)
    device = kind("d")
    device.place_module([later(double, "a.b"), later(double, "a_b"), later(Times(3), "type")])
    device.push_to_inputs(ONE)
    near(pybuda.run_inference().get(timeout=60), [12 * ONE])


def test_a_call_that_fails_leaves_no_inputs_behind() -> None:
    class Bessel(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.special.bessel_j0(x)

    with pytest.raises(sambac.CompileError):
        later(Bessel(), "m").run(7 * ONE)
    module = later(nn.ReLU(), "relu")
    near(module.run(ONE), [ONE])
    with pytest.raises(pybuda.PyBudaError, match="'x' came"):
        pybuda.run_inference(module, inputs=[(7 * ONE,), ("x",)])
    near(module.run(ONE), [ONE])


def test_a_module_runs_its_own_inputs() -> None:
    module = later(Times(2), "double")
    results = pybuda.run_inference(module, inputs=[7 * ONE])
    near(module.run(ONE), [2 * ONE])
    near(results.get(timeout=60), [14 * ONE])
    wrong: list[int] = []

    def work(number: int) -> None:
        found = [module.run(number * ONE)[0].value() for _ in range(50)]
        wrong.extend(number for tensor in found if not torch.equal(tensor, 2 * number * ONE))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong
    pybuda.CPUDevice("cpu0", module=later(Times(100), "more"))
    with pytest.raises(pybuda.PyBudaError, match="'double' is placed with other modules"):
        module.run(ONE)


def test_a_change_ends_what_runs() -> None:
    device = pybuda.TTDevice("tt0", module=later(Times(2), "double"))
    first = pybuda.run_inference(input_count=5)
    device.push_to_inputs(ONE)
    near(first.get(timeout=60), [2 * ONE])
    device.remove_modules()
    with pytest.raises(pybuda.PyBudaError, match="was ended before all of its results"):
        first.get(timeout=60)
    device.place_module(later(Times(3), "triple"))
    device.push_to_inputs(ONE)
    near(pybuda.run_inference(input_count=1).get(timeout=60), [3 * ONE])
    pybuda.initialize_pipeline(training=False, sample_inputs=(torch.ones(1, 3),))
    pybuda.CPUDevice("cpu0", module=later(Times(100), "more"))
    with pytest.raises(pybuda.PyBudaError, match="have changed; call initialize_pipeline again"):
        pybuda.run_forward()


def test_who_waits_is_told_of_a_shutdown() -> None:
    pybuda.TTDevice("tt0", module=later(Times(2), "double"))
    results = pybuda.run_inference(input_count=5)
    pybuda.shutdown()
    with pytest.raises(pybuda.PyBudaError, match="was ended before all of its results"):
        results.get()


def test_a_full_queue_does_not_hold_up_a_shutdown() -> None:
    own = queue.Queue[object](1)
    pybuda.run_inference(later(Times(2), "double"), inputs=[ONE] * 4, output_queue=own)
    assert at_work("auto_tt0")
    pybuda.shutdown()
    assert not at_work("auto_tt0")


def test_inputs_are_copied() -> None:
    buffer, given = torch.zeros(1, 2), torch.tensor([[-1.0, 1.0]])
    device = pybuda.CPUDevice("cpu0", module=later(nn.ReLU(inplace=True), "relu"))
    pybuda.CPUDevice("cpu1", module=later(Times(2), "double"))
    between: queue.Queue[object] = queue.Queue()
    results = pybuda.initialize_pipeline(
        training=False, sample_inputs=(given,), d2d_fwd_queues=[between]
    )
    for number in range(4):
        buffer.fill_(number)
        device.push_to_inputs(buffer)
    device.push_to_inputs(given)
    pybuda.run_forward(5)
    for number in range(4):
        near(results.get(timeout=60), [2 * number * ONE])
    assert given.tolist() == [[-1.0, 1.0]]


def test_what_a_module_returns() -> None:
    class Output(OrderedDict):
        pass

    class Structured(nn.Module):
        def forward(self, x: torch.Tensor) -> object:
            return Output(first=x, more=(x * 2, None))

    class Numbers(nn.Module):
        def forward(self, x: torch.Tensor) -> object:
            return x, 1.5

    for kind in (pybuda.TTDevice, pybuda.CPUDevice):
        device = kind("d", module=later(Structured(), "s"))
        device.push_to_inputs(ONE)
        near(pybuda.run_inference().get(timeout=60), [ONE, 2 * ONE])
        pybuda.shutdown()
    pybuda.CPUDevice("d", module=later(Numbers(), "n")).push_to_inputs(ONE)
    with pytest.raises(
        pybuda.PyBudaError, match="a module returned a float; tensors were expected"
    ):
        pybuda.run_inference().get(timeout=60)


def test_modules_of_a_cpu_run_once_for_each_microbatch() -> None:
    class Counting(nn.Module):
        calls = 0

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            Counting.calls += 1
            return x * Counting.calls

    pybuda.CPUDevice("cpu0", module=later(Counting(), "c"))
    results = pybuda.run_inference(inputs=[ONE, ONE])
    near(results.get(timeout=60), [ONE])
    near(results.get(timeout=60), [2 * ONE])


def test_inputs_go_to_the_first_device() -> None:
    pybuda.TTDevice("tt0", module=later(Times(2), "double"))
    second = pybuda.CPUDevice("cpu0", module=later(Times(3), "triple"))
    with pytest.raises(pybuda.PyBudaError, match="came for device 'cpu0'; the first one, 'tt0'"):
        second.push_to_inputs(ONE)


def test_an_onnx_model_gets_inputs_by_its_names() -> None:
    model = tanh(8)
    results = pybuda.run_inference(pybuda.OnnxModule("t", model), inputs=[{"x": torch.ones(2, 8)}])
    near(results.get(timeout=60), [torch.tanh(torch.ones(2, 8))])
    pybuda.shutdown()
    with pytest.raises(pybuda.PyBudaError, match="inputs called y came; the model has x"):
        pybuda.run_inference(pybuda.OnnxModule("t", model), inputs=[{"y": torch.ones(2, 8)}])


@pytest.mark.parametrize(("devices", "cores", "threads"), [(1, 8, None), (2, 8, 4), (3, 2, 1)])
def test_devices_share_the_cores(monkeypatch, devices, cores, threads) -> None:
    given, load = [], sambarun.load

    def noted(program, **options):
        given.append(options["threads"])
        return load(program, **options)

    monkeypatch.setattr(sambarun, "load", noted)
    monkeypatch.setattr(torch, "get_num_threads", lambda: cores)
    placed = [pybuda.TTDevice(f"d{at}", module=later(Times(2), f"m{at}")) for at in range(devices)]
    placed[0].push_to_inputs(ONE)
    near(pybuda.run_inference().get(timeout=60), [2**devices * ONE])
    assert given == [threads] * devices


def test_devices_in_an_order_of_the_program() -> None:
    class Adding(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + 1

    double = pybuda.TTDevice("tt0", module=later(Times(2), "double"))
    adding = pybuda.CPUDevice("cpu0", module=later(Adding(), "adding"))
    double.push_to_inputs(ONE)
    near(pybuda.run_inference().get(timeout=60), [3 * ONE])
    pybuda.set_device_pipeline([adding, double])
    adding.push_to_inputs(ONE)
    near(pybuda.run_inference().get(timeout=60), [4 * ONE])
    assert not pybuda.error_raised()
    with pytest.raises(pybuda.PyBudaError, match="has cpu0, and there are cpu0, tt0; name each"):
        pybuda.set_device_pipeline([adding])
    with pytest.raises(
        pybuda.PyBudaError, match=r"devices\[0\] is 'tt0'; devices is a list of devices"
    ):
        pybuda.set_device_pipeline(["tt0"])
    adding.push_to_inputs(torch.ones(1, 3, dtype=torch.int8))
    results = pybuda.run_inference()
    with pytest.raises(pybuda.PyBudaError):
        results.get(timeout=60)
    assert pybuda.error_raised()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("TFLiteModule", "export the model to ONNX"),
        ("run_generate", "models with a cache between calls do not run"),
        ("run_inferenc", r"\(did you mean 'run_inference'\?\)"),
    ],
)
def test_absent_names_say_what_there_is(name: str, says: str) -> None:
    with pytest.raises(AttributeError, match=f"pybuda has no '{name}'.*{says}"):
        getattr(pybuda, name)
    with pytest.raises(AttributeError, match=r"has no 'forwards' \(did you mean 'forward'\?\)"):
        _ = pybuda.TTDevice("tt0").forwards


def test_what_was_pushed_at_the_end_of_a_run_is_kept() -> None:
    dropped, results, go = [], queue.Queue(), threading.Event()
    crew = Crew(["d"], [results], lambda: dropped.append(1), RuntimeError)

    def step(index: int) -> None:
        results.put(index)
        go.wait()  # a thread that has given all results, and is not at its end

    crew.order(lambda: [Action(step)])
    assert results.get(timeout=60) == 0
    threading.Timer(0.05, go.set).start()
    crew.stop()
    assert not dropped


@pytest.mark.parametrize(("in_sequence", "room"), [(False, 0), (False, 1), (True, 0)])
def test_no_result_is_held_for_long(monkeypatch, in_sequence: bool, room: int) -> None:
    """Not at the end of a call with more at hand, nor before an error, nor in a full queue."""
    monkeypatch.setattr(inference_pipeline, "_SOON", 600.0)  # as if all were done within it
    device = pybuda.TTDevice("tt0", module=later(Times(2.0), "twice"))
    results = queue.Queue[object](room)
    pybuda.initialize_pipeline(training=False, sample_inputs=(ONE,), output_queue=results)
    for value in range(6):
        device.push_to_inputs(value * ONE)
    for values in (range(3), range(3, 5)):
        pybuda.run_forward(len(values), _sequential=in_sequence)
        for value in values:
            near(results.get(timeout=60), [2.0 * value * ONE])
    device.push_to_inputs(torch.ones(1, 7))
    refused = pytest.raises(pybuda.PyBudaError, match="7")
    with refused if in_sequence else nullcontext():
        pybuda.run_forward(2, _sequential=in_sequence)
    near(results.get(timeout=60), [10.0 * ONE])
    with refused:
        results.get(timeout=60)


def test_what_comes_one_by_one_is_not_held(monkeypatch) -> None:
    monkeypatch.setattr(inference_pipeline, "_SOON", 600.0)
    device = pybuda.TTDevice("tt0", module=later(Times(2.0), "twice"))
    results = pybuda.run_inference(input_count=0)
    for value in range(3):
        device.push_to_inputs(value * ONE)
        near(results.get(timeout=60), [2.0 * value * ONE])


class Waits:
    """A device whose third microbatch is done when all ends."""

    name, is_even = "waits", True

    def refresh(self) -> None:
        self.count = 0

    def infer(self, batch: Samples) -> tuple[torch.Tensor, ...]:
        self.count += 1
        if self.count == 3:
            assert self.stopped.wait(60)
        return batch.tensors


def test_what_is_held_when_all_ends_is_given(monkeypatch) -> None:
    monkeypatch.setattr(inference_pipeline, "_SOON", 600.0)
    device, inputs, results = Waits(), Channel[Samples](), queue.Queue[object]()
    queues = inference_pipeline.InferenceQueues(results, (), queue.Queue())
    pipeline = inference_pipeline.InferencePipeline([device], inputs, queues, API)
    device.stopped = pipeline.crew.stopped
    for value in range(4):
        inputs.add(Samples((value * ONE,)))
    pipeline.forward(4, in_sequence=False)
    near(results.get(timeout=60), [0 * ONE])
    pipeline.crew.stop()
    for value in (1, 2):
        near(results.get_nowait(), [value * ONE])
