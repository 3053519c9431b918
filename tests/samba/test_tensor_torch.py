"""SambaTensors and converted modules are used like those of torch."""

from __future__ import annotations

import copy
import io
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import sambaflow.samba as samba

_A = torch.tensor([[1.0, -2.0], [3.0, 4.0]])
_B = torch.tensor([[1.0, 5.0], [-3.0, 0.5]])

_BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "//": lambda a, b: a // b,
    "%": lambda a, b: a % b,
    "**": lambda a, b: a.abs() ** b,
    "@": lambda a, b: a @ b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "&": lambda a, b: (a > 0) & (b > 0),
    "torch.add": torch.add,
    "torch.cat": lambda a, b: torch.cat([a, b]),
    "torch.where": lambda a, b: torch.where(a > 0, a, b),
}


@pytest.mark.parametrize("operator", _BINARY)
def test_operators_with_plain_tensors_on_either_side(operator: str) -> None:
    compute = _BINARY[operator]
    expected = compute(_A, _B)
    a, b = samba.SambaTensor(_A), samba.SambaTensor(_B)
    for found in (compute(a, b), compute(a, _B), compute(_A, b)):
        assert type(found) is samba.SambaTensor
        assert found.dtype is expected.dtype
        assert torch.equal(found.data, expected)


@pytest.mark.parametrize(
    "compute",
    [
        lambda x: 2 + x,
        lambda x: 2 - x,
        lambda x: x * 2 * 2,
        lambda x: 2 / x,
        lambda x: 2**x,
        lambda x: x**2,
        lambda x: x < 2,
        lambda x: -x,
        abs,
    ],
)
def test_operators_with_numbers(compute: Callable[[Tensor], Tensor]) -> None:
    found = compute(samba.SambaTensor(_A))
    assert type(found) is samba.SambaTensor
    assert torch.equal(found.data, compute(_A))


def test_types_are_promoted_as_torch_does() -> None:
    narrow, wide = samba.ones(2, dtype=torch.bfloat16), samba.ones(2)
    assert samba.add(narrow, wide).dtype is torch.float32
    assert (narrow + 1).dtype is torch.bfloat16
    assert (samba.ones(2, dtype=torch.int32) + 0.5).dtype is torch.float32


def test_counting_correct_predictions() -> None:
    predicted = samba.tensor([1, 2, 3])
    labels = torch.tensor([1, 0, 3])
    assert (predicted == labels).sum().item() == 2
    assert predicted.float().mean().item() == 2


def test_single_values_are_numbers() -> None:
    loss = samba.tensor([0.25, 1.5]).sum()
    assert f"{loss:.3f} {loss}" == "1.750 1.75"
    assert torch.tensor([loss, loss]).tolist() == [1.75, 1.75]
    assert np.mean([loss, loss]) == 1.75
    assert range(5)[samba.tensor(2)] == 2
    pair = samba.ones(2)
    assert f"{pair}" == repr(pair)


def test_in_place_operators() -> None:
    plain = _A.clone()
    tensor = samba.SambaTensor(plain, name="a")
    same = tensor
    tensor *= 2
    tensor += plain
    tensor.clamp_(max=5)
    assert tensor is same
    assert tensor.sn_name == "a"
    assert plain.tolist() == [[4, -8], [5, 5]]


def test_views_share_memory() -> None:
    tensor = samba.zeros(2, 3)
    tensor.reshape(3, 2)[0] = 1
    tensor.view_as(torch.zeros(6))[5] = 2
    assert tensor.tolist() == [[1, 1, 0], [0, 0, 2]]


def test_tensors_are_hashed_by_identity() -> None:
    one, other = samba.ones(2), samba.ones(2)
    assert {one: 1, other: 2}[one] == 1
    assert hash(one) == id(one)
    assert one in {one}


def test_no_operator_returns_a_parameter() -> None:
    parameter = samba.SambaParameter(torch.ones(2, 2))
    results = [
        parameter + 1,
        parameter.detach(),
        parameter.float().T,
        parameter.bfloat16(),
        *parameter.unbind(),
        *torch.max(parameter, dim=0),
        *parameter.split(1),
    ]
    assert {type(result) for result in results} == {samba.SambaTensor}
    assert not any(isinstance(result, nn.Parameter) for result in results)
    assert torch.nn.init.zeros_(parameter) is parameter


def test_named_results_keep_their_fields() -> None:
    found = samba.SambaTensor(_A).max(dim=1)
    assert type(found) is type(_A.max(dim=1))
    assert type(found.values) is samba.SambaTensor
    assert found.indices.tolist() == [0, 1]


