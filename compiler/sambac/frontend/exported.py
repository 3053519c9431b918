"""What PyTorch's exporter notes in ONNX files about constants, without which training is wrong.

`torch.onnx.export` writes down which tensors were parameters and which buffers, and of each
operator the call that it was made of. Its optimizer then stores equal constants once, and computes
what depends on constants alone:

    two fresh LayerNorms     one scale and one bias for both: they would learn as one
    x @ w.T and f(w)         w, and w.T as another constant: they would learn apart
    (x - mean) / std         constants like the weights: they would learn at all

So constants that stand for several tensors are taken apart again, those that are one and the same
tensor, turned or in another shape, are made of that again, and each is told to be a parameter, a
buffer or neither. What cannot be told is said. Files without such notes stay as they are.
"""

from __future__ import annotations

import itertools
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import onnx_ir as ir

from pef.wording import listed
from sambac.graph.names import node_names, value_names

from .exported_gradients import CALL, NAME, arguments_of, calls_of, put_stops

_SIGNATURE = "pkg.torch.export.ExportedProgram.graph_signature"
_KIND = "pkg.torch.export.graph_signature.InputSpec.kind"
_PERSISTENT = "pkg.torch.export.graph_signature.InputSpec.persistent"
_PLACEHOLDER = "pkg.torch.onnx.original_node_name"
_FOLDED = "pkg.onnxscript.optimizer.folded_from"
_ENTRY = re.compile(
    r"^(\w+): (PARAMETER|BUFFER|CONSTANT_TENSOR) target='([^']*)'(?: persistent=(\w+))?$", re.M
)
# What the optimizer leaves out if it multiplies by one, adds nothing ...
_ARITHMETIC = re.compile(r"(mul|add|sub|div|pow|rsub)(_\d+)?")
_NAMES_SHOWN = 8
_REMEDY = "export with optimize=False, which keeps all tensors apart, or compile the module itself"


class _Tensor(NamedTuple):
    """A tensor of the exported program: what it was, under which name, and whether it is saved."""

    kind: str
    target: str
    persistent: str

    @property
    def role(self) -> str:
        if self.kind == "PARAMETER":
            return "parameter"
        return "buffer" if self.kind == "BUFFER" and self.persistent != "False" else "constant"


class _Slot(NamedTuple):
    """Where an operator reads a constant."""

    node: ir.Node
    position: int
    value: ir.Value


@dataclass
class Notes:
    """What is known of the initializers of a model: by value, `parameter`, `buffer` or `constant`.

    Through `stops`, Identities, no gradient flows. `warnings` are sentences for the user.
    """

    roles: dict[ir.Value, str] = field(default_factory=dict)
    stops: Sequence[ir.Node] = ()
    warnings: tuple[str, ...] = ()


def take_apart(model: ir.Model) -> Notes:
    """Give each tensor of the exported program a constant of its own, in place."""
    known = {
        name: _Tensor(kind, target, persistent)
        for name, kind, target, persistent in _ENTRY.findall(
            model.graph.metadata_props.get(_SIGNATURE, "")
        )
    }
    if not known:
        return Notes()
    notes, stops = _Exported(model, known).settle(), put_stops(model)
    return Notes(notes.roles, stops.nodes, (*notes.warnings, *stops.warnings))


