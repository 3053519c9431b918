"""Execution providers: whose kernels run programs, and in which memory. Nothing else names one.

Libraries bring some of them to the installed onnxruntime: its plugin libraries. What a provider can
do, models of one operator ask it (`probe`).
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import onnxruntime
from onnxruntime.capi import _pybind_state as ort

from pef import onnx_fields as onnx
from pef.arguments import NAME, PATH, instance, named
from pef.wire import bytes_field, int_field, text_field
from pef.wording import did_you_mean, listed
from sambarun.arrays import Array
from sambarun.errors import RunError, require
from sambarun.forks import keep_in_child

from .ort_errors import ORT_ERRORS, message_of

_IR_VERSION = 8
_OPSET = 13
FLOAT, UINT8, INT8, INT32 = 1, 2, 3, 6
"""ONNX's numbers of element types."""


def probe(
    op_type: str,
    domain: str = "",
    opset: int = _OPSET,
    inputs: Sequence[tuple[str, int]] = (("x", FLOAT),),
    result: int = FLOAT,
) -> bytes:
    """Return a serialised ModelProto in which an operator makes `y`, a `result`, of `inputs`.

    Inputs are names with element types; all shapes are open.
    """
    node = b"".join(
        (
            *(text_field(onnx.NODE_INPUT, name) for name, _ in inputs),
            text_field(onnx.NODE_OUTPUT, "y"),
            text_field(onnx.NODE_OP_TYPE, op_type),
            text_field(onnx.NODE_DOMAIN, domain),
        )
    )
    graph = b"".join(
        (
            bytes_field(onnx.GRAPH_NODE, node),
            text_field(onnx.GRAPH_NAME, "probe"),
            *(bytes_field(onnx.GRAPH_INPUT, _tensor(*port)) for port in inputs),
            bytes_field(onnx.GRAPH_OUTPUT, _tensor("y", result)),
        )
    )
    imports = text_field(onnx.OPSET_DOMAIN, domain) + int_field(onnx.OPSET_VERSION, opset)
    return b"".join(
        (
            int_field(onnx.MODEL_IR_VERSION, _IR_VERSION),
            bytes_field(onnx.MODEL_OPSET_IMPORT, imports),
            bytes_field(onnx.MODEL_GRAPH, graph),
        )
    )


def _tensor(name: str, element: int) -> bytes:
    """Return a ValueInfoProto of a tensor of this element type."""
    tensor = bytes_field(onnx.TYPE_TENSOR, int_field(onnx.TENSOR_TYPE_ELEMENT, element))
    return text_field(onnx.VALUE_NAME, name) + bytes_field(onnx.VALUE_TYPE, tensor)


_METADATA = "library_path"


def require_in_library(name: str, library: str) -> None:
    """Load the library at the path `library`, whose code runs then, for its provider `name`.

    Raises `RunError` where it cannot be loaded, offers no provider of that name, or none of the
    devices of this host is for it.
    """
    path = Path(library).resolve()
    if not path.is_file():
        raise RunError(f"There is no library '{library}'.")
    _register(path)
    offered = sorted(
        {
            device.ep_name
            for device in onnxruntime.get_ep_devices()
            if device.ep_metadata.get(_METADATA) == str(path)
        }
    )
    if not offered:
        raise RunError(
            f"The library {library} has execution providers for other devices than this host's."
        )
    if name not in offered:
        raise RunError(
            f"The library {library} has no execution provider '{name}'"
            f"{did_you_mean(name, offered)}; it has {listed(offered)}."
        )


@functools.cache
def _register(path: Path) -> None:
    """Have onnxruntime load a library: once, as its providers stay in the process."""
    try:
        onnxruntime.register_execution_provider_library(str(path), str(path))
    except ORT_ERRORS as error:
        raise RunError(
            f"{path} cannot be loaded as a library of execution providers: {message_of(error)}."
        ) from error