def test_no_grad() -> None:
    tensor = samba.ones(2, requires_grad=True)
    with torch.no_grad():
        assert not (tensor * 2).requires_grad
    assert (tensor * 2).requires_grad


def test_gradients_are_those_of_torch() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(2, 3), nn.LayerNorm(3), nn.GELU(), nn.Linear(3, 1))
    twin = copy.deepcopy(model)
    samba.from_torch_model_(model)
    x = samba.from_torch_tensor(_A.clone().requires_grad_(), name="x")
    y = _A.clone().requires_grad_()
    out = model(x)
    assert type(out) is samba.SambaTensor
    out.mean().backward()
    twin(y).mean().backward()
    for ours, theirs in zip([x, *model.parameters()], [y, *twin.parameters()], strict=True):
        assert ours.grad is not None
        assert theirs.grad is not None
        assert torch.equal(ours.grad, theirs.grad)


def test_a_tensor_of_a_graph_stays_in_it() -> None:
    x = _A.clone().requires_grad_()
    samba.from_torch_tensor(x * 2).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[2, 2], [2, 2]]
    assert samba.SambaTensor(x * 2, requires_grad=False).is_leaf


def test_a_leaf_brings_its_gradient() -> None:
    x = _A.clone().requires_grad_()
    x.sum().backward()
    tensor = samba.from_torch_tensor(x)
    assert tensor.grad is not None
    assert tensor.is_leaf
    assert tensor.requires_grad


def test_functions_of_numpy() -> None:
    a, b = samba.SambaTensor(_A), samba.SambaTensor(_B)
    found = np.add(a, b)
    assert type(found) is samba.SambaTensor
    assert torch.equal(found.data, _A + _B)
    for left, right in ((a, _B.numpy()), (_A.numpy(), b), (a, 2.0), (2.0, a)):
        found = np.multiply(left, right)
        assert type(found) is samba.SambaTensor
        expected = np.multiply(np.asarray(left), np.asarray(right))
        assert np.array_equal(np.asarray(found), expected)
    assert np.equal(a, a).all()
    assert type(_A.numpy() + b) is samba.SambaTensor


def test_functions_of_numpy_keep_the_graph_and_narrow_types() -> None:
    tensor = samba.ones(2, dtype=torch.bfloat16, requires_grad=True)
    found = np.exp(tensor)
    assert found.dtype is torch.bfloat16
    found.sum().backward()
    assert tensor.grad is not None


def test_what_numpy_alone_can_do_gives_arrays() -> None:
    tensor = samba.SambaTensor(_A)
    assert isinstance(np.cbrt(tensor), np.ndarray)
    assert np.add.reduce(tensor).tolist() == [4, 2]
    out = np.zeros((2, 2), np.float32)
    assert np.add(tensor, tensor, out=out) is out
    assert out[1, 1] == 8
    assert np.allclose(tensor, _A.numpy())
    assert np.shares_memory(np.asarray(tensor), _A.numpy())


def test_deep_copies() -> None:
    tensor = samba.ones(2, name="a", requires_grad=True)
    tensor.sum().backward()
    twin = copy.deepcopy(tensor)
    assert type(twin) is samba.SambaTensor
    assert (twin.sn_name, twin.requires_grad) == ("a", True)
    twin.data[0] = 5
    assert tensor.tolist() == [1, 1]
    assert twin.grad is not None
    assert twin.grad is not tensor.grad
    model = nn.Linear(2, 2)
    samba.from_torch_model_(model)
    assert type(copy.deepcopy(model).weight) is samba.SambaParameter
    shared = copy.deepcopy([tensor, tensor])
    assert shared[0] is shared[1]


def test_what_is_no_leaf_is_not_copied() -> None:
    with pytest.raises(RuntimeError, match="detach"):
        copy.deepcopy(samba.ones(2, requires_grad=True) * 2)


def _through_a_file(value: object, **options: bool) -> object:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    loaded: object = torch.load(file, **options)
    return loaded


def test_saving_a_tensor() -> None:
    tensor = samba.ones(2, name="a", batch_dim=0, region_name="r", requires_grad=True)
    tensor.materializer = lambda tensor, rng: torch.ones(2)
    found = _through_a_file(tensor)
    assert isinstance(found, samba.SambaTensor)
    assert torch.equal(found.data, tensor.data)
    assert (found.sn_name, found.batch_dim, found.sn_region_name) == ("a", 0, "r")
    assert found.requires_grad
    assert not found.materializer_provided


