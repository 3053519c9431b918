"""Where operators and constants come from.

Of an operator, the line of the source program and the module around it, as far as exporters tell.
Of a weight that a pass derives, which of the model's tensors it was computed from: the executable
carries it, so that a weight that no model has can be traced to names that its author knows.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from pathlib import PurePath

import onnx_ir as ir

from pef.files import in_text

MODULE_SCOPES = "pkg.torch.onnx.name_scopes"
"""The metadata of a node in which PyTorch lists the modules around it, the outermost first."""

STACK_TRACE = "pkg.torch.onnx.stack_trace"
"""The metadata of a node in which PyTorch has the lines that called its operator, the last last."""

SOURCE_LINE = "sambac.source_line"
"""The metadata of a node in which the last of these lines stands that is not PyTorch's own."""

_OPERATOR = "sambac.operator"
_HOST_CAST = "sambac.host_cast"

# The list is spelled as Python does it: each text in single quotes, or in double ones.
_QUOTED = re.compile(r"""(['"])(.*?)\1""")
_FRAME = re.compile(r'File "([^"]+)", line (\d+)')
_OF_TORCH = re.compile(r"[/\\](?:site|dist)-packages[/\\]torch[/\\]")
_OWN = str(PurePath(__file__).parents[1])


def inherit_module(node: ir.Node, origin: ir.Node) -> None:
    """Let `node`, which is made for `origin`, come from where `origin` comes from."""
    scopes = origin.metadata_props.get(MODULE_SCOPES)
    path = module_of(origin)
    if scopes is not None:
        node.metadata_props[MODULE_SCOPES] = scopes
    elif path:
        node.metadata_props[MODULE_SCOPES] = repr([path, ""])
    for key in (SOURCE_LINE, _OPERATOR, _HOST_CAST):
        if key in origin.metadata_props:
            node.metadata_props[key] = origin.metadata_props[key]


def begin_parts(node: ir.Node) -> None:
    """Let what is made for `node` from now on, such as its gradient, be known as a part of it."""
    node.metadata_props[_OPERATOR] = node.name or ""


def operator_of(node: ir.Node) -> str:
    """Return the name of the operator that `node` is a part of; empty if it stands for itself."""
    return node.metadata_props.get(_OPERATOR, "")


def note_host_cast(made: ir.Value) -> None:
    """Note on the cast that makes a value that only kernels of the host need it.

    The gradient of such a cast inherits that.
    """
    cast = made.producer()
    if cast is not None:
        cast.metadata_props[_HOST_CAST] = "1"


def forget_host_cast(node: ir.Node) -> None:
    """Let a cast be one that the model asks for, too."""
    node.metadata_props.pop(_HOST_CAST, None)


def is_host_cast(node: ir.Node) -> bool:
    """Tell whether `node` is a cast that the model does not ask for."""
    return node.op_type == "Cast" and node.domain == "" and _HOST_CAST in node.metadata_props


def module_of(node: ir.Node) -> str:
    """Return the path of the module a node comes from, or an empty string.

    PyTorch's exporters leave it in the node's metadata or in the node's name (`/layer1/conv/Conv`).
    """
    scopes = node.metadata_props.get(MODULE_SCOPES)
    if scopes is not None:
        names = [name for _, name in _QUOTED.findall(scopes)]
        return names[-2] if len(names) > 1 else ""
    name = node.name or ""
    return ".".join(part for part in name.split("/")[:-1] if part) if name[:1] == "/" else ""


def strip_origin(node: ir.Node) -> None:
    """Drop all metadata of `node` but its modules and its line, from which the others go."""
    kept = {key: node.metadata_props.get(key) for key in (MODULE_SCOPES, SOURCE_LINE)}
    kept[SOURCE_LINE] = kept[SOURCE_LINE] or last_line(node.metadata_props.get(STACK_TRACE, ""))
    node.metadata_props.clear()
    node.metadata_props.update({key: text for key, text in kept.items() if text})


def last_line(trace: str) -> str:
    """Return the last place in a stack trace that is not PyTorch's or ours, as `model.py:12`.

    Code that PyTorch writes while it traces has no file: `<eval_with_key>.1`.
    """
    places = _FRAME.findall(trace)
    frames = [
        (path, line)
        for path, line in places
        if not _OF_TORCH.search(path) and not path.startswith(("<", _OWN))
    ]
    return in_text(f"{PurePath(frames[-1][0]).name}:{frames[-1][1]}") if frames else ""


def place_of(node: ir.Node) -> str:
    """Return where `node` comes from, to be put behind its name in a message."""
    return spell_place(node.metadata_props.get(SOURCE_LINE, ""), module_of(node))


def spell_place(line: str, module: str) -> str:
    """Return a line and the path of a module, both of which may be empty, as ` at x.py:1, in y`."""
    parts = ([f"at {line}"] if line else []) + ([f"in {module}"] if module else [])
    return f" {', '.join(parts)}" if parts else ""


_KEY = "origin"


def note_origins(value: ir.Value, sources: Iterable[ir.Value]) -> None:
    """Note on `value`, an initializer made by a pass, that it was computed from `sources`.

    Sources that are derived themselves stand for what they were computed from; without any source
    the value is the compiler's own.
    """
    names = dict.fromkeys(name for source in sources for name in origins(source))
    value.metadata_props[_KEY] = json.dumps(list(names))


def origins(value: ir.Value) -> tuple[str, ...]:
    """Return the model's tensors behind a constant: of one that the model names, itself."""
    if _KEY in value.metadata_props:
        return noted_origins(value)
    return (value.name,) if value.name and value.is_initializer() else ()


def noted_origins(value: ir.Value) -> tuple[str, ...]:
    """Return what a derived value was computed from, in the order noted; () for all others."""
    return tuple(str(name) for name in json.loads(value.metadata_props.get(_KEY, "[]")))


_ROLE = "role"


def note_role(value: ir.Value, role: str) -> None:
    """Note that the exporter calls `value` a `parameter`, a `buffer` or a `constant`."""
    value.metadata_props[_ROLE] = role


def role_of(value: ir.Value) -> str:
    """Return what the exporter calls `value`; "" if it does not say."""
    return value.metadata_props.get(_ROLE, "")
