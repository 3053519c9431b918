"""Text that a model of transformers writes, a token at a time, with whole texts on a device."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from .errors import HostError

Run = Callable[["WholeText", tuple[Tensor, ...]], Tensor]
"""Runs a module on a device, with inputs in the order of its names."""


class WholeText(nn.Module):
    """Logits of all places of a text, by a model without a cache. `names` are those of inputs."""

    def __init__(self, model: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *values: Tensor) -> Tensor:
        """Return the logits, float [rows, places, tokens]."""
        given: dict[str, Any] = dict(zip(self.names, values, strict=True))
        if "encoder_outputs" in given:
            given["encoder_outputs"] = (given["encoder_outputs"],)
        found: Any = type(self.model).forward(
            self.model, **given, use_cache=False, return_dict=True
        )
        logits: Tensor = found.logits
        return logits


def write_with(model: Any, run: Run, length: int, output: Callable[..., object]) -> None:
    """Let `generate` of a model run each forward by `run`, with texts of a multiple of `length`.

    The model is changed in place. Texts are filled on the right, where nothing that comes before
    sees it, up to the longest so far. `run` gets a module for each set of names and shapes of
    inputs, which may have any number of rows. `output` makes the result of a forward of its logits.
    An encoder stays on the host. Raises `HostError` for a model that does not write, and in a
    forward for keywords that a device has no part in.
    """
    can_write = getattr(model, "can_generate", None)
    if can_write is None or not can_write():
        raise HostError(f"a {type(model).__name__} came, which does not write text")
    original = model.forward
    text = "decoder_input_ids" if model.config.is_encoder_decoder else "input_ids"
    takes = inspect.signature(original).parameters
    if "perm_mask" in takes:  # each token is asked for at a place of its own, as in XLNet
        raise HostError(f"a {type(model).__name__} came, which writes by permuted texts")
    longest = length

    @functools.cache
    def whole(names: tuple[str, ...], shapes: tuple[torch.Size, ...]) -> WholeText:
        return WholeText(model, names)

    @functools.wraps(original)
    def forward(**given: Any) -> object:
        nonlocal longest
        inputs = {name: value for name, value in _inputs(given, text).items() if name in takes}
        _require_no_more(given, inputs)
        places = given[text].shape[1]
        longest = max(longest, -(-places // length) * length)
        filled = _filled(inputs, places, longest)
        values = tuple(filled.values())
        logits = run(whole(tuple(filled), tuple(each.shape[1:] for each in values)), values)
        return output(logits=logits[:, :places].float())

    def prepare(ids: Tensor, **kwargs: Any) -> dict[str, Any]:
        kept = ("attention_mask", "encoder_outputs")
        return {text: ids} | {name: kwargs[name] for name in kept if name in kwargs}

    model.forward, model.prepare_inputs_for_generation = forward, prepare
    model.generation_config.use_cache = False


def _inputs(given: Mapping[str, Any], text: str) -> dict[str, Tensor]:
    """Return what a forward reads: whole texts, and which of their places count."""
    ids, mask = given[text], given.get("attention_mask")
    if text != "input_ids":
        hidden = {"encoder_outputs": given["encoder_outputs"][0]}
        return {text: ids} | hidden | ({} if mask is None else {"attention_mask": mask})
    mask = torch.ones_like(ids) if mask is None else mask
    places = given.get("position_ids")
    places = (mask.long().cumsum(1) - 1).clamp(min=0) if places is None else places
    return {text: ids, "attention_mask": mask, "position_ids": places}


def _filled(inputs: Mapping[str, Tensor], places: int, length: int) -> dict[str, Tensor]:
    """Return inputs whose texts have `length` places, the last of which do not count."""
    encoded = "encoder_outputs" in inputs
    return {
        name: value
        if encoded and name != "decoder_input_ids"
        else functional.pad(value, (0, length - places))
        for name, value in inputs.items()
    }


def _require_no_more(given: Mapping[str, Any], inputs: Mapping[str, Tensor]) -> None:
    """Raise `HostError` for keywords that ask for what a device does not give."""
    passed = {*inputs, "return_dict", "use_cache"}
    more = [
        name
        for name, value in given.items()
        if name not in passed and value is not None and value is not False
    ]
    if more:
        raise HostError(f"{', '.join(more)} came; a device takes {', '.join(inputs)}")
