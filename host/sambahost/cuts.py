"""Torch modules that train, cut at operators: each piece is a program with a memory of its own.

A piece takes what the one before gives: tensors that operators behind it read, among them those
that only pass through. Operators and parameters are called what they are in the whole.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter

import torch
from torch import Tensor, fx, nn

from .errors import HostError
from .models import in_mode
from .onnx_part import OnnxPart

_Numbers = Mapping[fx.Node, int]
"""Which piece each operator, tensor of a module, input and output is in."""


class _Inside(nn.Module):
    """Where tensors of a module are, and its operators are recorded."""

    def forward(self, evaluate: Callable[[], object]) -> object:
        """Return what an operator gives."""
        return evaluate()


class ModulePiece(nn.Module):
    """Operators of a module, in order, and the tensors of it that they read.

    `name` is what messages call the module.
    """

    def __init__(self, graph: fx.Graph, tensors: Mapping[str, Tensor], name: str) -> None:
        super().__init__()
        self._graph = graph
        self._name = name
        for node in graph.nodes:
            _placed(self, _path(node))
        for path, tensor in tensors.items():
            inside, _, own = path.rpartition(".")
            place = _placed(self, inside)
            if isinstance(tensor, nn.Parameter):
                place.register_parameter(own, tensor)
            else:
                place.register_buffer(own, tensor)

    def _get_name(self) -> str:
        return self._name

    def forward(self, *tensors: Tensor) -> tuple[Tensor, ...]:
        """Return what the piece gives."""
        found: tuple[Tensor, ...] = _InPlaces(self, graph=self._graph).run(*tensors)
        return found


class _InPlaces(fx.Interpreter):
    """Runs operators in the modules that they come from, so that they are recorded there."""

    def run_node(self, n: fx.Node) -> object:
        """Return what an operator gives, or what is at a name."""
        run, path = super().run_node, _path(n)
        return _placed(self.module, path)(lambda: run(n)) if path else run(n)


def _placed(module: nn.Module, path: str) -> nn.Module:
    """Return what is at a path, which is made where it is not there."""
    for label in filter(None, path.split(".")):
        if label not in module._modules:
            module.add_module(label, _Inside())
        module = module.get_submodule(label)
    return module


def _path(node: fx.Node) -> str:
    """Return the path of the innermost module that an operator is in; empty for other nodes."""
    modules = [*node.meta.get("nn_module_stack", {}).values()]
    path = str(modules[-1][0]) if modules and node.op == "call_function" else ""
    return re.sub(r"@\d+", "", path)  # torch numbers the calls of one module


def cut(
    module: nn.Module | OnnxPart, sample: Sequence[Tensor], inputs: int, breaks: Sequence[str]
) -> Sequence[nn.Module | OnnxPart]:
    """Return the pieces of a module that trains: the first operator of each of `breaks` begins one.

    That is a pattern for the path of a module, or for the name of an operator. What needs the
    operator is behind it, all else before; what comes behind the first `inputs` of the `sample`
    goes to the last piece. Raises `HostError` for what cannot be recorded, or not in pieces, and
    for an ONNX model with such an operator.
    """
    if isinstance(module, OnnxPart):
        _require_uncut(module, breaks)
        return [module]
    if not breaks:
        return [module]
    from sambac.frontend.torch.regions import without_regions  # loads the compiler

    name = module._get_name()  # type: ignore[no-untyped-call]
    try:
        with in_mode(module, training=True), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's of its own insides
            program = torch.export.export(module, tuple(sample), strict=False)
            program = without_regions(program, training=True)
        whole = program.module(check_guards=False)
    except Exception as error:  # torch raises errors of all kinds for what it cannot record
        raise HostError(f"{name} cannot be cut at a chip break: {error}") from error
    assert isinstance(whole, fx.GraphModule)
    numbers = _numbers(whole.graph, inputs, breaks)
    count = 1 + max(numbers.values())
    if count == 1:
        return [module]
    _require_apart(whole.graph, numbers, name)
    return [_piece(whole, numbers, number, name) for number in range(count)]


def _require_uncut(part: OnnxPart, breaks: Sequence[str]) -> None:
    for node in part.model.graph.node[1:]:
        if any(
            re.fullmatch(pattern, name) for pattern in breaks for name in (node.name, *node.output)
        ):
            raise HostError(
                f"the chip break at '{node.name}' is in an ONNX model, which trains on one chip; "
                "make two models of it (onnx.utils.extract_model), which are programs of their own"
            )


def _numbers(graph: fx.Graph, inputs: int, breaks: Sequence[str]) -> _Numbers:
    """Return which piece each node is in; pieces without operators are none."""
    operators = [node for node in graph.nodes if node.op == "call_function"]
    patterns = [re.compile(pattern) for pattern in breaks]
    begin = {node for pattern in patterns for node in _first(operators, pattern)}
    starts = [node for node in operators if node in begin]
    found = {node: number for number, node in enumerate(starts, start=1)}
    found |= dict.fromkeys([n for n in graph.nodes if n.op == "placeholder"][inputs:], len(starts))
    for node in graph.nodes:
        if node.op != "get_attr":
            before = (found.get(each, 0) for each in node.all_input_nodes)
            found[node] = max(found.get(node, 0), *before, 0)
    used = sorted({found[node] for node in operators})
    last = len(used) - 1
    found = {node: used.index(n) if n in used else last * (n > 0) for node, n in found.items()}
    for node in graph.nodes:
        if node.op == "get_attr":
            found[node] = min((found[user] for user in node.users), default=0)
        elif node.op == "output":
            found[node] = last
    return found


def _first(operators: Sequence[fx.Node], pattern: re.Pattern[str]) -> list[fx.Node]:
    """Return the first operator that `pattern` means, none if there is none."""
    means = (node for node in operators if any(map(pattern.fullmatch, (_path(node), node.name))))
    return [node for node in [next(means, None)] if node is not None]


def _require_apart(graph: fx.Graph, numbers: _Numbers, name: str) -> None:
    """Raise `HostError` where an operator writes to what operators of other pieces read, too."""
    for node in graph.nodes:
        for given in _written(node):
            shared = len({numbers[user] for user in given.users}) > 1
            if shared or (given.op != "get_attr" and (len(given.users) > 1 or _is_view(given))):
                raise HostError(
                    f"{name} cannot be cut at a chip break: '{node.name}' in '{_path(node)}' "
                    f"writes to '{given.name}', which others read; write to a copy of it"
                )


_STATISTICS = (torch.ops.aten.batch_norm.default, torch.ops.aten.instance_norm.default)
"""Operators that write to statistics, their fourth and fifth arguments: no schema says so."""


def _written(node: fx.Node) -> list[fx.Node]:
    """Return what an operator writes to."""
    kind, found = node.target, []
    if kind in _STATISTICS:
        found = [*node.args[3:5]]
    elif isinstance(kind, torch._ops.OpOverload):
        pairs = zip(kind._schema.arguments, node.args, strict=False)  # others have their defaults
        found = [given for said, given in pairs if said.alias_info and said.alias_info.is_write]
    return [given for given in found if isinstance(given, fx.Node)]


def _is_view(node: fx.Node) -> bool:
    """Return whether what an operator gives shares the memory of what it takes."""
    kind = node.target
    returns = kind._schema.returns if isinstance(kind, torch._ops.OpOverload) else ()
    return any(said.alias_info and not said.alias_info.is_write for said in returns)


def _crossing(graph: fx.Graph, numbers: _Numbers, number: int) -> list[fx.Node]:
    """Return what the piece `number` gives: what is there by then, and read behind it."""
    return [
        node
        for node in graph.nodes
        if numbers[node] <= number and any(numbers[user] > number for user in node.users)
    ]


def _piece(whole: fx.GraphModule, numbers: _Numbers, number: int, name: str) -> ModulePiece:
    graph, made = fx.Graph(), {}
    tensors: dict[str, Tensor] = {}
    for node in _crossing(whole.graph, numbers, number - 1):
        made[node] = graph.placeholder(node.name)
    for node in whole.graph.nodes:
        if numbers[node] != number:
            continue
        made[node] = graph.node_copy(node, made.__getitem__)
        if node.op == "get_attr":
            tensors[str(node.target)] = attrgetter(str(node.target))(whole)
    if not any(node.op == "output" for node in graph.nodes):
        graph.output(tuple(made[node] for node in _crossing(whole.graph, numbers, number)))
    return ModulePiece(graph, tensors, name)
