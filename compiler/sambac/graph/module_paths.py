"""Which module of the source program an operator comes from, as far as exporters tell."""

from __future__ import annotations

import re

import onnx_ir as ir

MODULE_SCOPES = "pkg.torch.onnx.name_scopes"
"""The metadata of a node in which PyTorch lists the modules around it, the outermost first."""

# The list is spelled as Python does it: each text in single quotes, or in double ones.
_QUOTED = re.compile(r"""(['"])(.*?)\1""")


def inherit_module(node: ir.Node, origin: ir.Node) -> None:
    """Let `node`, which is made for `origin`, come from the module that `origin` comes from."""
    scopes = origin.metadata_props.get(MODULE_SCOPES)
    path = module_of(origin)
    if scopes is not None:
        node.metadata_props[MODULE_SCOPES] = scopes
    elif path:
        node.metadata_props[MODULE_SCOPES] = repr([path, ""])


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