_CPU = "CPUExecutionProvider"
# The packages that bring builds of onnxruntime with a provider, in place of `onnxruntime`.
_PACKAGES = {
    "CANNExecutionProvider": "onnxruntime-cann",
    "CUDAExecutionProvider": "onnxruntime-gpu",
    "DmlExecutionProvider": "onnxruntime-directml",
    "MIGraphXExecutionProvider": "onnxruntime-migraphx",
    "NvTensorRTRTXExecutionProvider": "onnxruntime-trt-rtx",
    "OpenVINOExecutionProvider": "onnxruntime-openvino",
    "QNNExecutionProvider": "onnxruntime-qnn",
    "TensorrtExecutionProvider": "onnxruntime-gpu",
    "WebGpuExecutionProvider": "onnxruntime-webgpu",
}
_SUFFIX = "ExecutionProvider"
# Those that have no options: onnxruntime passes over whatever they are given.
_WITHOUT_OPTIONS = ("AzureExecutionProvider", _CPU)
# The memories that symbols may lie in, which host and sessions both read and write at its
# addresses, and what onnxruntime calls their allocators.
_ALLOCATORS = {"cpu:0": "Cpu"}
_OPTIONS = named(instance(str, ""), "a dict of texts by name")


@dataclass(frozen=True)
class Provider:
    """An execution provider of onnxruntime, whose kernels run a program.

    `name` is onnxruntime's, and `options` are for the provider, texts by name. `memory` is where
    symbols lie and where results come to be; a provider that computes elsewhere copies from there
    and back. A section that it does not have all kernels for is run by those of the processor.
    `library` is the path of the plugin library that brings the provider, whose code is loaded into
    this process; without one, onnxruntime itself has it.

    Raises `RunError` for what is of the wrong kind, for a provider that the installed onnxruntime,
    or the library, does not have, for options of one that takes none, and for memory that the host
    does not read and write. Other options are looked at when a program is loaded.
    """

    name: str = _CPU
    options: Mapping[str, str] = field(default_factory=dict, hash=False)
    memory: str = "cpu:0"
    library: str | None = None

    def __post_init__(self) -> None:
        require(
            name=(self.name, NAME), options=(self.options, _OPTIONS), memory=(self.memory, NAME)
        )
        object.__setattr__(self, "options", dict(self.options))  # the caller may change theirs
        if self.library is not None:
            require(library=(self.library, PATH))
            require_in_library(self.name, self.library)
        # onnxruntime itself would take the processor's kernels in place of those it does not have.
        available = onnxruntime.get_available_providers()
        if self.name not in available:
            raise RunError(_unavailable(self.name, available))
        if self.options and self.name in _WITHOUT_OPTIONS:
            raise RunError(f"{self.name} takes no options, so not {_quoted(self.options)}.")
        if self.memory not in _ALLOCATORS:
            raise RunError(
                f"The memory of {self.name} is '{self.memory}'; symbols lie in memory that the "
                f"host reads and writes too: {', '.join(_ALLOCATORS)}."
            )

    @classmethod
    def spelled(cls, text: str) -> Self:
        """Return the provider that `NAME[@LIBRARY][:KEY=VALUE,...]` means.

        A value may have commas, where no other key follows them. Raises `RunError` for options
        without a key or named twice, and for what no provider can be.
        """
        place, _, words = text.partition(":")
        name, at, library = place.partition("@")
        options: dict[str, str] = {}
        key = ""
        for word in words.split(",") if words else ():
            before, equals, value = word.partition("=")
            if not equals and key:
                options[key] += f",{word}"
                continue
            key = before.strip()
            if not equals or not key:
                raise RunError(f"'{word}' is no option of {name}; write it as KEY=VALUE.")
            if key in options:
                raise RunError(f"The option '{key}' of {name} is given twice.")
            options[key] = value
        return cls(name.strip(), options, library=library if at else None)

    @property
    def is_processor(self) -> bool:
        """Whether its kernels are those of the processor, which differ from host to host."""
        return self.name == _CPU

    def open(
        self, model: bytes, options: onnxruntime.SessionOptions
    ) -> onnxruntime.InferenceSession:
        """Create a session for a serialised ModelProto, of which this provider runs all operators.

        Raises what onnxruntime raises, also where some were not for it.
        """
        if not self.is_processor:
            options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
        return self._open(model, options)

    def require_start(self, options: onnxruntime.SessionOptions) -> None:
        """Raise what onnxruntime raises where it cannot start the provider, or not with `options`.

        Libraries or a device that are not there are a `RunError`: onnxruntime would go on without.
        So are options that are not among those which the provider says it has.
        """
        session = self._open(probe("Identity"), options)
        if self.name not in session.get_providers():
            given = ", ".join(f"{key}={value}" for key, value in self.options.items())
            otherwise = f", or it does not take {given}" if given else ""
            raise RunError(
                f"The installed onnxruntime has {self.name}, but cannot start it: a library that "
                f"it needs, or its device, is missing{otherwise}."
            )
        known = session.get_provider_options().get(self.name, {})
        if known and not self.options.keys() <= known.keys():
            problems = [
                f"{self.name} has no option '{key}'{did_you_mean(key, known)}; it has "
                f"{', '.join(sorted(known))}."
                for key in sorted(self.options.keys() - known.keys())
            ]
            raise RunError("\n".join(problems))

    def _open(
        self, model: bytes, options: onnxruntime.SessionOptions
    ) -> onnxruntime.InferenceSession:
        own = dict(self.options)
        session = onnxruntime.InferenceSession(
            model, options, providers=[self.name], provider_options=[own], enable_fallback=0
        )
        keep_in_child(session)
        return session

    def tensor(self, content: Array, dtype: int) -> ort.OrtValue:
        """Return an onnxruntime value of element type `dtype` over `content`, without a copy."""
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(content, dtype)

    @property
    def device(self) -> Any:
        """The memory as bindings want it."""
        kind, number = self._place
        return onnxruntime.OrtDevice.make(kind, number)._get_c_device()

    @property
    def arena(self) -> ort.OrtMemoryInfo:
        """The memory as allocators want it."""
        arena, default = ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, ort.OrtMemType.DEFAULT
        return ort.OrtMemoryInfo(_ALLOCATORS[self.memory], arena, self._place[1], default)

    @property
    def learning(self) -> onnxruntime.RunOptions:
        """Options for the first run of a session, which learns how much memory the session needs.

        onnxruntime then plans it in one piece, and would otherwise keep beside it what the first
        run took bit by bit.
        """
        options = onnxruntime.RunOptions()
        options.add_run_config_entry("memory.enable_memory_arena_shrinkage", self.memory)
        return options

    @property
    def _place(self) -> tuple[str, int]:
        kind, _, number = self.memory.partition(":")
        return kind, int(number)


