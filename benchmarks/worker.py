"""One engine with one model in a process of its own; see `benchmarks.contestants`."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

Feeds = Mapping[str, np.ndarray]
Run = Callable[[Feeds], object]


def plain(model: str, threads: int) -> Run:
    """An ordinary onnxruntime session with `threads` threads and otherwise default options."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return lambda feeds: session.run(None, dict(feeds))


def openvino(precision: str, model: str, threads: int) -> Run:
    """OpenVINO on the processor, set up for one request at a time."""
    import openvino as ov

    properties = {
        "INFERENCE_PRECISION_HINT": precision,
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
    }
    request = ov.Core().compile_model(model, "CPU", properties).create_infer_request()
    return lambda feeds: request.infer(dict(feeds), share_inputs=True, share_outputs=True)


def command(model: str, threads: int) -> Run:
    """A PEF as the `sambarun` command runs it: the process is ours, one pool for all sections."""
    import sambarun

    return sambarun.load(model, threads=threads, own_process=True).run


def command_kept(model: str, threads: int) -> Run:
    """The same whose results stay where they are, as the keys and values of a decoder do."""
    import sambarun

    executable = sambarun.load(model, threads=threads, own_process=True)
    return lambda feeds: executable.run(feeds, copy=False)


def command_unlinked(model: str, threads: int) -> Run:
    """The same with every section a session of its own."""
    import sambarun

    return sambarun.load(model, threads=threads, own_process=True, link=False).run


def library_unlinked(model: str, threads: int) -> Run:
    """A PEF as a guest in somebody else's process, every section a session of its own."""
    import sambarun

    return sambarun.load(model, threads=threads, link=False).run


ENGINES: Mapping[str, Callable[[str, int], Run]] = {
    "plain": plain,
    "openvino f32": partial(openvino, "f32"),
    "openvino bf16": partial(openvino, "bf16"),
    "command": command,
    "command-kept": command_kept,
    "command-unlinked": command_unlinked,
    "library-unlinked": library_unlinked,
}


def main() -> None:
    """Load, then answer each number on standard input with that many times in seconds."""
    engine, model, inputs, threads = sys.argv[1:]
    run = ENGINES[engine](model, int(threads))
    with np.load(inputs) as stored:
        feeds = dict(stored)
    run(feeds)
    for line in sys.stdin:
        times = []
        for _ in range(int(line)):
            start = time.perf_counter()
            run(feeds)
            times.append(time.perf_counter() - start)
        print(json.dumps(times), flush=True)


if __name__ == "__main__":
    main()
