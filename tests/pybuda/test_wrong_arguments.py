"""Arguments of other types than they are annotated with: what came, and what was expected."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import pybuda
from pybuda import TTDevice, op


class Doubles(pybuda.PyBudaModule):
    def forward(self, x: pybuda.Tensor) -> pybuda.Tensor:
        return op.Add("", x, x)


X = pybuda.Tensor.create_from_torch(torch.ones(1, 2))


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: pybuda.get_parameter_checkpoint(3), r"device is 3; Device \| None was"),
        (lambda: TTDevice("a").get_next_command(3), r"command_queue is 3; queue.Queue\[Command\]"),
        (lambda: TTDevice("a").cpueval_forward(None, {}, False), "inputs is None; Sequence"),
        (lambda: pybuda.CPUDevice("a").cpueval_forward([X], 3, False), "parameters is 3; Mapping"),
        (lambda: TTDevice("a").compile_for(3), "inputs is 3; Sequence"),
        (lambda: TTDevice("a").compile_for([X], verify_cfg=3), "^verify_cfg is 3; a pybuda"),
        (lambda: TTDevice.load_image(img_path=3), "img_path is 3; str"),
        (lambda: Doubles("m").add_parameter("w", None), "parameter is None; Parameter"),
        (lambda: Doubles("m").set_constant(["w"], X), "name is a list; str was"),
        (lambda: Doubles("m").load_parameter_dict(3), "data is 3; Mapping"),
        (
            lambda: TTDevice("a").push_to_inputs(torch.eye(2).to_sparse()),
            "sparse_coo came; push its to_dense",
        ),
        (lambda: pybuda.Tensor.create_from_torch(3), "torch_tensor is 3; torch.Tensor was"),
        (lambda: op.Add("", X, None), "a NoneType came as an operand"),
        (lambda: op.Softmax("", X, dim="x"), "dim is 'x'; int was expected"),
        (lambda: op.Reshape("", X, (1.5, 2)), r"shape is a tuple; list\[int\] "),
        (lambda: op.Pow("", X, None), "exponent is None; float was"),
        (lambda: pybuda.run_backward(zero_grad="False"), "zero_grad is 'False'; True or False"),
        (lambda: pybuda.run_optimizer("last"), "checkpoint is 'last'; True or False was"),
        (lambda: pybuda.initialize_pipeline("inference"), "training is 'inference'; True or"),
        (lambda: pybuda.Parameter(2, requires_grad=0.5), "requires_grad is 0.5; True or False"),
        (lambda: op.Softmax("", X, dim=1, stable="no"), "stable is 'no'; True or False was"),
        (lambda: pybuda.optimizers.LARS(nesterov=0.9), "nesterov is 0.9; True or False was"),
        (
            lambda: pybuda.optimizers.LAMB(device_params=True, clip_value=()),
            r"clip_value is \(\); a lower and an upper limit",
        ),
        (lambda: TTDevice("a", num_chips=10**30), "num_chips is 10+; a device has 4096 at most"),
    ],
)
def test_what_was_expected(call, says: str) -> None:
    with pytest.raises((TypeError, pybuda.PyBudaError), match=says):
        call()


def test_what_is_true_or_false_in_other_words() -> None:
    for truth in (True, np.True_, 1):
        assert bool(pybuda.Parameter(2, requires_grad=truth).requires_grad)
    with pytest.raises(pybuda.PyBudaError, match="takes either device_params=True or a list"):
        pybuda.optimizers.SGD(0.1, parameters=[pybuda.Parameter(2, name="w")], device_params=1)


def test_errors_of_the_program_are_its_own() -> None:
    class Fails(Doubles):
        def forward(self, x: pybuda.Tensor) -> pybuda.Tensor:
            raise AttributeError("mine")

    with pytest.raises(Exception, match="mine"):
        Fails("m").run(torch.ones(1, 2))
