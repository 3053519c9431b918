"""A glance at modules sees every change that a whole look would, and never one that is none."""

from __future__ import annotations

from collections.abc import Callable

import onnx
import pytest
import torch
from torch import nn

from sambahost.models import Glance, Version, structure_of
from sambahost.onnx_part import OnnxPart


class Holding(nn.Module):
    """Holds a bit of everything."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
        self.factor = 3.0
        self.sizes = [1, [2, torch.zeros(2)]]
        self.named = {"a": {"b": 1}, "c": (1, 2)}
        self.first, self.then = [1, 2], [3]
        self.many = nn.ParameterList([nn.Parameter(torch.ones(1)) for _ in range(101)])
        self.deep = nn.Sequential(*(nn.Identity() for _ in range(101)))
        self.mask = torch.ones(2)


def _data(of: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Holding], object]:
    return lambda m: setattr(m.layers[0].weight, "data", of(m.layers[0].weight.data))


def _version(module: Holding) -> Version:
    tensors = (*module.parameters(), *module.buffers())
    return Version(tensors, structure_of(module), module.modules())


def _write(module: Holding) -> None:
    with torch.no_grad():
        module.layers[0].bias.add_(1)


def _rename(module: Holding) -> None:
    module.masked = module.mask  # in the place of the last attribute
    del module.mask


CHANGES: dict[str, Callable[[Holding], object]] = {
    "a number": lambda m: setattr(m, "factor", 4.0),
    "an item of a list": lambda m: m.sizes.__setitem__(0, 2),
    "an item more": lambda m: m.sizes.append(1),
    "a list in a list": lambda m: m.sizes[1].pop(),
    "a tensor in lists": lambda m: m.sizes[1][1].add_(1),
    "a dictionary in another": lambda m: m.named["a"].update(b=2),
    "another key": lambda m: m.named["a"].update(d=m.named["a"].pop("b")),
    "another tuple": lambda m: m.named.update(c=(1, 3)),
    "a tensor": lambda m: m.mask.mul_(2),
    "another tensor": lambda m: setattr(m, "mask", torch.ones(2)),
    "a parameter": _write,
    "data of a parameter": _data(torch.zeros_like),
    "the same data turned": _data(torch.t),
    "a part of the same data": _data(lambda weight: weight[:1]),
    "one of many parameters": lambda m: m.many[5].requires_grad_(False).add_(1),
    "another one of many layers": lambda m: m.deep.__setitem__(5, nn.ReLU()),
    "an item that moves to the next list": lambda m: m.then.insert(0, m.first.pop()),
    "another parameter": lambda m: setattr(m.layers[0], "bias", nn.Parameter(torch.zeros(2))),
    "a parameter less": lambda m: m.layers[0].register_parameter("bias", None),
    "a buffer": lambda m: m.layers[1].running_mean.add_(1),
    "a setting of a layer": lambda m: setattr(m.layers[1], "eps", 0.1),
    "another layer": lambda m: m.layers.__setitem__(1, nn.Identity()),
    "a layer more": lambda m: m.layers.append(nn.Identity()),
    "a hook": lambda m: m.layers[0].register_forward_hook(lambda *_: None),
    "attributes anew": lambda m: setattr(m, "__dict__", {**vars(m), "factor": 5.0}),
    "another name": _rename,
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_changes_are_seen(change: Callable[[Holding], object]) -> None:
    module = Holding()
    glance, before = Glance(module.modules()), _version(module)
    module.layers.eval()(torch.ones(1, 2))
    module.layers.train()
    assert glance.is_same()
    change(module)
    assert not glance.is_same()
    assert not before.is_that_of(_version(module))


def test_a_version_stands_again_after_a_whole_look() -> None:
    module = Holding()
    before = _version(module)
    module.eval()  # which counts for nobody
    assert before.stands()
    module.factor = float("3.0")  # another object, which is equal
    assert not before.stands()
    after = _version(module)
    assert before.is_that_of(after)
    assert after.stands()


def test_what_torch_does_not_count_is_never_the_same() -> None:
    module = nn.Module()
    with torch.inference_mode():
        module.kept = torch.ones(2)
    assert not Glance([module]).is_same()


MODEL_CHANGES: dict[str, Callable[[onnx.GraphProto], object]] = {
    "an operator": lambda graph: setattr(graph.node[0], "op_type", "Sub"),
    "an operator less": lambda graph: graph.node.pop(),
    "operators in another order": lambda graph: graph.node.reverse(),
    "an operator that another takes the place of": lambda graph: graph.node[1].CopyFrom(
        onnx.helper.make_node("Tanh", ["h"], ["y"])
    ),
    "a size of an input": lambda graph: setattr(
        graph.input[0].type.tensor_type.shape.dim[0], "dim_value", 3
    ),
    "a name of an output": lambda graph: setattr(graph.output[0], "name", "h"),
    "a small weight": lambda graph: graph.initializer[0].float_data.__setitem__(0, 7.0),
    "the name of a large one": lambda graph: setattr(graph.initializer[1], "name", "z"),
    "the size of a large one": lambda graph: graph.initializer[1].dims.__setitem__(0, 1),
    "one of another size in its place": lambda graph: graph.initializer[1].CopyFrom(
        onnx.helper.make_tensor("large", 1, [50, 2], [1.0] * 100)
    ),
    "the type of a large one": lambda graph: setattr(graph.initializer[1], "data_type", 11),
    "a weight more": lambda graph: graph.initializer.add(name="z"),
}


@pytest.mark.parametrize("change", MODEL_CHANGES.values(), ids=MODEL_CHANGES)
def test_changes_of_an_onnx_model_are_seen(change: Callable[[onnx.GraphProto], object]) -> None:
    model = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["": 17]>
        g (float[2] x) => (float[2] y) { h = Add(x, w) y = Relu(h) }
    """)
    for name, size in (("w", 2), ("large", 100)):
        values = [1.0] * size
        model.graph.initializer.append(onnx.helper.make_tensor(name, 1, [size], values))
    part = OnnxPart(model)
    before = part.mark()
    assert part.mark() == before == OnnxPart(model).mark()
    change(model.graph)
    assert part.mark() != before
    assert part.mark() == OnnxPart(model).mark()
