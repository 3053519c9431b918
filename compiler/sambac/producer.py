"""What a program says of how it was made: the model, the options and the versions at work."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from importlib.metadata import version
from pathlib import Path

from pef.program import Producer

from .frontend import Source
from .options import CompileOptions

_LIBRARIES = ("numpy", "onnx", "onnx-ir", "onnxruntime", "networkx")


def producer(
    source: Source, options: CompileOptions, trained: Mapping[str, CompileOptions] | None = None
) -> Producer:
    """Return the record of a compilation of `source`; it names no folder and no time.

    `trained` are the options of those of several models that train.
    """
    facts = _option_facts(options)
    if trained:
        facts["trained"] = {name: _training_facts(own) for name, own in trained.items()}
    return Producer(
        tool="sambac",
        version=_version("sambaflow"),
        options=json.dumps(facts, sort_keys=True),
        source=source.name,
        source_hash=source.sha256,
        libraries=tuple((name, _version(name)) for name in _LIBRARIES),
    )


@cache
def _version(name: str) -> str:
    """Return the version of an installed package, which is looked up on disk once."""
    return version(name)


def _option_facts(options: CompileOptions) -> dict[str, object]:
    """Return the options as plain data, without anything that names a folder of this host."""
    return {
        "level": options.level,
        "mapping": options.mapping,
        "precision": options.precision,
        "arch": Path(options.arch).name,
        "inputs": {
            name: {"shape": list(spec.shape), "dtype": spec.dtype}
            for name, spec in options.inputs.items()
        },
        "io_host_memory": options.io_host_memory,
        **({"memory": _regions(options)} if options.memory else {}),
        "fusion_rules": Path(options.fusion_rules).name if options.fusion_rules else None,
        "sections": options.sections,
        **(_training_facts(options) if options.train else {}),
    }


def _regions(options: CompileOptions) -> dict[str, str]:
    return {name: region.upper() for name, region in options.memory.items()}


def _training_facts(options: CompileOptions) -> dict[str, object]:
    return {
        "train": True,
        "loss": list(options.loss),
        "backward_from": list(options.backward_from),
        "input_grads": list(options.input_grads),
        "optimizers": [
            {"kind": optimizer.kind, **asdict(optimizer)} for optimizer in options.optimizers
        ],
        "freeze": list(options.freeze),
        "max_grad_norm": options.max_grad_norm,
        "accumulate": options.accumulate,
        "balance": options.balance,
        "recompute": options.recompute,
        "data_parallel": options.data_parallel,
    }
