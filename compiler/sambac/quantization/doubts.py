"""What to say of a calibration that went through and may not be what its user wanted."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import onnx_ir as ir

from pef.text import plural
from pef.wording import listed
from sambac.passes.quantize.quantize_convolutions import settled

from .samples import Batch

_MOST = 4
_MUCH = 0.1
"""From what relative error on it is said of an output, where nobody has limited it."""
_OPTION = "calibrate (--calibrate)"
Ranges = Mapping[str, tuple[float, float]]


def of_outputs(errors: Mapping[str, float]) -> Iterator[str]:
    """Yield which outputs, by their relative `errors` on samples, are far off."""
    far = [f"'{name}' {error:g}" for name, error in errors.items() if error >= _MUCH]
    if far:
        yield (
            f"the relative error on what calibrates is, of {listed(far, _MOST)}: max_error "
            "(--max-error) limits it, and the layers in the log say where it comes from"
        )


def of_samples(batches: Sequence[Batch], inputs: Mapping[str, ir.Value]) -> Iterator[str]:
    """Yield which of the `inputs`, by their public names, are NaN somewhere."""
    for public, value in inputs.items():
        given = [batch[str(value.name)] for batch in batches if value.name in batch]
        odd = sum(bool(np.isnan(array).any()) for array in given if array.dtype.kind == "f")
        if odd:
            count = plural(len(given), "batch", "batches")
            yield (
                f"{_OPTION}: '{public}' has NaN in {odd} of {count}: ranges leave that out, and "
                "any layer behind it may have an infinite error"
            )
    if batches and not any(array.any() for batch in batches for array in batch.values()):
        yield (
            f"{_OPTION}: there is nothing but 0 in it, so that ranges and errors are those of "
            "nothing; give samples like what is to come"
        )


def of_ranges(convolutions: Sequence[ir.Node], ranges: Ranges) -> Iterator[str]:
    """Yield which of the `convolutions` have a range that is not known."""
    unseen = [
        f"'{node.name}'"
        for node in convolutions
        if any(ranges.get(str(name)) == (0.0, 0.0) for name in _around(node))
    ]
    if unseen:
        yield (
            f"{_OPTION}: no finite number but 0 was seen of what {listed(unseen, _MOST)} "
            f"{'read or give' if len(unseen) > 1 else 'reads or gives'}, so that a range is made "
            "up; give samples like what is to come"
        )


def of_layers(
    layers: Collection[object], in_float32: Collection[str], limit: float | None
) -> Iterator[str]:
    """Yield that all `layers` fell back for a `limit` of the error."""
    if layers and len(in_float32) == len(layers):
        yield (
            f"max_error (--max-error): all layers fell back to float32, as the error of any choice "
            f"that was tried is more than {limit:g}"
        )


def _around(node: ir.Node) -> tuple[str | None, ...]:
    image = node.inputs[0]
    return (None if image is None else image.name, settled(node).name)
