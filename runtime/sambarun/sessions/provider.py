"""Execution providers: whose kernels run programs, and in which memory. Nothing else names one."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

import onnxruntime
from onnxruntime.capi import _pybind_state as ort

from pef.arguments import NAME, Kind
from pef.wording import did_you_mean
from sambarun.arguments import require
from sambarun.arrays import Array
from sambarun.errors import RunError

_CPU = "CPUExecutionProvider"
# The memories that symbols may lie in, which host and sessions both read and write at its
# addresses, and what onnxruntime calls their allocators.
_ALLOCATORS = {"cpu:0": "Cpu"}
_OPTIONS = Kind(
    "a dict of texts by name",
    lambda value: (
        isinstance(value, Mapping)
        and all(isinstance(text, str) for pair in value.items() for text in pair)
    ),
)


@dataclass(frozen=True)
class Provider:
    """An execution provider of onnxruntime, whose kernels run a program.

    `name` is onnxruntime's, and `options` are for the provider, texts by name. `memory` is where
    symbols lie and where results come to be; a provider that computes elsewhere copies from there
    and back. What it has no kernel for, those of the processor do.

    Raises `RunError` for what is of the wrong kind, for a provider that the installed onnxruntime
    does not have, and for memory that the host does not read and write.
    """

    name: str = _CPU
    options: Mapping[str, str] = field(default_factory=dict, hash=False)
    memory: str = "cpu:0"

    def __post_init__(self) -> None:
        require(
            name=(self.name, NAME), options=(self.options, _OPTIONS), memory=(self.memory, NAME)
        )
        object.__setattr__(self, "options", dict(self.options))  # the caller may change theirs
        # onnxruntime itself would take the processor's kernels in place of those it does not have.
        available = onnxruntime.get_available_providers()
        if self.name not in available:
            raise RunError(_unavailable(self.name, available))
        if self.memory not in _ALLOCATORS:
            raise RunError(
                f"The memory of {self.name} is '{self.memory}'; symbols lie in memory that the "
                f"host reads and writes too: {', '.join(_ALLOCATORS)}."
            )

    @property
    def is_processor(self) -> bool:
        """Whether its kernels are those of the processor, which differ from host to host."""
        return self.name == _CPU

    def open(
        self, model: bytes, options: onnxruntime.SessionOptions
    ) -> onnxruntime.InferenceSession:
        """Create a session for a serialised ModelProto; raises what onnxruntime raises."""
        own = dict(self.options)
        return onnxruntime.InferenceSession(
            model, options, providers=[self.name], provider_options=[own], enable_fallback=0
        )

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


def _unavailable(name: str, available: Collection[str]) -> str:
    """Return what to say of a provider that the installed onnxruntime does not have."""
    known = ", ".join(available)
    if name in onnxruntime.get_all_providers():
        return (
            f"The installed onnxruntime has been built without {name}; it has {known}. Install a "
            f"build of it that has the provider, or take one of these."
        )
    hint = did_you_mean(name, available)
    return f"There is no execution provider '{name}'{hint}. The installed onnxruntime has {known}."


CPU = Provider()
"""The processor's kernels, in the process's memory: what programs run on if nobody says more."""