def copied_inputs(session: onnxruntime.InferenceSession, asked: Provider) -> frozenset[str]:
    """Return the inputs of `session` that are read elsewhere than where `asked` has symbols.

    onnxruntime copies those when they are bound, not when it runs: each run binds them anew.
    """
    if asked.is_processor:
        return frozenset()
    places = zip(session.get_inputs(), session.get_input_memory_infos(), strict=True)
    here = _ALLOCATORS[asked.memory]
    return frozenset(port.name for port, place in places if place.name != here)


def _unavailable(name: str, available: Collection[str]) -> str:
    """Return what to say of a provider that the installed onnxruntime does not have."""
    known = ", ".join(available)
    if name in onnxruntime.get_all_providers():
        package = _PACKAGES.get(name)
        brought = f", which the package {package} brings in its place" if package else ""
        return f"The installed onnxruntime has been built without {name}{brought}; it has {known}."
    others = (*onnxruntime.get_all_providers(), *available)
    short = {each.removesuffix(_SUFFIX): each for each in others}
    meant = next((each for word, each in short.items() if word.casefold() == name.casefold()), "")
    hint = f" (did you mean '{meant}'?)" if meant else did_you_mean(name, short.values())
    return f"There is no execution provider '{name}'{hint}. The installed onnxruntime has {known}."


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f"'{name}'" for name in names)


CPU = Provider()
"""The processor's kernels, in the process's memory: what programs run on if nobody says more."""
