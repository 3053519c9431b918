"""Links between replicas: how long a reduction takes, and whose numbers these are."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import inf, isfinite

from pef.program import Program
from sambac.errors import CompileError
from sambac.planning.collectives import ring_time

_NUMBER = r"(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?)"
_BANDWIDTH = re.compile(rf"{_NUMBER}\s*(?:([kMGT]?)(B|bit|b)(?:/s|ps)?)?")
_SECONDS = re.compile(rf"{_NUMBER}\s*(s|ms|us|ns)?")
_PREFIXES = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_UNITS = {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
_BITS = 8


@dataclass(frozen=True, slots=True)
class Link:
    """A ring of replicas: the bytes a second from each to the next, and the seconds of a start."""

    bandwidth: float
    latency: float

    def reduction(self, nbytes: int, replicas: int) -> float:
        """Return the seconds in which `replicas` add up so many bytes; none for one alone."""
        if replicas == 1:
            return 0.0
        return ring_time((nbytes,), replicas, self.latency, self.bandwidth)


def parse_bandwidth(text: str) -> float:
    """Return the bytes a second in `25GB/s` or `200Gbit/s`. Raises `CompileError`."""
    found = _BANDWIDTH.fullmatch(text.strip())
    value = 0.0
    if found:
        number, prefix, unit = found.groups()
        if unit is None and 0 < float(number) < inf:
            raise CompileError(
                f"{text!r} is a bandwidth without a unit; say which is meant, such as "
                f"{number}GB/s, {number}MB/s or {number}Gbit/s."
            )
        value = float(number) * _PREFIXES[prefix or ""] / (_BITS if unit in ("bit", "b") else 1)
    if not value or not isfinite(value):
        raise CompileError(f"{text!r} is no bandwidth; give one such as 25GB/s or 200Gbit/s.")
    return value


def parse_seconds(text: str) -> float:
    """Return the seconds in `3us`, `0.5ms` or `0`. Raises `CompileError`."""
    found = _SECONDS.fullmatch(text.strip())
    if found and found[2] is None and 0 < float(found[1]) < inf:
        raise CompileError(
            f"{text!r} is a time without a unit; say which is meant: "
            f"{', '.join(found[1] + unit for unit in _UNITS)}."
        )
    value = float(found[1]) * _UNITS[found[2] or "s"] if found else float("inf")
    if not isfinite(value):
        raise CompileError(f"{text!r} is no time; give one such as 3us.")
    return value


def link_of(program: Program, bandwidth: float | None, latency: float | None) -> Link:
    """Return the link between replicas; what is None is what the device of `program` has.

    Raises `CompileError` for what neither says: nobody published it.
    """
    known = {each.name: each.value for each in program.device}
    bandwidth = known.get("link_bandwidth") if bandwidth is None else bandwidth
    latency = known.get("link_latency") if latency is None else latency
    if bandwidth is None or latency is None:
        missing = [
            f"its {word} ({option}, such as {example})"
            for word, value, option, example in (
                ("bandwidth", bandwidth, "--link-bandwidth", "25GB/s"),
                ("latency", latency, "--link-latency", "3us"),
            )
            if value is None
        ]
        raise CompileError(
            f"the link between replicas is not known: give {' and '.join(missing)}. Nobody "
            f"published that for {program.arch or 'this device'}; the file of a device (--arch "
            "FILE) may have it as link_bandwidth and link_latency."
        )
    return Link(bandwidth, latency)