class _Exported:
    """The constants of one exported model."""

    def __init__(self, model: ir.Model, known: Mapping[str, _Tensor]) -> None:
        self._graph = model.graph
        self._known = known
        self._names = value_names(model)
        self._nodes = node_names(model)
        by_target = {tensor.target: name for name, tensor in known.items()}
        self._sources: dict[ir.Value, frozenset[str]] = {}
        self._whole: dict[str, ir.Value] = {}
        self._made: set[str] = set()
        for value in model.graph.initializers.values():
            self._learn(value, by_target)

    def settle(self) -> Notes:
        calls = calls_of(self._graph)
        again = self._made_again()
        for call, nodes in calls.items():
            self._part(self._arguments(call), nodes)
        computed = self._computed(calls)
        self._turn_back()
        roles = {value: self._role(value) for value in self._sources}
        return Notes(
            roles,
            warnings=tuple(_told(self._lost(again, calls), computed, self._unknown())),
        )

    def _learn(self, value: ir.Value, by_target: Mapping[str, str]) -> None:
        """Note which tensors `value` is, or was computed from."""
        placeholder = value.metadata_props.get(_PLACEHOLDER, "")
        if _KIND in value.metadata_props and placeholder in self._known:
            self._whole[placeholder] = value
            self._sources[value] = frozenset({placeholder})
        elif _FOLDED in value.metadata_props and _is_number(value):
            self._made.add(str(value.name))
            names = re.findall(r"'([^']*)'", value.metadata_props[_FOLDED])
            names += [re.sub(r"_\d+$", "", name) for name in names]  # as others were called so
            found = {by_target[name] for name in names if name in by_target}
            self._sources[value] = frozenset(found)

    def _arguments(self, call: str) -> list[str]:
        """Return the tensors that a call is given, in order."""
        return [name for name in dict.fromkeys(arguments_of(call)) if name in self._known]

    def _part(self, arguments: Sequence[str], nodes: Sequence[ir.Node]) -> None:
        """Let the operators of one call read the tensors that it was given."""
        slots = [slot for node in nodes for slot in self._slots(node)]
        covered = {name for slot in slots for name in self._sources[slot.value]}
        missing = [name for name in arguments if name not in covered]
        foreign = [slot for slot in slots if not self._sources[slot.value].intersection(arguments)]
        values = list(dict.fromkeys(slot.value for slot in foreign))
        if len(missing) == len(values) + 1 and self._add_bias(missing[-1], nodes):
            missing = missing[:-1]
        if len(values) == len(missing):
            meant = dict(zip(values, missing, strict=True))
            pairs = [(slot, meant[slot.value]) for slot in foreign]
        elif len(foreign) == len(missing):
            pairs = list(zip(foreign, missing, strict=True))
        else:
            return
        for slot, name in pairs:
            slot.node.replace_input_with(slot.position, self._own(name, slot.value))

    def _add_bias(self, name: str, nodes: Sequence[ir.Node]) -> bool:
        """Give a layer of one operator its bias again, which is left out where it is zero."""
        node, *others = nodes
        weight = node.inputs[1] if len(node.inputs) == 2 else None
        size = 0 if others or weight is None else _bias_size(node, weight)
        if weight is None or not size or weight not in self._sources:
            return False
        kind = weight.const_value.dtype if weight.const_value is not None else ir.DataType.FLOAT
        zeros = ir.val(name, const_value=ir.Tensor(np.zeros(size, kind.numpy()), kind, name=name))
        node.resize_inputs(3)
        node.replace_input_with(2, self._own(name, zeros))
        return True

    def _slots(self, node: ir.Node) -> Iterator[_Slot]:
        for index, value in enumerate(node.inputs):
            if value is not None and value in self._sources and _is_number(value):
                yield _Slot(node, index, value)

    def _own(self, name: str, like: ir.Value) -> ir.Value:
        """Return the constant of a tensor, made of an equal one where there is none."""
        found = self._whole.get(name)
        if found is not None:
            return found if _equal(found, like) else like
        target = self._known[name].target
        folded = _FOLDED in like.metadata_props
        tensor = like.const_value
        assert tensor is not None
        value = self._added(tensor.numpy(), f"{target}__{like.name}" if folded else target)
        if folded:
            value.metadata_props[_FOLDED] = repr([target])
        else:
            self._whole[name] = value
            value.metadata_props[_KIND] = self._known[name].kind
            value.metadata_props[_PLACEHOLDER] = name
        self._sources[value] = frozenset({name})
        return value

    def _made_again(self) -> set[str]:
        """Make constants that are a whole parameter in another form of that parameter.

        Returns the parameters of which that cannot be: a part of them is a constant by itself.
        """
        apart = set()
        for value, names in tuple(self._sources.items()):
            if not _is_folded(value) or not value.uses():
                continue
            alive = [self._whole[name] for name in names if self._is_learned(name)]
            form = _form(value, alive[0]) if len(alive) == 1 and len(names) == 1 else None
            if form is None:
                apart |= {name for name in names if self._is_learned(name)}
                continue
            self._rebuild(value, alive[0], form)
        return apart

    def _is_learned(self, name: str) -> bool:
        return self._known[name].kind == "PARAMETER" and name in self._whole

    def _rebuild(self, value: ir.Value, source: ir.Value, form: str) -> None:
        read = [source]
        if form == "Reshape" and value.const_value is not None:
            sizes = np.asarray(value.const_value.shape.numpy(), np.int64)
            read.append(self._added(sizes, "sizes"))
        made = ir.Value(name=self._names(f"{value.name}__of"), type=value.type, shape=value.shape)
        node = ir.Node("", form, read, outputs=[made], name=self._nodes(str(made.name)))
        value.replace_all_uses_with(made)
        self._graph.insert_before(self._graph[0], node)
        del self._sources[value], self._graph.initializers[str(value.name)]

    def _turn_back(self) -> None:
        """Have the weights of linear layers as the module has them; name others by their module."""
        for value, sources in tuple(self._sources.items()):
            targets = [self._known[name].target for name in sources]
            if not _is_folded(value) or self._role(value) != "parameter":
                continue
            if len(targets) == 1 and not sources & set(self._whole) and _is_linear(value):
                assert value.const_value is not None
                source = self._added(value.const_value.numpy().T.copy(), targets[0])
                self._rebuild(value, source, "Transpose")
                self._sources[source] = sources
                self._whole[next(iter(sources))] = source
            elif module := _common_module(targets):
                self._rename(value, f"{module}.{value.name}")

    def _rename(self, value: ir.Value, name: str) -> None:
        """Let another constant stand for `value`, whose tensor is the caller's."""
        assert value.const_value is not None
        named = self._added(value.const_value.numpy(), name)
        named.metadata_props.update(value.metadata_props)
        self._sources[named] = self._sources.pop(value)
        value.replace_all_uses_with(named)
        del self._graph.initializers[str(value.name)]

    def _added(self, array: np.ndarray, name: str) -> ir.Value:
        """Return a new constant."""
        tensor = ir.Tensor(array, name=self._names(name))
        value = ir.val(str(tensor.name), const_value=tensor)
        self._graph.register_initializer(value)
        return value

    def _computed(self, calls: Mapping[str, Sequence[ir.Node]]) -> list[str]:
        """Return constants that the model, not its exporter, computes of parameters."""
        given = defaultdict(set)
        for call, nodes in calls.items():
            for node in nodes:
                for slot in self._slots(node):
                    given[slot.value].update(self._arguments(call))
        return [
            str(value.name)
            for value, arguments in given.items()
            if self._role(value) == "parameter" and not self._sources[value] & arguments
        ]

    def _role(self, value: ir.Value) -> str:
        """Return what training does with `value`."""
        roles = {self._known[name].role for name in self._sources[value]}
        if "parameter" in roles:
            return "parameter"
        return roles.pop() if _KIND in value.metadata_props else "constant"

    def _lost(self, apart: set[str], calls: Collection[str]) -> list[str]:
        """Return parameters that are in no constant, or of which a part is one by itself.

        Those that no call is given are unused or further names of others, unless calls are missing.
        """
        found = {name for value, names in self._sources.items() if value.uses() for name in names}
        read = {name for call in calls for name in NAME.findall(call.partition("=")[2])}
        made = {name for call in calls for name in NAME.findall(call.partition("=")[0])}
        if any(_ARITHMETIC.fullmatch(name) for name in read - made - set(self._made)):
            read |= set(self._known)
        return [
            tensor.target
            for name, tensor in self._known.items()
            if tensor.kind == "PARAMETER"
            and ((name in read and name not in found) or name in apart)
        ]

    def _unknown(self) -> list[str]:
        return [
            str(value.name)
            for value in self._graph.initializers.values()
            if value.uses() and _is_number(value) and value.shape and value not in self._sources
        ]