def test_a_checkpoint_that_names_the_module_of_before_is_loaded() -> None:
    """`weights_only`, which is torch's default, takes such names where they are said to be safe."""
    model = nn.Linear(2, 2)
    samba.from_torch_model_(model)
    file = io.BytesIO()
    torch.save(model.state_dict(), file, _use_new_zipfile_serialization=False)
    renamed = file.getvalue().replace(
        b"csambaflow.samba.tensors.tensor\n", b"csambaflow.samba.tensor\n"
    )
    assert renamed != file.getvalue()
    for weights_only in (True, False):
        found = torch.load(io.BytesIO(renamed), weights_only=weights_only)
        assert torch.equal(found["weight"], model.weight)
        assert found["weight"].sn_name == "linear__weight"
    assert samba.tensor([1, 2]).tolist() == [1, 2]


def test_saving_a_model() -> None:
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    samba.from_torch_model_(model)
    found = _through_a_file(model, weights_only=False)
    assert isinstance(found, nn.Sequential)
    assert type(found[0].weight) is samba.SambaParameter
    assert found[0].weight.sn_name == "sequential__0__weight"
    samba.from_torch_model_(found)
    assert torch.equal(found(_A), model(_A))


def test_saving_a_state_dict_with_default_options() -> None:
    model = nn.Linear(2, 2)
    samba.from_torch_model_(model)
    state = _through_a_file(model.state_dict())
    assert isinstance(state, dict)
    plain = nn.Linear(2, 2)
    plain.load_state_dict(state)
    assert type(plain.weight) is nn.Parameter
    assert torch.equal(plain.weight.data, model.weight.data)


def test_loading_plain_tensors_into_a_converted_model() -> None:
    model = nn.Linear(2, 2)
    samba.from_torch_model_(model)
    model.load_state_dict({"weight": _A, "bias": torch.zeros(2)})
    assert type(model.weight) is samba.SambaParameter
    assert torch.equal(model.weight.data, _A)
    assert model.weight.data_ptr() != _A.data_ptr()


@pytest.mark.filterwarnings("ignore:for weight")  # torch thinks that copying does nothing
def test_loading_into_a_parameter_without_values() -> None:
    model = nn.Linear(2, 2, bias=False)
    model.weight = samba.SambaParameter(shape=(2, 2), name="w")
    model.load_state_dict({"weight": _A.double()})
    assert type(model.weight) is samba.SambaParameter
    assert torch.equal(model.weight.data, _A)
    assert model.weight.sn_name == "w"


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_models_of_other_types(dtype: torch.dtype) -> None:
    model = nn.Linear(2, 2)
    samba.from_torch_model_(model)
    weight = model.weight
    model(_A).sum().backward()
    model.to(dtype)
    assert model.weight is weight
    assert weight.dtype is dtype
    assert weight.grad is not None
    assert weight.grad.dtype is dtype
    assert weight.sn_name == "linear__weight"  # type: ignore[attr-defined]
    assert model.half().bias.dtype is torch.float16


def test_methods_of_modules() -> None:
    model = nn.Linear(2, 2)
    samba.from_torch_model_(model)
    model.apply(lambda module: module.weight.data.fill_(3))  # type: ignore[union-attr]
    assert model.weight[0, 0] == 3
    model(_A).sum().backward()
    assert torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0) > 1
    norms = [
        parameter.grad.norm() for parameter in model.parameters() if parameter.grad is not None
    ]
    assert torch.stack(norms).norm().item() == pytest.approx(1, rel=1e-4)
    model.zero_grad()
    assert model.weight.grad is None
    assert [name for name, _ in model.named_parameters()] == ["weight", "bias"]
    model.requires_grad_(False)
    assert not model(_A).requires_grad


@pytest.mark.parametrize("before", [True, False])
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW, torch.optim.Adam])
def test_optimizers_of_torch(kind: type[torch.optim.Optimizer], before: bool) -> None:
    torch.manual_seed(0)
    model = nn.Linear(2, 2)
    twin = copy.deepcopy(model)
    theirs = kind(twin.parameters(), lr=0.1)  # type: ignore[call-arg]
    optimizer = kind(model.parameters(), lr=0.1) if before else None  # type: ignore[call-arg]
    samba.from_torch_model_(model)
    optimizer = optimizer or kind(model.parameters(), lr=0.1)  # type: ignore[call-arg]
    for _ in range(3):
        for net, optim in ((model, optimizer), (twin, theirs)):
            optim.zero_grad()
            net(_A).square().mean().backward()
            optim.step()
    assert torch.equal(model.weight.data, twin.weight.data)
    assert type(model.weight) is samba.SambaParameter


def test_exported_weights_can_be_released() -> None:
    # torch.export leaves weak references to the parameters behind.
    model = nn.Linear(2, 2)
    torch.export.export(model, (_A,))
    samba.from_torch_model_(model)
    model.weight.clear_data()  # type: ignore[operator]
    assert model.weight.is_meta
