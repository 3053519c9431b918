"""What onnxruntime raises, and what it says then."""

from __future__ import annotations

import re
from collections.abc import Mapping

import onnxruntime
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
_SOURCE = re.compile(r"^/\S+:\d+ .*?\) (const )?(\[with [^\]]*\] )?")
# What stands in front of the sentence; the last one may be all that is said.
_PREAMBLES = (
    "[ONNXRuntimeError] : ",
    "Status Message: ",
    "Exception during initialization: ",
    " was false. ",
)

_SILENT = re.compile(r"code returned while running (\w+) node\. Name:'.*' Status Message:$")
_NARROW = re.compile(r"No corresponding Numpy type for Tensor Type\. (\w+)")
_BATCHES = re.compile(r"matmul_helper.*operand cannot broadcast on dim")

_NO_STEPS = re.compile(r"running Scan node.*Invalid dim0_offset of 0", re.DOTALL)


def message_of(error: Exception) -> str:
    """Return what onnxruntime said on one line, without its code numbers and source positions."""
    text = str(error)
    if _BATCHES.search(text):
        return (
            "the batches of a product of matrices do not broadcast; give inputs whose batches are "
            "equal or 1 (an empty one does not broadcast here)"
        )
    if _NO_STEPS.search(text):
        return "a Scan has no steps, which onnxruntime cannot run; give inputs of one step or more"
    if narrow := _NARROW.search(text):
        return (
            f"strings, lists or maps go in or out beside tensors of {narrow[1]}, which onnxruntime "
            "cannot hand over together; let the model cast them to float32"
        )
    for preamble in _PREAMBLES:
        text = _SOURCE.sub("", text.rpartition(preamble)[2].strip() or text)
    if silent := _SILENT.search(text):
        return f"onnxruntime's {silent[1]} fails on what it is given here, and does not say why"
    number, _, rest = text.partition(" : ")
    if number.isdigit():
        text = rest.partition(" : ")[2]
    return " ".join(text.split())


def if_older(compiled_with: Mapping[str, str]) -> str:
    """Return what else to say of an error where the installed onnxruntime is an older one.

    `compiled_with` are the versions of libraries that the program was compiled with.
    """
    wanted, here = compiled_with.get("onnxruntime", ""), onnxruntime.__version__
    if _numbers(here) >= _numbers(wanted):
        return ""
    return (
        f" (it was compiled with onnxruntime {wanted}, and {here} is installed, which may not have "
        "all of its operators: install a newer one)"
    )


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)[:3]]
