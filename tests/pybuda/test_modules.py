"""Modules, their parameters and constants, and tensors."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from pybuda_runs import evaluated, later, near, tanh
from torch import nn

import pybuda
import sambac
from pybuda import DataFormat

PREPARED: list[str] = []
"""What `pre_forward` was called on."""

pytestmark = pytest.mark.filterwarnings("ignore:forward changes values .*PREPARED")


class Inner(pybuda.PyBudaModule):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.w = pybuda.Parameter(torch.full((1, 2), 2.0))

    def forward(self, x: pybuda.Tensor) -> pybuda.Tensor:
        return pybuda.op.Multiply("", x, self.w)


class Outer(pybuda.PyBudaModule):
    """Parameters and modules in attributes, lists and dictionaries, and a constant."""

    def __init__(self) -> None:
        super().__init__("outer")
        self.inner = Inner("inner")
        self.layers = [Inner("first"), Inner("second")]
        self.tables = {"one": pybuda.Parameter(torch.full((1, 2), 3.0), requires_grad=False)}
        self.add_constant("offset")
        self.set_constant("offset", np.full((1, 2), 0.5, "float32"))

    def pre_forward(self, x: pybuda.Tensor) -> None:
        PREPARED.append(self.name)

    def forward(self, x: pybuda.Tensor) -> pybuda.Tensor:
        for layer in (self.inner, *self.layers):
            x = layer(x)
        return x * self.tables["one"] + self.get_constant("offset")


def test_what_is_assigned_is_part_of_a_module() -> None:
    module = Outer()
    names = [parameter.get_name() for parameter in module.get_parameters()]
    assert names == ["outer.tables.one", "inner.w", "first.w", "second.w"]
    own = [parameter.get_name() for parameter in module.get_parameters(submodules=False)]
    assert own == ["outer.tables.one"]


def test_a_module_of_modules_runs() -> None:
    module, image = Outer(), torch.tensor([[1.0, -2.0]])
    assert module.run(image)[0].value().tolist() == [[24.5, -47.5]]
    assert {*PREPARED} == {"outer"}
    assert module(x=pybuda.Tensor(image)).value().tolist() == [[24.5, -47.5]]


def test_parameters_are_given_by_name() -> None:
    module = Outer()
    module.inner.set_parameter("w", torch.ones(1, 2))
    module.load_parameter_dict({"first.w": np.ones((1, 2), "float32")})
    assert module.run(torch.ones(1, 2))[0].value().tolist() == [[6.5, 6.5]]
    with pytest.raises(pybuda.PyBudaError, match=r"has no parameter inner.v; it has .*inner.w"):
        module.load_parameter_dict({"second.w": torch.zeros(1, 2), "inner.v": torch.ones(1, 2)})
    with pytest.raises(pybuda.PyBudaError, match=r"'first.w' is \[1, 2\], a tensor of \[2\] came"):
        module.load_parameter_dict({"second.w": torch.zeros(1, 2), "first.w": torch.zeros(2)})
    assert module.get_parameter("second.w").value().tolist() == [[2.0, 2.0]]
    module.inner.w = pybuda.Parameter(torch.zeros(1, 2))
    assert [p.value().sum().item() for p in module.inner.get_parameters()] == [0]


def test_constants_are_added_before_they_are_used() -> None:
    module = Outer()
    with pytest.raises(pybuda.PyBudaError, match="has no constant other; it has offset"):
        module.get_constant("other")
    module.add_constant("other", prepend_name=True, shape=(1, 2))
    with pytest.raises(pybuda.PyBudaError, match=r"constant 'other' of 'outer' has no value"):
        module.get_constant("other")
    with pytest.raises(pybuda.PyBudaError, match=r"'other' is \[1, 2\], a tensor of \[3\] came"):
        module.set_constant("other", torch.zeros(3))
    with pytest.raises(pybuda.PyBudaError, match="has a constant 'offset' already"):
        module.add_constant("offset")


def test_a_shape_alone_has_no_values() -> None:
    parameter = pybuda.Parameter(3, 4, name="w")
    assert (parameter.shape, parameter.has_value()) == ((3, 4), False)
    with pytest.raises(pybuda.PyBudaError, match="parameter 'w' has no values"):
        parameter.value()
    with pytest.raises(pybuda.PyBudaError, match=r"'w' is \[3, 4\], a tensor of \[4, 3\] came"):
        parameter.set_value(torch.zeros(4, 3))
    with pytest.raises(pybuda.PyBudaError, match="has no shape"):
        pybuda.Parameter()


@pytest.mark.parametrize("trains", [True, False])
def test_parameters_of_torch_tensors_train_where_these_do(trains: bool) -> None:
    tensor = torch.randn(2, 3, requires_grad=trains)
    parameter = pybuda.Parameter.create_from_torch(tensor)
    assert torch.equal(parameter.value(), tensor)
    assert parameter.requires_grad is trains


def test_parameters_of_a_torch_module() -> None:
    module = pybuda.PyTorchModule("p", nn.Linear(2, 1))
    module.set_parameters(weight=torch.ones(1, 2), bias=pybuda.Tensor(torch.zeros(1)))
    assert [p.get_name() for p in module.get_parameters()] == ["weight", "bias"]
    assert module.run(torch.tensor([[1.0, 2.0]]))[0].value().tolist() == [[3.0]]
    with pytest.raises(pybuda.PyBudaError, match=r"'weight' is \[1, 2\], a tensor of \[2\] came"):
        module.set_parameters(bias=torch.ones(1), weight=torch.ones(2))
    assert module.module.bias.item() == 0
    with pytest.raises(pybuda.PyBudaError, match="module 'p' has no parameter wight; it has weig"):
        module.set_parameters(wight=torch.ones(1, 2))
    for prepend in (False, True):
        module.add_parameter("more", pybuda.Parameter(torch.ones(3)), prepend_name=prepend)
    assert [p.get_name() for p in module.get_parameters()][2:] == ["more", "p_more"]
    assert module.module.p_more.tolist() == [1, 1, 1]
    with pytest.raises(pybuda.PyBudaError, match=r"'p' got a Tensor; a pybuda\.Parameter was "):
        module.add_parameter("other", torch.ones(3))


def test_parameters_of_one_name_are_two() -> None:
    class Twice(pybuda.PyBudaModule):
        def __init__(self) -> None:
            super().__init__("twice")
            self.layers = [Inner("layer"), Inner("layer")]
            self.layers[1].w.set_value(torch.full((1, 2), 5.0))

        def forward(self, x: pybuda.Tensor) -> pybuda.Tensor:
            return self.layers[1](self.layers[0](x))

    assert Twice().run(torch.ones(1, 2))[0].value().tolist() == [[10.0, 10.0]]


def test_parts_are_set_after_the_constructor_of_the_base() -> None:
    class Early(pybuda.PyBudaModule):
        def __init__(self) -> None:
            self.size = 2
            self.w = pybuda.Parameter(torch.zeros(2))

        def forward(self, x: pybuda.Tensor) -> pybuda.Tensor:
            return x

    with pytest.raises(pybuda.PyBudaError, match=r"Early sets 'w' before super\(\).__init__"):
        Early()


def test_what_a_forward_returns_is_looked_at() -> None:
    class Wrong(pybuda.PyBudaModule):
        def forward(self, x):
            return x.value()

    with pytest.raises(
        Exception, match=r"forward returned \w*Tensor; pybuda tensors were expected"
    ):
        Wrong("wrong").run(torch.zeros(1, 2))


@pytest.mark.parametrize(
    ("dtype", "form"),
    [
        (torch.float32, DataFormat.Float32),
        (torch.float16, DataFormat.Float16),
        (torch.bfloat16, DataFormat.Float16_b),
        (torch.int8, DataFormat.Int8),
        (torch.int64, DataFormat.Int32),
        (torch.bool, DataFormat.Bfp2_b),
    ],
    ids=str,
)
def test_a_tensor_knows_its_format(dtype: torch.dtype, form: DataFormat) -> None:
    tensor = pybuda.Tensor.create_from_torch(torch.zeros(2, 3, dtype=dtype))
    assert (tensor.data_format, tensor.pt_data_format, tensor.shape) == (form, dtype, (2, 3))
    assert DataFormat.from_json(form.to_json()) is form


def test_a_tensor_of_a_type_without_format_is_refused() -> None:
    with pytest.raises(
        pybuda.PyBudaError, match=r"no format for torch.complex64; it takes float16"
    ):
        pybuda.Tensor.create_from_torch(torch.zeros(1, dtype=torch.complex64))


def test_tensors_are_given_to_other_libraries() -> None:
    tensor = pybuda.Tensor(torch.ones(2))
    assert tensor.to_pytorch() is tensor.value() is tensor.to_framework("pytorch")
    assert isinstance(tensor.to_framework("numpy"), np.ndarray)
    with pytest.raises(pybuda.PyBudaError, match="'jax' is no framework here"):
        tensor.to_framework("jax")


def test_arithmetic_of_tensors() -> None:
    tensor, weight = pybuda.Tensor(torch.tensor([2.0])), pybuda.Parameter(torch.tensor([3.0]))
    results = [
        tensor + weight,
        tensor - 1,
        1 - tensor,
        2 * tensor,
        weight * tensor,
        weight - tensor,
    ]
    assert [result.value().item() for result in results] == [5, 1, -1, 4, 6, 1]


def test_a_device_is_there() -> None:
    assert pybuda.detect_available_devices() == [pybuda.BackendDevice.Wormhole_B0]
    assert pybuda.BackendDevice.from_string("grayskull") is pybuda.BackendDevice.Grayskull
    with pytest.raises(ValueError, match="'rdu' is no architecture; there are Grayskull"):
        pybuda.BackendDevice.from_string("rdu")


def test_what_operators_give_is_tapped() -> None:
    device = pybuda.TTDevice("tt0", module=[Named("named"), Inner("other")])
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    plain = pybuda.run_inference(inputs=[x]).get(timeout=60)[0].value()
    (named, _) = device.modules
    assert isinstance(named, Named)
    taps = [named.insert_tapout_queue_for_op(name, 0) for name in ("double", "again")]
    verified = pybuda.VerifyConfig(pcc=None, atol=1e-5)
    (found,) = pybuda.run_inference(inputs=[x], _verify_cfg=verified).get(timeout=60)
    assert torch.equal(found.value(), plain)
    assert [tap.get(timeout=60).value().tolist() for tap in taps] == [
        (2 * x).tolist(),
        (4 * x).tolist(),
    ]
    assert all(tap.empty() for tap in taps)
    with pytest.raises(pybuda.PyBudaError, match="output_index is 1; an operator has one output"):
        named.insert_tapout_queue_for_op("double", 1)
    named.insert_tapout_queue_for_op("nowhere")
    with pytest.raises(pybuda.PyBudaError, match="there is no operator 'nowhere' to tap"):
        pybuda.run_inference(inputs=[x])


def test_results_on_the_way_are_saved() -> None:
    """Of operators of PyBuda by name, of modules of torch by path, of nodes of ONNX by name."""
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Sequential(torch.nn.Tanh()))
    model = tanh(2)
    model.graph.node[0].name = "squash"
    names = ["again", "squash", "double", "1.0", "nowhere"]
    pybuda.set_configuration_options(op_intermediates_to_save=names)
    placed = [Named("named"), later(layers, "layers"), pybuda.OnnxModule("onnx", model)]
    device = pybuda.TTDevice("tt0", module=placed)
    tap = placed[0].insert_tapout_queue_for_op("double")
    x = torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    with pytest.warns(UserWarning, match="fits 'nowhere'; it has no effect"):
        results = pybuda.run_inference(inputs=[x, -x])
    saved = pybuda.get_intermediates_queue()
    for given in (x, -x):
        middle = evaluated(layers, 4 * given)
        near(results.get(timeout=60), [middle.tanh()])
        near(saved.get(timeout=60), [4 * given, middle.tanh(), 2 * given, middle])
        assert torch.equal(tap.get(timeout=60).value(), 2 * given)
    image = device.compile_to_image(sample_inputs=(x,))
    pybuda.pybuda_reset()
    pybuda.TTDevice.load_image(img=image).push_to_inputs(x)
    near(pybuda.run_inference().get(timeout=60), [evaluated(layers, 4 * x).tanh()])
    assert pybuda.get_intermediates_queue().empty()
    assert pybuda.get_intermediates_queue() is not saved


class Named(pybuda.PyBudaModule):
    """Two operators, and a submodule with one."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.doubled = Doubled("doubled")

    def forward(self, x: pybuda.Tensor) -> pybuda.Tensor:
        return self.doubled(pybuda.op.Add("double", x, x))


class Doubled(pybuda.PyBudaModule):
    def forward(self, x: pybuda.Tensor) -> pybuda.Tensor:
        return pybuda.op.Add("again", x, x)


def test_what_does_not_fit_a_module_is_not_told_at_a_line_of_the_toolchain() -> None:
    module = pybuda.PyTorchModule("layer", torch.nn.Linear(4, 3))
    with pytest.raises(sambac.CompileError, match=r"^Linear cannot be exported: a and b must have"):
        module.run(torch.ones(2, 5))
    with pytest.raises(sambac.CompileError, match=r"^Linear cannot be exported: .* 'inpt'"):
        pybuda.run_inference(module, inputs=[{"inpt": torch.ones(2, 4)}])
