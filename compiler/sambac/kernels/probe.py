"""Ask the installed onnxruntime: what it accepts, and which types it infers."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from functools import partial
from math import prod

import numpy as np
import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as state

from pef import dtypes

_FATAL_ONLY = 4
# So many elements of an input are made to see whether a model runs at all.
_MOST_ZEROS = 1 << 22
# Everything that onnxruntime raises when it refuses a graph.
_REFUSALS = (
    state.Fail,
    state.InvalidArgument,
    state.InvalidGraph,
    state.InvalidProtobuf,
    state.NotImplemented,
    state.RuntimeException,
)
# "[ONNXRuntimeError] : 1 : FAIL : " and "/path/file.cc:46 signature(...) " before the sentence.
_CODE = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ")
_SOURCE_LOCATION = re.compile(r"^(?:Exception during initialization: )?/\S+\.(?:cc|h):\d+ .*?\) ")

_PAD_FUSION = "Pad_Fusion"
"""What takes pads by zeros into pools, whose margins are no zeros (see `passes.keep_pads`)."""

TRANSPOSITIONS = ("TransposeOptimizer", "GemmTransposeFusion", "MatmulTransposeFusion")
"""What moves a model's transpositions: programs that train keep them where they are."""


class RefusedError(Exception):
    """The installed onnxruntime refuses a graph; the message is its own reason."""


def open_session(model: bytes) -> ort.InferenceSession:
    """Create a session for the serialised `model` without optimising it.

    Raises `RefusedError` where onnxruntime refuses the graph.
    """
    try:
        try:
            return _session(model, own_threads=True)
        except RuntimeError as error:
            # A process that has a global thread pool allows no other.
            if "global thread pool" not in str(error):
                raise
            return _session(model, own_threads=False)
    except _REFUSALS as refusal:
        raise RefusedError(_reason(str(refusal))) from refusal


def open_file(path: str | os.PathLike[str]) -> ort.InferenceSession:
    """Create a session for the model in a file, with all that onnxruntime optimises rightly.

    Raises `RefusedError` where onnxruntime refuses the graph.
    """
    return _open_fast(path, 0, "session.intra_op.allow_spinning", "0", without=(_PAD_FUSION,))


def open_fast(model: bytes, threads: int) -> ort.InferenceSession:
    """Create a session for the serialised `model`, optimised as programs are that train.

    It runs on so many `threads`. Raises `RefusedError` where onnxruntime refuses the graph.
    """
    return _open_fast(model, threads, "session.force_spinning_stop", "1", without=TRANSPOSITIONS)


def _open_fast(
    model: str | os.PathLike[str] | bytes,
    threads: int,
    *spinning: str,
    without: Sequence[str],
) -> ort.InferenceSession:
    session = partial(_fast_session, model, threads, *spinning, without=without)
    try:
        try:
            return session(own_threads=True)
        except RuntimeError as error:
            if "global thread pool" not in str(error):
                raise
            return session(own_threads=False)
    except _REFUSALS as refusal:
        raise RefusedError(_reason(str(refusal))) from refusal


def _fast_session(
    model: str | os.PathLike[str] | bytes,
    threads: int,
    *spinning: str,
    own_threads: bool,
    without: Sequence[str],
) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = _FATAL_ONLY
    options.use_per_session_threads = own_threads
    if own_threads:
        options.intra_op_num_threads = threads
    options.add_session_config_entry(*spinning)
    return ort.InferenceSession(
        model,
        options,
        providers=["CPUExecutionProvider"],
        enable_fallback=0,
        disabled_optimizers=[*without],
    )


def results_of(
    session: ort.InferenceSession, names: Sequence[str], feeds: Mapping[str, np.ndarray]
) -> list[np.ndarray]:
    """Run `session` and return the outputs `names`.

    Raises `RefusedError` where onnxruntime refuses what it is fed.
    """
    try:
        found: list[np.ndarray] = session.run([*names], dict(feeds))
    except _REFUSALS as refusal:
        raise RefusedError(_reason(str(refusal))) from refusal
    return found


def run_on_zeros(session: ort.InferenceSession) -> None:
    """Run `session` once on zeros, with 1 for every open dimension.

    Where inputs are no plain tensors, or large ones, nothing is done. Raises `RefusedError` where
    onnxruntime finds only now that operands do not fit.
    """
    feeds = {}
    for port in session.get_inputs():
        number = dtypes.parse(port.type)
        element = None if number is None else dtypes.BY_NUMBER[number]
        sizes = tuple(size if isinstance(size, int) else 1 for size in port.shape)
        plain = element is not None and element.bits and element.storage == element.scalar
        if element is None or not plain or prod(sizes) > _MOST_ZEROS:
            return
        feeds[port.name] = np.zeros(sizes, element.storage)
    try:
        session.run(None, feeds)
    except _REFUSALS as refusal:
        raise RefusedError(_reason(str(refusal))) from refusal


def _session(model: bytes, *, own_threads: bool) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.log_severity_level = _FATAL_ONLY
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.use_per_session_threads = own_threads
    if own_threads:
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
    return ort.InferenceSession(
        model, options, providers=["CPUExecutionProvider"], enable_fallback=0
    )


def _reason(message: str) -> str:
    """Return onnxruntime's own sentence, without error codes and source locations."""
    return _SOURCE_LOCATION.sub("", _CODE.sub("", message.strip())).strip()
