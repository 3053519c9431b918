"""onnxruntime sessions: the one place that creates them, and what memory they take.

By default every session has an arena of its own, which keeps what its largest run needed. Sessions
of one program never need theirs at the same time, so they share one: the program then holds the
most that one of them needs, not the sum. Sessions opt in one by one; those that other code makes
in the same process are not concerned.
"""

from __future__ import annotations

import ctypes
import os
import time
from typing import NamedTuple

import onnxruntime
from onnxruntime.capi import _pybind_state as ort

from pef.files import folder_in_text
from sambarun.errors import RunError

from .ort_errors import ORT_ERRORS, message_of
from .plain_operators import plainer
from .provider import CPU, Provider
from .threads import Threads, needs_shared_pool

# Failures become exceptions with a message; onnxruntime need not print them as well.
_LOG_FATAL = 4
_LEFT_OUT = "optimization.disable_specified_optimizers"
_MOVES = ("TransposeOptimizer", "GemmTransposeFusion", "MatmulTransposeFusion")
_SCALES = ("MatMulScaleFusion",)


class Tuning(NamedTuple):
    """How sessions are made.

    `prepack` copies matrix weights into the layout the kernels like best, which takes time and
    memory once; `optimize` lets onnxruntime rewrite the graph. Both pay off from a few runs on.
    With `moves` that takes in its Transposes: it brings them together, which removes some of a
    model that was exported so, or makes them part of products. Those of a step are where they cost
    least: one made of two may move single elements where the two move rows, and products that turn
    an operand may take longer than both. With `scales` numbers that products are scaled
    with become attributes, which have the digits of float32.
    `provider` has the kernels. Sessions keep the times of their operators for `profiling`
    where `profiles` is a folder for that.
    """

    threads: Threads
    prepack: bool = True
    optimize: bool = True
    moves: bool = True
    scales: bool = True
    provider: Provider = CPU
    profiles: str = ""


class IncompleteError(RunError):
    """The provider has no kernel for some operators of a program, or cannot make it ready.

    The processor runs it.
    """


def create_session(
    model: bytes, folder: str, tuning: Tuning, sessions: int = 1
) -> onnxruntime.InferenceSession:
    """Create a session for a serialised ModelProto whose weights are in files of `folder`.

    `sessions` is about how many will live together, so that they can share the processor's
    threads. Raises `RunError` with onnxruntime's words if it refuses the model, `IncompleteError`
    if another provider than the processor's cannot run all of it, or fails to make it ready.
    """
    if tuning.provider.is_processor:
        return _with_enough_threads(model, folder, tuning, sessions)
    refused: list[RunError] = []
    for plain in plainer(model):
        try:
            return _with_enough_threads(plain, folder, tuning, sessions)
        except RunError as error:
            refused.append(error)
    raise IncompleteError(str(refused[0])) from refused[0]


def _with_enough_threads(
    model: bytes, folder: str, tuning: Tuning, sessions: int
) -> onnxruntime.InferenceSession:
    try:
        with folder_in_text(folder) as name:
            return _create(model, name, tuning, sessions)
    except ORT_ERRORS as error:
        if needs_shared_pool(error) and not tuning.threads.shared:
            shared = tuning._replace(threads=tuning.threads._replace(shared=True))
            return _with_enough_threads(model, folder, shared, sessions)
        raise RunError(message_of(error)) from error


def be_quiet() -> None:
    """Let onnxruntime print nothing in this process, of which no other code uses it."""
    onnxruntime.set_default_logger_severity(_LOG_FATAL)


def require_provider(tuning: Tuning) -> None:
    """Raise `RunError` where the provider cannot be started with its options; tries it."""
    if tuning.provider.is_processor:
        return
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _LOG_FATAL
    tuning.threads.configure(options, 1)
    try:
        tuning.provider.require_start(options)
    except ORT_ERRORS as error:
        said = message_of(error)
        raise RunError(f"{tuning.provider.name} cannot be started: {said}") from error


def _create(
    model: bytes, folder: str, tuning: Tuning, sessions: int
) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _LOG_FATAL
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", folder)
    # Its own format looks like any other bytes, and onnxruntime would believe every offset in it.
    options.add_session_config_entry("session.load_model_format", "ONNX")
    tuning.threads.configure(options, sessions)
    join_arena(options)
    if tuning.profiles:
        options.enable_profiling = True
        # Some versions call the files of all sessions of one second alike.
        options.profile_file_prefix = os.path.join(tuning.profiles, str(time.monotonic_ns()))
    if not tuning.prepack:
        options.add_session_config_entry("session.disable_prepacking", "1")
    if not tuning.optimize:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    wanted = {_MOVES: tuning.moves, _SCALES: tuning.scales}
    left = [name for names, pays_off in wanted.items() if not pays_off for name in names]
    if left:
        options.add_session_config_entry(_LEFT_OUT, ";".join(left))
    return tuning.provider.open(model, options)


def begin_arena(provider: Provider) -> None:
    """Let the sessions of `provider` that `join_arena` from now on share a new arena.

    It takes the place of the one before, which lives on as long as a session uses it. Nothing but
    memory depends on which sessions share: an arena may be used by many threads.
    """
    ort.create_and_register_allocator(provider.arena, None)


def join_arena(options: onnxruntime.SessionOptions) -> None:
    """Have the session that is made with `options` use the present arena."""
    options.add_session_config_entry("session.use_env_allocators", "1")


def trim_heap() -> None:
    """Give back what the C library keeps of freed memory, where it can be told to.

    Making sessions and running them for the first time frees many pieces that are too small to go
    back by themselves, in all as much as a small program needs.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # glibc has it, others do not
    if trim is not None:
        trim(0)
