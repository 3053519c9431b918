"""Torch modules that train, cut at operators: each piece is a program with a memory of its own.

A piece takes what the one before gives: tensors that operators behind it read, among them those
that only pass through. Operators and parameters are called what they are in the whole.
"""

from __future__ import annotations

import re
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter

import torch
from torch import Tensor, fx, nn

from .cut_places import led_by, places_of
from .errors import HostError
from .models import in_mode
from .onnx_cuts import cut_model
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
    goes to the last piece. The first piece has something that can have a gradient. Raises
    `HostError` for what cannot be recorded, or not in pieces.
    """
    if not breaks:
        return [module]
    if isinstance(module, OnnxPart):
        return cut_model(module, inputs, breaks)
    from sambac.frontend.torch.programs.regions import without_regions  # loads the compiler

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
    numbers = _numbers(whole, inputs, breaks)
    count = 1 + max(numbers.values())
    if count == 1:
        return [module]
    _require_apart(whole.graph, numbers, name)
    return [_piece(whole, numbers, number, name) for number in range(count)]


def _numbers(whole: fx.GraphModule, inputs: int, breaks: Sequence[str]) -> _Numbers:
    """Return which piece each node is in; pieces without operators are none."""
    graph = whole.graph
    operators = [node for node in graph.nodes if node.op == "call_function"]
    patterns = [re.compile(pattern) for pattern in breaks]
    begin = {node for pattern in patterns for node in _first(operators, pattern)}
    given = [node for node in graph.nodes if node.op == "placeholder"]
    starts = {node: at for at, node in enumerate((n for n in operators if n in begin), start=1)}
    starts |= dict.fromkeys(given[inputs:], len(begin))
    reads = {n: n.all_input_nodes for n in graph.nodes if n.op not in ("get_attr", "output")}
    found = places_of(reads, starts, operators)
    tensors = [node for node in graph.nodes if node.op == "get_attr"]
    found |= {
        node: min((found[n] for n in node.users if n in found), default=0) for node in tensors
    }
    read = [node for node in tensors if node.users]
    trained = [node for node in read if attrgetter(str(node.target))(whole).requires_grad]
    floats = [node for node in given[:inputs] if node.meta["val"].is_floating_point()]
    trains = _with_gradients(graph)
    found = led_by(found, (found[node] for node in (*floats, *trained) if node in trains))
    return found | {graph.output_node(): max(found.values())}


def _with_gradients(graph: fx.Graph) -> set[fx.Node]:
    """Return the nodes that a gradient comes back to from the results: not through a detach."""
    found = {*graph.output_node().all_input_nodes}
    for node in reversed(graph.nodes):
        if node in found and node.target is not torch.ops.aten.detach.default:
            found.update(node.all_input_nodes)
    return found


def _first(operators: Sequence[fx.Node], pattern: re.Pattern[str]) -> list[fx.Node]:
    """Return the first operator that `pattern` means, none if there is none."""
    means = (node for node in operators if any(map(pattern.fullmatch, (_path(node), node.name))))
    return [node for node in [next(means, None)] if node is not None]


def _require_apart(graph: fx.Graph, numbers: _Numbers, name: str) -> None:
    """Raise `HostError` where pieces would read something else than the whole, as some write."""
    order = {node: at for at, node in enumerate(graph.nodes)}
    shared: defaultdict[int, list[fx.Node]] = defaultdict(list)
    for node in graph.nodes:
        for memory in {*_memories(node)}:
            shared[memory].append(node)
    writes: defaultdict[int, list[fx.Node]] = defaultdict(list)
    for node in graph.nodes:
        for memory in {each for given in _written(node) for each in _memories(given)}:
            writes[memory].append(node)
    for memory, writers in writes.items():
        if not _is_apart(shared[memory], writers, numbers, order):
            raise HostError(
                f"{name} cannot be cut at a chip break: '{writers[0].name}' in "
                f"'{_path(writers[0])}' writes to what is read on another chip, to "
                f"'{shared[memory][0].name}'; write to a copy of it"
            )


def _is_apart(
    views: Sequence[fx.Node],
    writers: Sequence[fx.Node],
    numbers: _Numbers,
    order: Mapping[fx.Node, int],
) -> bool:
    """Tell whether pieces read the same in `views` of one memory as the whole, where some write.

    They do if all is in one piece. Else one piece writes, to a copy of which no other reads more;
    and pieces before it read what was there before, those behind it what is there in the end.
    """
    touching = {*views, *(user for view in views for user in view.users)}
    if len({numbers[node] for node in touching}) == 1:
        return True
    places = {numbers[node] for node in writers}
    if len(places) > 1 or any(view.op == "get_attr" for view in views):
        return False
    (place,) = places
    first, last = min(map(order.__getitem__, writers)), max(map(order.__getitem__, writers))
    entering = [
        view
        for view in views
        if numbers[view] < place and any(numbers[user] >= place for user in view.users)
    ]
    return (
        all(order[node] < first for node in touching if numbers[node] < place)
        and all(order[node] > last for node in touching if numbers[node] > place)
        and len(entering) <= 1
        and all(numbers[user] <= place for view in entering for user in view.users)
    )


def _memories(node: fx.Node) -> Iterator[int]:
    """Yield what stands for the memory of each tensor that a node gives; views share it."""
    given = node.meta.get("val")
    for value in given if isinstance(given, (list, tuple)) else (given,):
        if isinstance(value, Tensor):
            yield value.untyped_storage()._cdata


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
