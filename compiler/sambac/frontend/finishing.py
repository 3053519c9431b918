"""The last steps of every frontend: check a model, adopt its versions, fix its shapes, strip it."""

from __future__ import annotations

import hashlib

import onnx_ir as ir

from sambac.graph.module_paths import strip_origin
from sambac.graph.skeleton import skeleton
from sambac.options import CompileOptions

from .dimensions import open_dimensions
from .inputs import fix_shapes, require_usable, settle_constants, take_signature
from .sanity import require_sound
from .source import Source
from .versions import adopt_versions


def finish(
    model: ir.Model, options: CompileOptions, name: str, sha256: str | None = None
) -> Source:
    """Make `model`, which is changed in place, ready for the passes.

    `name` is what messages call it; without `sha256` it is hashed, weights excluded.
    Raises `CompileError` for whatever cannot be used.
    """
    require_sound(model, name)
    open_dimensions(model)
    _strip(model)  # before it is hashed: exporters write down in which folder the source lies
    digest = sha256 or _hash(model)
    adopt_versions(model, name)
    signature = take_signature(model, train=options.train)
    settle_constants(model, name)
    fix_shapes(model, options.inputs, name)
    require_usable(model, signature.defaults, name)
    return Source(model, signature, name, digest)


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