def _is_number(value: ir.Value) -> bool:
    tensor = value.const_value
    return tensor is not None and tensor.dtype.is_floating_point()


def _is_folded(value: ir.Value) -> bool:
    """Tell whether the exporter has computed `value`, and another one can stand for it."""
    return _FOLDED in value.metadata_props and not value.is_graph_output()


def _equal(one: ir.Value, other: ir.Value) -> bool:
    if one.const_value is None or other.const_value is None:
        return False
    return np.array_equal(one.const_value.numpy(), other.const_value.numpy())


def _common_module(names: Sequence[str]) -> str:
    """Return the path of the innermost module that all of the parameters are in."""
    paths = [name.split(".")[:-1] for name in names]
    levels = itertools.takewhile(lambda level: len(set(level)) == 1, zip(*paths, strict=False))
    return ".".join(level[0] for level in levels)


def _bias_size(node: ir.Node, weight: ir.Value) -> int:
    """Return how many numbers the bias of a layer with this weight has, 0 if `node` is none."""
    if node.domain != "" or weight.const_value is None or len(weight.const_value.shape) < 2:
        return 0
    shape = weight.const_value.shape.numpy()
    turned = node.attributes.get_int("transB", 0)
    groups = node.attributes.get_int("group", 1)
    sizes = {
        "Conv": shape[0],
        "ConvTranspose": shape[1] * groups,
        "Gemm": shape[0] if turned else shape[-1],
    }
    return sizes.get(node.op_type, 0)


def _form(value: ir.Value, source: ir.Value) -> str | None:
    """Return the operator that makes `value` of `source`, if it is the same numbers."""
    if value.const_value is None or source.const_value is None:
        return None
    made, given = value.const_value.numpy(), source.const_value.numpy()
    if made.dtype != given.dtype or made.size != given.size:
        return None
    if given.ndim > 1 and np.array_equal(made, given.T):
        return "Transpose"
    return "Reshape" if np.array_equal(made.reshape(-1), given.reshape(-1)) else None


def _is_linear(value: ir.Value) -> bool:
    """Tell whether all that reads `value` are the products of linear layers, which turn weights."""
    return all(
        use.idx == 1
        and use.node.op_type == "MatMul"
        and "aten.linear.default" in use.node.metadata_props.get(CALL, "")
        for use in value.uses()
    )


def _told(lost: Sequence[str], computed: Sequence[str], unknown: Sequence[str]) -> Iterator[str]:
    if lost:
        yield (
            f"{_quoted(lost)} of the exported module cannot be trained as parameters of their own: "
            "the exporter left them out, as results do not depend on them or they changed nothing, "
            f"or stored them with equal ones; {_REMEDY}"
        )
    if computed:
        yield (
            f"{_quoted(computed)} will be trained in place of the parameters that the module "
            f"computes them from, as the exporter has computed them; {_REMEDY}"
        )
    if unknown:
        yield (
            f"{_quoted(unknown)} will be trained, although the exporter does not say that they are "
            "parameters; --freeze NAME keeps one as it is"
        )


def _quoted(names: Sequence[str]) -> str:
    return listed([repr(name) for name in names], _NAMES_SHOWN, ", ")
