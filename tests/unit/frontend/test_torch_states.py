"""What a PyTorch module keeps from step to step: parameters, buffers, tied weights, updates."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch_runs import Lambda, operators, run_training, training_source

from sambac.errors import CompileError
from sambac.frontend import Source, load
from sambac.graph.constants import is_absent
from sambac.options import CompileOptions


class _Everything(nn.Module):
    """Tied, frozen, unused and equal parameters; buffers of every sort."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.norms = nn.ModuleList(nn.LayerNorm(4) for _ in range(2))
        self.head = nn.Linear(4, 7, bias=False)
        self.head.weight = self.embedding.weight
        self.unused = nn.Linear(2, 2)
        self.scale = nn.Parameter(torch.full((4,), 2.0), requires_grad=False)
        self.register_buffer("kept", torch.tensor([1.0, 2.0, 3.0, 4.0]))
        self.register_buffer("constant", torch.ones(4), persistent=False)
        self.register_buffer("calls", torch.tensor(5), persistent=False)
        self.register_buffer("average", torch.zeros(4))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens) * self.scale + self.kept + self.constant
        if self.training:
            self.calls += 1
            with torch.no_grad():
                self.average.mul_(0.75).add_(x.mean((0, 1)), alpha=0.25)
        for norm in self.norms:
            x = norm(x)
        return self.head(x)


@pytest.fixture(scope="module")
def module() -> _Everything:
    torch.manual_seed(0)
    return _Everything().eval()


@pytest.fixture(scope="module")
def source(module: _Everything) -> Source:
    return training_source(module, torch.tensor([[1, 2, 3]]))


def test_roles(source: Source) -> None:
    roles = source.roles
    assert roles is not None
    assert roles.parameters == (
        "scale", "embedding.weight", "norms.0.weight", "norms.0.bias", "norms.1.weight",
        "norms.1.bias", "unused.weight", "unused.bias",
    )  # fmt: skip
    assert roles.frozen == {"scale"}
    assert roles.buffers == ("kept", "calls", "average")
    assert roles.aliases == {"head.weight": "embedding.weight"}
    assert roles.updates == {"calls": "calls__next", "average": "average__next"}


def test_states_are_initializers_of_both_graphs(source: Source, module: _Everything) -> None:
    assert source.roles is not None
    assert source.evaluation is not None
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    for model in (source.model, source.evaluation):
        for name in (*source.roles.parameters, *source.roles.buffers):
            content = model.graph.initializers[name].const_value
            assert content is not None
            np.testing.assert_array_equal(content.numpy(), tensors[name].detach().numpy())


def test_contents_share_the_memory_of_the_module(source: Source, module: _Everything) -> None:
    content = source.model.graph.initializers["embedding.weight"].const_value
    assert content is not None
    assert np.shares_memory(content.numpy(), module.embedding.weight.detach().numpy())


def test_updates_follow_the_public_outputs(source: Source) -> None:
    names = [value.name for value in source.model.graph.outputs]
    assert names == ["output", "calls__next", "average__next"]
    assert source.signature.outputs == ("output",)
    assert source.evaluation is not None
    assert [value.name for value in source.evaluation.graph.outputs] == ["output"]


def test_the_module_is_not_changed(source: Source, module: _Everything) -> None:
    assert not any(part.training for part in module.modules())
    assert module.calls == 5
    assert module.average.count_nonzero() == 0


def test_updates_have_the_values_of_the_module(source: Source) -> None:
    torch.manual_seed(0)
    reference = _Everything().train()
    tokens = torch.tensor([[1, 2, 3]])
    reference(tokens)
    got = run_training(source, tokens)
    np.testing.assert_allclose(got["average__next"], reference.average.numpy(), rtol=1e-5)
    assert got["calls__next"] == reference.calls


def test_equal_parameters_stay_apart(source: Source) -> None:
    weights = [source.model.graph.initializers[f"norms.{index}.weight"] for index in (0, 1)]
    assert all(len(weight.uses()) == 1 for weight in weights)


def test_no_statistics_of_a_batch_are_lost_by_instance_norm() -> None:
    norm = nn.InstanceNorm2d(3, track_running_stats=True, affine=True, momentum=0.25)
    x = torch.randn(2, 3, 5, 5)
    source = training_source(norm, x)
    got = run_training(source, x)
    norm(x)
    for name in ("running_mean", "running_var"):
        want = dict(norm.named_buffers())[name].numpy()
        np.testing.assert_allclose(got[f"{name}__next"], want, rtol=1e-5, atol=1e-6)


