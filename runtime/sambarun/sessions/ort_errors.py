"""What onnxruntime raises, and what it says then."""

from __future__ import annotations

import re

from onnxruntime.capi import _pybind_state as ort

# onnxruntime's exceptions share no base class of their own.
ORT_ERRORS: tuple[type[Exception], ...] = (
    ort.EPFail,
    ort.Fail,
    ort.InvalidArgument,
    ort.InvalidGraph,
    ort.InvalidProtobuf,
    ort.EngineError,
    ort.NoModel,
    ort.NoSuchFile,
    ort.NotFound,
    ort.NotImplemented,
    ort.RuntimeException,
    RuntimeError,
    ValueError,
)

# Where onnxruntime's code stands that raised an error: a file with a line, a function, its types.
_SOURCE = re.compile(r"^/\S+:\d+ .*?\) (\[with [^\]]*\] )?")


_NARROW = re.compile(r"No corresponding Numpy type for Tensor Type\. (\w+)")
_BATCHES = re.compile(r"matmul_helper.*operand cannot broadcast on dim")


def message_of(error: Exception) -> str:
    """Return what onnxruntime said on one line, without its code numbers and source positions."""
    text = str(error)
    if _BATCHES.search(text):
        return (
            "the batches of a product of matrices do not broadcast; give inputs whose batches are "
            "equal or 1 (an empty one does not broadcast here)"
        )
    if narrow := _NARROW.search(text):
        return (
            f"strings, lists or maps go in or out beside tensors of {narrow[1]}, which onnxruntime "
            "cannot hand over together; let the model cast them to float32"
        )
    for preamble in ("[ONNXRuntimeError] : ", "Status Message: ", " was false. "):
        text = _SOURCE.sub("", text.rpartition(preamble)[2] or text)
    number, _, rest = text.partition(" : ")
    if number.isdigit():
        text = rest.partition(" : ")[2]
    return " ".join(text.split())
