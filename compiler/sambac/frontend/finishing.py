"""The last steps of every frontend: check a model, adopt its versions, fix its shapes, strip it.

A name ties dimensions together: wherever it stands, the size is the same. What exporters write
where they know neither size nor name (`?`, `None`, -1, nothing) must not tie anything.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping

import onnx_ir as ir

from pef import dtypes
from pef.wording import did_you_mean, listed
from sambac.errors import CompileError
from sambac.graph.constants import strings
from sambac.graph.nodes import all_nodes, mark_stop
from sambac.graph.origins import note_role, strip_origin
from sambac.graph.protos import skeleton
from sambac.input_specs import InputSpec
from sambac.options import CompileOptions

from .exported import Notes, take_apart
from .sanity import require_sound
from .source import Signature, Source
from .versions import adopt_versions


def finish(
    model: ir.Model,
    options: CompileOptions,
    name: str,
    sha256: str | None = None,
    *,
    noted: bool = False,
) -> Source:
    """Make `model`, which is changed in place, ready for the passes.

    `name` is what messages call it; without `sha256` it is hashed, weights excluded. If `noted`,
    what an exporter notes about constants is used to train with.
    Raises `CompileError` for whatever cannot be used.
    """
    require_sound(model, name)
    open_dimensions(model)
    notes = take_apart(model) if noted and options.train else Notes()
    _strip(model)  # before it is hashed: exporters write down in which folder the source lies
    digest = sha256 or _hash(model)
    adopt_versions(model, name)
    signature = take_signature(model, train=options.train)
    settle_constants(model, name)
    fix_shapes(model, options.inputs, name)
    require_usable(model, signature.defaults, name)
    for node in notes.stops:
        mark_stop(node)
    for value, role in notes.roles.items():
        note_role(value, role)
    return Source(model, signature, name, digest, warnings=notes.warnings)


def _hash(model: ir.Model) -> str:
    return hashlib.sha256(skeleton(model).SerializeToString(deterministic=True)).hexdigest()


def _strip(model: ir.Model) -> None:
    """Drop what exporters write for people, but for where operators come from."""
    model.doc_string = None
    model.metadata_props.clear()
    for graph in model.graphs():
        graph.doc_string = None
        graph.metadata_props.clear()
        for value in (*graph.inputs, *graph.initializers.values()):
            _strip_value(value)
        for node in graph:
            node.doc_string = None
            strip_origin(node)
            for value in node.outputs:
                _strip_value(value)


def _strip_value(value: ir.Value) -> None:
    value.doc_string = None
    value.metadata_props.clear()


# Before this IR version every initializer had to be listed among the inputs, without meaning it.
_FIRST_WITH_OPTIONAL_INPUTS = 4
# The bytes that a processor of today can address.
_MOST_ELEMENTS = 1 << 48


def take_signature(model: ir.Model, *, train: bool = False) -> Signature:
    """Return the signature, and leave no initializer of `model` that is also an input.

    Since IR version 4 such an initializer is the default of an optional input, which stays an
    input; before, and in a subgraph, it is a plain constant. To `train` a model, floating-point
    ones with an axis or more are plain too: exporters list weights among the inputs, and these are
    to be learned.
    """
    for inner in model.graphs():
        if inner is not model.graph:
            _keep_inputs_alone(inner)
    graph = model.graph
    defaults: dict[str, ir.TensorProtocol] = {}
    old = model.ir_version < _FIRST_WITH_OPTIONAL_INPUTS
    inputs = [
        value
        for value in graph.inputs
        if value.name not in graph.initializers
        or not (old or (train and _may_be_weight(value.const_value)))
    ]
    graph.inputs.clear()
    graph.inputs.extend(inputs)
    for value in graph.inputs:
        name = str(value.name)
        if name in graph.initializers and value.const_value is not None:
            defaults[name] = value.const_value
            graph.initializers.pop(name)
            value.const_value = None
    return Signature(
        inputs=tuple(str(value.name) for value in graph.inputs),
        outputs=tuple(str(value.name) for value in graph.outputs),
        defaults=defaults,
    )


def _keep_inputs_alone(graph: ir.Graph) -> None:
    """Leave the inputs of a subgraph that its operator gives; one with a default is a constant.

    That is of the type of its tensor, whatever the input says.
    """
    inputs = [value for value in graph.inputs if value.name not in graph.initializers]
    if len(inputs) == len(graph.inputs):
        return
    for value in set(graph.inputs).difference(inputs):
        if value.const_value is not None:
            value.dtype = value.const_value.dtype
            value.shape = ir.Shape(value.const_value.shape.numpy())
    graph.inputs.clear()
    graph.inputs.extend(inputs)


def _may_be_weight(tensor: ir.TensorProtocol | None) -> bool:
    return tensor is not None and tensor.dtype.is_floating_point() and len(tensor.shape) > 0


def settle_constants(model: ir.Model, name: str) -> None:
    """Give each constant, of bodies and branches too, the shape of its content.

    A constant that was listed among inputs, or is an output, has a declaration too, which may leave
    dimensions open. Raises `CompileError` where the two contradict each other; `name` is the
    model's name.
    """
    problems = []
    holders: tuple[ir.Graph | ir.Function, ...] = (model.graph, *model.functions.values())
    graphs = [model.graph, *(graph for each in holders for graph in each.subgraphs())]
    for constant in (value for graph in graphs for value in graph.initializers.values()):
        tensor = constant.const_value
        if tensor is None:
            continue
        sizes = tuple(tensor.shape.numpy())
        declared = sizes if constant.shape is None else constant.shape.dims
        if constant.dtype not in (None, tensor.dtype) or not _fits(sizes, declared):
            problems.append(
                f"constant '{constant.name}' is declared {constant.dtype} {_spell(declared)} and "
                f"holds {tensor.dtype} {_spell(sizes)}"
            )
        constant.type, constant.shape = ir.TensorType(tensor.dtype), ir.Shape(sizes)
    if problems:
        raise CompileError(f"{name}: {listed(problems)}; export the model again")


def fix_shapes(model: ir.Model, specs: Mapping[str, InputSpec], name: str) -> None:
    """Give inputs the shapes that the user asks for, and every input with the same symbols.

    Only dimensions that the model leaves open may be fixed. Raises `CompileError` listing every
    unknown input and every conflict; `name` is the model's name in the message.
    """
    inputs = {str(value.name): value for value in model.graph.inputs}
    problems: list[str] = []
    sizes: dict[str, int] = {}
    for input_name, spec in specs.items():
        if input_name not in inputs:
            problems.append(_unknown(input_name, inputs))
            continue
        problem = _conflict(inputs[input_name], spec) or _bind(inputs[input_name], spec, sizes)
        if problem:
            problems.append(problem)
        else:
            inputs[input_name].shape = ir.Shape(spec.shape)
    if problems:
        raise CompileError(f"{name}: " + "; ".join(problems))
    for value in inputs.values():
        if value.shape is not None:
            value.shape = ir.Shape(_substituted(value.shape, sizes))


def require_usable(model: ir.Model, defaults: Mapping[str, ir.TensorProtocol], name: str) -> None:
    """Raise `CompileError` for inputs that no program could take, now that shapes are fixed.

    `defaults` are those of optional inputs, whose shapes they have to fit. `name` is the model's
    name in the message.
    """
    problems = []
    for value in model.graph.inputs:
        problem = _too_large(value)
        default = defaults.get(str(value.name))
        if problem is None and default is not None:
            problem = _odd_default(value, default)
        if problem is not None:
            problems.append(f"input '{value.name}' {problem}")
    if problems:
        raise CompileError(f"{name}: {listed(problems)}")


def _too_large(value: ir.Value) -> str | None:
    elements = math.prod(dim for dim in value.shape or () if isinstance(dim, int))
    if elements < _MOST_ELEMENTS:
        return None
    return f"has {elements:,} elements or more, which is beyond any memory; choose smaller sizes"


def _odd_default(value: ir.Value, default: ir.TensorProtocol) -> str | None:
    """Return why `default` cannot be the default of `value`, or None."""
    if not isinstance(value.type, ir.TensorType):
        return f"is no tensor ({value.type}) and has a tensor as its default; export it again"
    if value.dtype != default.dtype:
        return f"is a tensor of {value.dtype} and has a default of {default.dtype}; export it again"
    sizes = tuple(default.shape.numpy())
    if value.shape is not None and not _fits(sizes, value.shape.dims):
        return (
            f"has a default of {_spell(sizes)}, which its shape {_spell(value.shape.dims)} does "
            "not fit; choose the shape of the default, or take the default out of the model"
        )
    if default.dtype == ir.DataType.STRING and not _is_text(default):
        return "has strings as its default that are not UTF-8; export the model with text"
    return None


def _is_text(tensor: ir.TensorProtocol) -> bool:
    try:
        strings(tensor)
    except UnicodeDecodeError:
        return False
    return True


def _unknown(name: str, inputs: Mapping[str, ir.Value]) -> str:
    hint = did_you_mean(name, inputs) or f"; its inputs are {', '.join(inputs)}"
    return f"the model has no input '{name}'{hint}"


def _conflict(value: ir.Value, spec: InputSpec) -> str | None:
    """Return why `spec` cannot be the type of `value`, or None."""
    if value.type is not None and not isinstance(value.type, ir.TensorType):
        return f"input '{value.name}' is a {value.type}, which has no shape to fix"
    if spec.dtype is not None and spec.dtype not in dtypes.BY_NUMBER:
        return f"input '{value.name}' cannot have the unknown element type {spec.dtype}"
    if spec.dtype is not None and value.dtype is not None and spec.dtype != value.dtype:
        declared_name, given = (dtypes.BY_NUMBER[int(n)].name for n in (value.dtype, spec.dtype))
        return f"input '{value.name}' has the type {declared_name}, not {given}"
    if value.shape is None:
        return None
    declared = value.shape.dims
    if _fits(spec.shape, declared):
        return None
    return (
        f"input '{value.name}' has the shape {_spell(declared)}, which {_spell(spec.shape)} "
        "does not fit: only its named or open dimensions may be chosen"
    )


def _fits(sizes: tuple[int, ...], declared: tuple[int | ir.SymbolicDim, ...]) -> bool:
    """Tell whether a tensor of `sizes` has the rank and the known dimensions that are declared."""
    return len(declared) == len(sizes) and all(
        not isinstance(dim, int) or dim == size for dim, size in zip(declared, sizes, strict=True)
    )


def _bind(value: ir.Value, spec: InputSpec, sizes: dict[str, int]) -> str | None:
    """Record the size of each symbol of `value`; return a conflict with another input."""
    for dim, size in zip(value.shape.dims if value.shape else (), spec.shape, strict=False):
        symbol = dim.value if isinstance(dim, ir.SymbolicDim) else None
        if symbol is not None and sizes.setdefault(symbol, size) != size:
            return (
                f"input '{value.name}' makes the dimension '{symbol}' {size}, "
                f"another input makes it {sizes[symbol]}"
            )
    return None


def _substituted(shape: ir.Shape, sizes: Mapping[str, int]) -> list[int | ir.SymbolicDim]:
    return [
        sizes.get(dim.value, dim)
        if isinstance(dim, ir.SymbolicDim) and dim.value is not None
        else dim
        for dim in shape.dims
    ]


def _spell(dims: tuple[int | ir.SymbolicDim, ...]) -> str:
    return "x".join("?" if str(dim) == "None" else str(dim) for dim in dims) or "scalar"


_NO_NAMES = frozenset({"", "?", "*", "none", "null"})


def open_dimensions(model: ir.Model) -> None:
    """Make dimensions of negative size, and of names that are none, open ones without a name.

    That is done to all values of `model`, in place: inputs, outputs, what is declared of others,
    in subgraphs and functions too.
    """
    for value in _values(model):
        if value.shape is not None and any(_is_unnamed(dim) for dim in value.shape):
            dims = [None if _is_unnamed(dim) else dim for dim in value.shape]
            value.shape = ir.Shape(dims)


def _values(model: ir.Model) -> Iterator[ir.Value]:
    bodies: tuple[ir.Graph | ir.Function, ...] = (model.graph, *model.functions.values())
    for body in bodies:
        for graph in (body, *body.subgraphs()):
            yield from graph.inputs
            yield from graph.outputs
        for node in all_nodes(body):
            yield from node.outputs


def _is_unnamed(dim: int | ir.SymbolicDim) -> bool:
    if isinstance(dim, int):
        return dim < 0
    return dim.value is not None and _is_no_name(dim.value)


def _is_no_name(name: str) -> bool:
    text = name.strip().casefold()
    return text in _NO_NAMES or (text.startswith("-") and text[1:].isdecimal())