def test_batch_norm_without_statistics_uses_the_batch() -> None:
    for norm in (nn.BatchNorm1d(3, track_running_stats=False),
                 nn.BatchNorm1d(3, track_running_stats=False, affine=False)):  # fmt: skip
        x = torch.randn(6, 3) + 4
        source = training_source(norm, x)
        got = run_training(source, x)["output"]
        np.testing.assert_allclose(got, norm(x).detach().numpy(), atol=1e-5)


def test_the_kernel_of_batch_norm_gets_statistics_of_its_own() -> None:
    """It writes over what it is given, which must not be what an update reads."""
    source = training_source(nn.BatchNorm1d(3), torch.randn(6, 3))
    (node,) = (n for n in source.model.graph if n.op_type == "BatchNormalization")
    assert all(value is not None and len(value.uses()) == 1 for value in node.inputs[3:5])
    assert all(value is not None and not value.is_initializer() for value in node.inputs[3:5])


def test_shapes_alone() -> None:
    with torch.device("meta"):
        module = _Everything().eval()
    source = load(module, CompileOptions(train=True), (torch.zeros(1, 3, dtype=torch.int64),))
    initializers = source.model.graph.initializers
    assert source.roles is not None
    assert "constant" in source.roles.buffers  # nobody else could supply its content
    for name in (*source.roles.parameters, *source.roles.buffers):
        assert is_absent(initializers[name].const_value), name
    assert "LayerNormalization" in operators(source.model)


class _Scaled(nn.Module):
    """Reads a tensor without content that is neither a parameter nor a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2, device="meta")
        self.scale = torch.ones(2, device="meta")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * self.scale


def test_shapes_alone_beside_an_input_with_content() -> None:
    with torch.device("meta"):
        module = nn.Linear(3, 2)
    source = training_source(module, torch.ones(1, 3))
    assert is_absent(source.model.graph.initializers["weight"].const_value)
    with pytest.raises(CompileError, match=r"a tensor without content.* register it as a buffer"):
        training_source(_Scaled(), torch.ones(1, 2))


class _Failing(nn.Linear):
    """Raises where it is recorded."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise ZeroDivisionError(self.weight.shape)


def test_shapes_alone_come_back_after_an_error() -> None:
    module = _Failing(3, 2, device="meta")
    weight = module.weight
    with pytest.raises(CompileError, match="_Failing cannot be exported"):
        training_source(module, torch.ones(1, 3))
    assert module.weight is weight


def test_constants_without_content_of_an_exported_program() -> None:
    program = torch.export.export(_Scaled(), (torch.ones(1, 2, device="meta"),))
    with pytest.raises(CompileError, match=r"the constants .* have no content"):
        load(program, CompileOptions(train=True))


def test_what_training_cannot_keep_is_refused() -> None:
    class Shared(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("one", torch.ones(3))
            self.register_buffer("two", self.one)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.one.add_(1)
            return x * self.two

    with pytest.raises(CompileError, match=r"writes the buffers two, which have other names"):
        training_source(Shared(), torch.randn(2, 3))

    class Writing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.no_grad():
                self.weight.clamp_(max=1)
            return functional.linear(x, self.weight)

    with pytest.raises(CompileError, match=r"writes its parameters weight"):
        training_source(Writing(), torch.randn(2, 3))
    with pytest.raises(CompileError, match=r"BatchNorm 0 has momentum=None"):
        training_source(nn.Sequential(nn.BatchNorm1d(3, momentum=None)), torch.randn(2, 3))
    with pytest.raises(CompileError, match=r"BatchNorm 0 has momentum=None"):  # it is to train
        training_source(nn.Sequential(nn.BatchNorm1d(3, momentum=None)).eval(), torch.randn(2, 3))
    frozen = nn.Sequential(nn.BatchNorm1d(3, momentum=None).eval())
    training_source(frozen, torch.randn(2, 3))  # which averages nothing


def test_an_inference_program_that_remembers_is_refused() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.tensor(0))
            self.register_buffer("unread", torch.tensor(0))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            self.unread += 1
            return x * self.calls

    with pytest.raises(CompileError, match=r"depend on calls, which every call changes"):
        load(Counting(), CompileOptions(), (torch.ones(2),))


def test_an_input_may_have_the_name_of_a_parameter() -> None:
    class Product(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.tensor([2.0, 3.0]))

        def forward(self, weight: torch.Tensor) -> torch.Tensor:
            return self.weight - weight

    source = training_source(Product(), torch.ones(2))
    assert source.signature.inputs == ("weight_1",)
    np.testing.assert_array_equal(run_training(source, torch.ones(2))["output"], [1, 2])


def test_constants_fold_although_they_are_detached() -> None:
    source = training_source(
        Lambda(lambda x: x * torch.tensor([1.0, 2.0]).detach().exp()), torch.ones(2)
    )
    assert operators(source.model) == ["Mul"]
