"""The models that benchmarks compare on, as files: made once a run, kept in `build/bench`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx

import sambac
from benchmarks.models import inference, light, synthetic, transformers

FOLDER = Path(__file__).parents[1] / "build" / "bench"

Feeds = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Entry:
    """How to make a model and values for its inputs."""

    make: Callable[[], onnx.ModelProto]
    feed: Callable[[onnx.ModelProto], Feeds]


@dataclass(frozen=True)
class Files:
    """A model's files: the .onnx and an .npz with its inputs."""

    model: Path
    inputs: Path

    def pef(self, options: sambac.CompileOptions | None = None) -> Path:
        """The model compiled with these options (O3 by default), beside the model."""
        options = options or sambac.CompileOptions()
        path = self.model.with_suffix(f".{options.level}-{options.sections or 'free'}.pef")
        sambac.compile(self.model, options).save(path)
        return path


def _light(name: str) -> Entry:
    return Entry(
        lambda: light.randomized(name),
        lambda model: {model.graph.input[0].name: light.image()},
    )


NETWORKS: Mapping[str, Entry] = {name: _light(name) for name in light.LIGHT} | {
    "bert": Entry(
        transformers.bert,
        lambda model: transformers.token_inputs(model, transformers.BERT_BASE_4),
    ),
    "gpt": Entry(
        transformers.gpt,
        lambda model: transformers.token_inputs(model, transformers.GPT_SMALL),
    ),
}


def _exported(name: str) -> Entry:
    return Entry(lambda: inference.exported(name), lambda _: inference.feeds(name))


MODELS: Mapping[str, Entry] = {
    "bert 4x768": NETWORKS["bert"],
    **{name: _exported(name) for name in inference.MODELS},
    "densenet121": NETWORKS["densenet121"],
    "shufflenet": NETWORKS["shufflenet"],
}
"""What users run, for the speed of whole models; the published networks above are for plans."""
HEAVY = Entry(synthetic.heavy, synthetic.small_input)
TINY = Entry(synthetic.tiny_sections, synthetic.small_input)


def make(name: str, entry: Entry, *, external: bool = True) -> Files:
    """Write a model and its inputs; `external` puts the weights beside the .onnx, not into it."""
    folder = FOLDER / (name if external else f"{name}-inline")
    folder.mkdir(parents=True, exist_ok=True)
    files = Files(folder / f"{name}.onnx", folder / "inputs.npz")
    model = entry.make()
    feeds: dict[str, np.ndarray] = dict(entry.feed(model))
    np.savez(files.inputs, **feeds)  # type: ignore[arg-type]
    if external:
        light.save(model, files.model)
    else:
        onnx.save_model(model, files.model)
    return files
