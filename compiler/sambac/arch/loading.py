"""Architectures: what a device is to the compiler, and how a TOML file says it.

To the compiler it is a frozen record of constants. A `Constant` says in which unit it is, whether a
publication states it (`specified`), a fit to measurements gave it (`calibrated`) or we had to
choose it (`assumed`), and names the source. What nobody has published is absent, never guessed.

Every mistake in a file is reported at once. It has a `name`, a `title` and one table per constant:

    [hbm_bandwidth]
    value = 1.8e12
    unit = "B/s"
    origin = "specified"
    source = "Prabhakar et al., MICRO 2024, Table II"
    alternatives = [{ value = 1.6e12, source = "Hot Chips 2024 slides" }]
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Literal, get_args

from pef.foreign import reading, why
from pef.symbols import RegionKind
from pef.wording import did_you_mean
from sambac.errors import CompileError

Origin = Literal["specified", "calibrated", "assumed"]
ORIGINS: tuple[str, ...] = get_args(Origin)


@dataclass(frozen=True, slots=True)
class Alternative:
    """Another published figure for a constant, carried so that a user can choose it."""

    value: float
    source: str


@dataclass(frozen=True, slots=True)
class Constant:
    """A number with its unit, origin and source; `alternatives` are figures that contradict it."""

    value: float
    unit: str
    origin: Origin
    source: str
    alternatives: tuple[Alternative, ...] = ()


@dataclass(frozen=True, slots=True)
class Tier:
    """How fast the device reads one address space; `None` where nobody published it.

    `bandwidth` is in bytes per second, `efficiency` the share of it that programs reach.
    """

    bandwidth: Constant | None
    efficiency: Constant | None


@dataclass(frozen=True)
class Arch:
    """A device: on-chip limits, address spaces and what the cost model needs.

    `pcus` and `pmus` are compute and memory units of the chip, `pmu_bytes` the SRAM of one memory
    unit. `peak_flops` is the data-sheet rate of the whole chip in BF16, `compute_efficiency` the
    share that compiled programs reach. `launch` is the time to start a section, `fill` the time
    that one pipeline stage adds before the first result leaves the section.
    `stream_bandwidth` is what one stream moves. A tensor is one stream for a section of one kernel,
    and `fused_streams`, which need not be whole, where several run together.
    `stage_pmus` are the memory units of one stage of a pipeline at most. `capacities` are bytes of
    each address space that the device has. A chip is divided into `tiles`; `chips` of them work on
    each operator together, each on a part of it, and `link_latency` is the time of one collective
    between them, beside `link_bandwidth` for its bytes.
    """

    name: str
    title: str
    pcus: Constant
    pmus: Constant
    pmu_bytes: Constant
    peak_flops: Constant
    compute_efficiency: Constant
    launch: Constant
    fill: Constant
    regions: dict[RegionKind, Constant]
    tiers: dict[RegionKind, Tier] = field(default_factory=dict)
    stream_bandwidth: Constant | None = None
    tiles: Constant | None = None
    fused_streams: Constant | None = None
    stage_pmus: Constant | None = None
    link_latency: Constant | None = None
    link_bandwidth: Constant | None = None
    chips: int = 1

    @property
    def capacities(self) -> dict[RegionKind, int]:
        """Bytes of each address space of the device."""
        return {kind: int(constant.value) for kind, constant in self.regions.items()}

    @property
    def main_memory(self) -> RegionKind:
        """Where tensors live unless something asks for another place: HBM, or DDR without it."""
        return RegionKind.HBM if RegionKind.HBM in self.regions else RegionKind.DDR

    @property
    def flops_per_pcu(self) -> float:
        """Floating-point operations per second that one compute unit reaches."""
        return self.peak_flops.value * self.compute_efficiency.value / self.pcus.value

    def speed(self, kind: RegionKind) -> float | None:
        """Bytes per second that a section moves to and from an address space, if it is known."""
        tier = self.tiers.get(kind)
        if tier is None or tier.bandwidth is None:
            return None
        return tier.bandwidth.value * (tier.efficiency.value if tier.efficiency else 1.0)


@dataclass(frozen=True, slots=True)
class _Field:
    """What a file has to say of a constant; it says nothing without another one that it is `of`.

    `meaning` is what the number is, of those that a file may leave out.
    """

    unit: str
    meaning: str = ""
    required: bool = False
    of: str | None = None
    whole: bool = False
    at_most: float | None = None


_FIELDS: dict[str, _Field] = {
    "pcus": _Field("units", required=True, whole=True),
    "pmus": _Field("units", required=True, whole=True),
    "pmu_bytes": _Field("B", required=True, whole=True),
    "peak_flops": _Field("FLOP/s", required=True),
    "compute_efficiency": _Field("share", required=True, at_most=1.0),
    "launch": _Field("s", required=True),
    "fill": _Field("s", required=True),
    "hbm_capacity": _Field("B", "HBM; without it all lies in DDR", whole=True),
    "hbm_bandwidth": _Field("B/s", "to and from HBM", of="hbm_capacity"),
    "hbm_efficiency": _Field(
        "share", "of hbm_bandwidth that programs reach", of="hbm_bandwidth", at_most=1.0
    ),
    "tiles": _Field("units", "parts of the chip, for --num-tiles", whole=True),
    "fused_streams": _Field(
        "streams", "of one tensor, where several kernels run together", of="stream_bandwidth"
    ),
    "link_latency": _Field("s", "of one collective between chips"),
    "link_bandwidth": _Field("B/s", "from one chip to the next"),
    "stage_pmus": _Field("units", "memory units of a stage of a pipeline at most", whole=True),
    "ddr_capacity": _Field("B", required=True, whole=True),
    "ddr_bandwidth": _Field("B/s", "to and from DDR"),
    "ddr_efficiency": _Field(
        "share", "of ddr_bandwidth that programs reach", of="ddr_bandwidth", at_most=1.0
    ),
    "host_capacity": _Field("B", required=True, whole=True),
    "host_bandwidth": _Field("B/s", "to and from the host's memory"),
    "stream_bandwidth": _Field("B/s", "of one stream"),
}
# Beyond these nothing is a device's, and estimates leave the range of numbers.
_SMALLEST, LARGEST = 1e-15, float(1 << 62)
_PARTS = ("value", "unit", "origin", "source", "alternatives")
_HEADER = ("name", "title")


@cache
def builtin_archs() -> tuple[str, ...]:
    """Names of the architectures that come with the compiler, in alphabetical order."""
    files = resources.files(__package__).joinpath("data").iterdir()
    return tuple(sorted(file.name[:-5] for file in files if file.name.endswith(".toml")))


def load_arch(name_or_path: str) -> Arch:
    """Return a built-in architecture by name, or the one that a TOML file describes.

    Raises `CompileError` for a name that is neither, and for a file with mistakes, all of which
    it lists.
    """
    if (name := str(name_or_path)) in builtin_archs():  # of a path, too
        return _builtin(name)
    path = Path(name)
    if path.is_file():
        return parse_arch(_read(path), str(path))
    if path.exists() and not path.is_dir():  # it is read more than once
        raise CompileError(
            f"{name} is a device or pipe; store the description in a file and give that."
        )
    raise CompileError(_unknown(name))


def arch_text(name_or_path: str) -> str:
    """Return the text that describes an architecture, to start another one from.

    Behind a built-in one stand the numbers that it leaves out, as comments. Raises `CompileError`
    as `load_arch`.
    """
    load_arch(name_or_path)
    if name_or_path not in builtin_archs():
        return _read(Path(name_or_path))
    text = _builtin_text(name_or_path)
    return f"{text}\n{''.join(_absent(tomllib.loads(text)))}"


def _absent(table: Mapping[str, object]) -> Iterator[str]:
    """Yield comments about the numbers that `table` leaves out."""
    absent = {key: wanted for key, wanted in _FIELDS.items() if key not in table}
    yield "# Left out, as nobody knows it or the device has none; estimates count no time for it,\n"
    yield "# or no such limit:\n"
    for key, wanted in absent.items():
        yield f"# {key:<18}{f'[{wanted.unit}]':<11}{wanted.meaning}\n"


@cache
def _builtin(name: str) -> Arch:
    return parse_arch(_builtin_text(name), name)


def _builtin_text(name: str) -> str:
    return resources.files(__package__).joinpath("data", f"{name}.toml").read_text("utf-8")


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CompileError(f"{path}: cannot read the architecture: {error}.") from error


def _unknown(name: str) -> str:
    known = builtin_archs()
    if name.endswith(".toml") or "/" in name:
        return f"There is no architecture file {name!r}; built-in ones are {', '.join(known)}."
    return (
        f"Unknown architecture {name!r}{did_you_mean(name, known)}; choose one of "
        f"{', '.join(known)}, or give the path of a TOML file."
    )


def parse_arch(text: str, origin: str) -> Arch:
    """Return the architecture that a TOML `text` describes; `origin` is how errors call it.

    Raises `CompileError` with all mistakes.
    """
    with reading(lambda error: CompileError(f"{origin}: not a TOML file: {why(error)}.")):
        table = tomllib.loads(text)
    problems = [*_header_problems(table), *_missing(table), *_unexpected(table)]
    for key in filter(table.__contains__, _FIELDS):
        problems += _constant_problems(key, table[key])
    if problems:
        raise CompileError(f"{origin}: {'; '.join(problems)}.")
    constants = {key: _constant(table[key]) for key in _FIELDS if key in table}
    return arch_from(str(table["name"]), str(table["title"]), constants)


def _header_problems(table: Mapping[str, object]) -> list[str]:
    return [
        f"{key!r} must be a string that is not empty"
        for key in _HEADER
        if key in table and not (isinstance(table[key], str) and table[key])
    ]


def _missing(table: Mapping[str, object]) -> list[str]:
    required = dict.fromkeys((*_HEADER, *(k for k, w in _FIELDS.items() if w.required)), "")
    for key, wanted in _FIELDS.items():
        if wanted.of is not None and key in table:
            required.setdefault(wanted.of, f", without which {key} decides nothing")
    return [f"key {key!r} is missing{rest}" for key, rest in required.items() if key not in table]


def _unexpected(table: Mapping[str, object]) -> list[str]:
    known = (*_HEADER, *_FIELDS)
    return [
        f"unknown key {key!r:.60}{did_you_mean(key, known)}" for key in table if key not in known
    ]


def _constant_problems(key: str, entry: object) -> list[str]:
    """List what is wrong with the table of one constant."""
    wanted = _FIELDS[key]
    if not isinstance(entry, dict):
        return [f"{key} must be a table with value, unit, origin and source"]
    problems = [
        f"{key} has an unknown entry {part!r:.60}{did_you_mean(part, _PARTS)}"
        for part in entry
        if part not in _PARTS
    ]
    problems += [f"{key}.{part} is missing" for part in _PARTS[:4] if part not in entry]
    if "value" in entry:
        problems += _value_problems(f"{key}.value", entry["value"], wanted)
    if entry.get("unit", wanted.unit) != wanted.unit:
        problems.append(f"{key}.unit is {entry['unit']!r:.40}, expected {wanted.unit!r}")
    if entry.get("origin", ORIGINS[0]) not in ORIGINS:
        problems.append(
            f"{key}.origin is {entry['origin']!r:.40}, expected one of {', '.join(ORIGINS)}"
        )
    if not isinstance(entry.get("source", ""), str):
        problems.append(f"{key}.source must be a string")
    return problems + _alternative_problems(key, entry.get("alternatives", []), wanted)


def _value_problems(where: str, value: object, wanted: _Field) -> list[str]:
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        return [f"{where} is {value!r:.40}, expected a number above zero"]
    if not _SMALLEST <= value <= LARGEST:
        return [f"{where} is {value!r:.40}, expected one from {_SMALLEST:g} to {LARGEST:g}"]
    if wanted.whole and value != int(value):
        return [f"{where} is {value!r}, expected a whole number"]
    if wanted.at_most is not None and value > wanted.at_most:
        return [f"{where} is {value!r}, expected at most {wanted.at_most:g}"]
    return []


def _alternative_problems(key: str, entries: object, wanted: _Field) -> list[str]:
    where = f"{key}.alternatives"
    if not isinstance(entries, list):
        return [f"{where} must be a list of tables with value and source"]
    problems: list[str] = []
    for entry in entries:
        if not isinstance(entry, dict) or set(entry) != {"value", "source"}:
            problems.append(f"each of {where} must be a table with value and source")
        else:
            problems += _value_problems(where, entry["value"], wanted)
    return problems


def _constant(entry: Mapping[str, object]) -> Constant:
    """Build a constant from a table that has no problems."""
    table = dict(entry)
    others = table.pop("alternatives", ())
    assert isinstance(others, list | tuple)
    alternatives = tuple(Alternative(float(o["value"]), str(o["source"])) for o in others)
    return Constant(**table, alternatives=alternatives)  # type: ignore[arg-type]  # checked above


def arch_from(name: str, title: str, constants: Mapping[str, Constant]) -> Arch:
    """Return the device of constants by the names of its file; no required one is missing."""
    words = {kind: kind.name.lower() for kind in RegionKind}
    present = {kind: w for kind, w in words.items() if f"{w}_capacity" in constants}
    return Arch(
        name=name,
        title=title,
        pcus=constants["pcus"],
        pmus=constants["pmus"],
        pmu_bytes=constants["pmu_bytes"],
        peak_flops=constants["peak_flops"],
        compute_efficiency=constants["compute_efficiency"],
        launch=constants["launch"],
        fill=constants["fill"],
        regions={kind: constants[f"{word}_capacity"] for kind, word in present.items()},
        tiers={
            kind: Tier(constants.get(f"{word}_bandwidth"), constants.get(f"{word}_efficiency"))
            for kind, word in present.items()
        },
        stream_bandwidth=constants.get("stream_bandwidth"),
        tiles=constants.get("tiles"),
        fused_streams=constants.get("fused_streams"),
        stage_pmus=constants.get("stage_pmus"),
        link_latency=constants.get("link_latency"),
        link_bandwidth=constants.get("link_bandwidth"),
    )
