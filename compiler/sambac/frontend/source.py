"""What every frontend returns: the model, its public signature and where it came from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from sambac.facts import Roles


@dataclass(frozen=True)
class Signature:
    """The public names of a model's inputs and outputs, in the order of its graph.

    The positions match `model.graph.inputs` and `model.graph.outputs`. `defaults` holds the
    content of those inputs that a caller may leave out.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    defaults: Mapping[str, ir.TensorProtocol]


@dataclass(frozen=True)
class Source:
    """A model ready for the passes.

    `name` is the file's stem, or the graph's name for a model from memory. `sha256` is the hash
    of the model file (external data excluded), or of the serialised model without its weights.

    `roles` says what the initializers are, where the source says it (a PyTorch module does, an
    ONNX file does not). In training the outputs that `roles.updates` names follow the public ones
    in `model`, and are not in `signature`. `evaluation` is the model as it evaluates (no dropout,
    running statistics, no updates of buffers), None where that is the same graph; its inputs,
    public outputs and the initializers in `roles` are the same. `warnings` are for the user.
    """

    model: ir.Model
    signature: Signature
    name: str
    sha256: str
    roles: Roles | None = None
    evaluation: ir.Model | None = None
    warnings: tuple[str, ...] = ()
