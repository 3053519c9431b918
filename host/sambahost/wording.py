"""Messages about what is on the device, in the names that the program gave."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import torch

from pef.wording import listed


def spelled(dtype: torch.dtype, shape: Sequence[int]) -> str:
    """Return a type and a shape as `float32[2, 3]`."""
    return f"{str(dtype).removeprefix('torch.')}{list(shape)}"


def reworded(text: str, names: Mapping[str, str]) -> str:
    """Return `text` of the runtime with the program's `names` of inputs in place of their ports."""
    for name, port in names.items():
        text = text.replace(f"Input '{port}'", f"Input '{name}'")
        for words in ("holds", "has no value"):
            text = text.replace(f"'{port}' {words}", f"'{name}' {words}")
    return text


def no_such_inputs(
    unknown: Iterable[str], ports: Mapping[str, str], gradients: Collection[str]
) -> str:
    """Return that there are no inputs called `unknown`, and which there are.

    `ports` are those of all inputs by every name they have, `gradients` are those of outputs, which
    are no inputs of the model. The last name of a port is the program's.
    """
    known = {port: name for name, port in ports.items() if port not in gradients}
    return f"there is no input {_quoted(unknown)}; the inputs are {_quoted(known.values())}"


def misfit(name: str, expected: tuple[torch.dtype, Sequence[int]], given: torch.Tensor) -> str:
    """Return that `given` has another type or shape than `name`, and what torch says of shapes.

    Where neither differs in a way that matters, it has numbers that `name` cannot hold.
    """
    reason = _said_of_copying(expected[1], given.shape)
    if list(expected[1]) == list(given.shape):
        reason = "it has numbers that the other type does not have"
    return (
        f"'{name}' is {spelled(*expected)}, it is given {spelled(given.dtype, given.shape)}"
        f"{': ' * bool(reason)}{reason}"
    )


def _said_of_copying(expected: Sequence[int], given: Sequence[int]) -> str:
    """Return what torch says of copying one shape into another, nothing if it broadcasts."""
    try:
        torch.empty(expected, device="meta").copy_(torch.empty(given, device="meta"))
    except RuntimeError as error:
        return str(error)
    return ""


def no_gradient_kept(name: str) -> str:
    """Return that the PEF has `name` but no gradient of it, and why that can be."""
    return (
        f"the PEF has no gradient of '{name}': it was compiled for inference, or without "
        f"requires_grad of '{name}', or no loss depends on it"
    )


def no_such_start(output: str) -> str:
    """Return that the backward pass does not start from `output`."""
    return f"the backward pass of the PEF does not start from '{output}', so it has no gradient"


def _quoted(names: Iterable[str]) -> str:
    return listed([f"'{name}'" for name in names], 8, ", ")
