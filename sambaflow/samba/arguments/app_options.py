"""The options that every SambaFlow application has, as a table."""

from __future__ import annotations

from argparse import ArgumentTypeError
from collections.abc import Callable, Collection
from dataclasses import dataclass
from math import inf

COMMANDS = {
    "compile": "compile the model into a PEF",
    "run": "run a PEF, to train or to infer",
    "test": "compare what a PEF computes with what the host computes",
    "measure-performance": "measure throughput and latency of a PEF",
}
"""The commands in the order of the help, each with what it is for."""
HIDDEN_COMMANDS = {"measure-sections": "measure each section of a PEF by itself"}
"""Commands that only the experimental help shows."""

ARCHES = {"sn10": "sn10", "sn20": "sn10", "sn30": "sn30", "sn40": "sn40l", "sn40l": "sn40l"}
"""The chips that applications name, each with the description that the compiler has for it."""

_EVERY = frozenset((*COMMANDS, *HIDDEN_COMMANDS))
_COMPILE = frozenset({"compile"})
_MEASURE = frozenset({"measure-performance", "measure-sections"})
_DEVICE = _EVERY - _COMPILE

_Kind = Callable[[str], object]
"""Makes a value of the text of an option."""


@dataclass(frozen=True)
class AppOption:
    """One option: its spellings, what it is for, and the commands that take it.

    Its value stands in the namespace under `attribute`; `default` is it where the option is not
    given, and for the other commands. `kind` reads its text, `count` is how many values follow. If
    `constant` is set, the option takes no value and gives that. `expert` ones are not in the
    ordinary help.
    """

    spellings: tuple[str, ...]
    text: str
    commands: frozenset[str] = _EVERY
    default: object = None
    kind: _Kind = str
    count: int = 1
    constant: object = None
    choices: tuple[object, ...] | None = None
    named: str = ""
    expert: bool = False

    @property
    def attribute(self) -> str:
        """The name of the value in the namespace."""
        return self.named or self.spellings[-1].lstrip("-").replace("-", "_")


@dataclass(frozen=True)
class Switch(AppOption):
    """An option without a value: False, or True if it is given."""

    default: object = False
    constant: object = True


def _between(kind: type[int | float], least: float, most: float = inf) -> _Kind:
    """Return what reads a number from `least` to `most`."""

    def read(text: str) -> float:
        number = kind(text)
        if not least <= number <= most:
            rest = "or more" if most == inf else f"to {most}"
            raise ArgumentTypeError(f"{text} is out of range, expected {least} {rest}")
        return number

    read.__name__ = kind.__name__  # argparse says so of what is no number
    return read


_POSITIVE = _between(int, 1)

_COMMON = (
    AppOption(("-p", "--pef"), "the PEF; compile writes it there, every other command needs it"),
    AppOption(
        ("-b", "--batch-size"),
        "samples in a batch of one process; compiled in, so the same for every command",
        default=1,
        kind=_POSITIVE,
    ),
    AppOption(
        ("-mb", "--microbatch-size"),
        "samples that go through the model together; recorded, the compiler decides",
        kind=_POSITIVE,
    ),
    Switch(("--inference",), "forward only: no backward pass, no optimizer"),
    AppOption(
        ("--mapping",),
        "section: one section after the other; spatial: all of the model on the chip at once",
        default="section",
        choices=("section", "spatial"),
    ),
    AppOption(
        ("--num-spatial-batches",),
        "batches in flight, mapping spatial; recorded, the modelled device has one",
        default=1,
        kind=_POSITIVE,
    ),
    Switch(
        ("--data-parallel",),
        "several processes train one model, each on its own batches: for compile, and for run too",
    ),
    AppOption(
        ("--log-level",), "what is told, and worse", choices=("debug", "info", "warning", "error")
    ),
    Switch(("--debug",), "tell all there is; with --help, show experimental options too"),
)

_COMPILING = (
    AppOption(("--pef-name",), "name of the PEF, by default that of the model", _COMPILE),
    AppOption(("--output-folder",), "where the PEF's folder is made", _COMPILE, default="./out"),
    AppOption(
        ("--n-chips",),
        "chips to map to, 1 to 8; recorded, the modelled device is one",
        _COMPILE,
        default=1,
        kind=_between(int, 1, 8),
    ),
    AppOption(
        ("--num-tiles",),
        "tiles of a chip to map to; recorded, sections may have all of the chip",
        _COMPILE,
        default=4,
        kind=int,
        choices=(1, 2, 4),
    ),
    AppOption(
        ("-ws", "--world-size"),
        "least number of processes that will train; any number of them runs the PEF",
        _COMPILE,
        kind=_POSITIVE,
    ),
    *(
        AppOption(
            (f"-o{level}", f"--o{level}"),
            text,
            _COMPILE,
            "o3",
            constant=f"o{level}",
            named="optim_level",
        )
        for level, text in (
            (0, "one operator in a section"),
            (1, "operators fused by rules"),
            (3, "the whole graph is fused (default)"),
        )
    ),
    Switch(
        ("--gradient-accumulation",),
        "gradients add up over runs: a ZEROGRAD section clears them",
        _COMPILE,
    ),
    AppOption(
        ("--arch",),
        f"chip to compile for: {', '.join(ARCHES)}, or a file that describes one (default: sn40l)",
        _COMPILE,
    ),
    AppOption(
        ("--graphamp-preset",),
        "mixed precision: mp0 none, mp1 BF16 into matrix products, mp4 BF16 everywhere",
        _COMPILE,
        choices=("mp0", "mp1", "mp4"),
    ),
)

_RUNNING = (
    Switch(
        ("--reduce-on-rdu",),
        "with --data-parallel, reduce gradients on the device; the modelled one is on the host",
        _DEVICE,
    ),
    AppOption(
        ("--data-parallel-mode",),
        "how reductions overlap with the rest of a step",
        _DEVICE,
        default="normal",
        choices=("normal", "inorder", "optimal"),
    ),
    AppOption(
        ("-n", "--num-iterations"),
        "steps to run",
        _DEVICE - _MEASURE,
        default=100,
        kind=_between(int, 0),
    ),
    Switch(
        ("--samba_runtime_profile",),
        "profile the run, in applications that look at it and call start_runtime_profile",
        frozenset({"run"}),
    ),
    Switch(
        ("--visualize",),
        "write histograms of what differs: assert_close/*.txt",
        frozenset({"test"}),
    ),
)

_MEASURING = (
    Switch(("--run-graph-only",), "measure without moving inputs and outputs", _MEASURE),
    AppOption(
        ("-n", "--num-iterations"), "steps to measure", _MEASURE, default=100, kind=_POSITIVE
    ),
    AppOption(
        ("--min-duration",),
        "measure at least so many seconds",
        _MEASURE,
        default=0.0,
        kind=_between(float, 0),
    ),
    AppOption(
        ("--min-throughput",),
        "fail below so many samples/s",
        _MEASURE,
        default=0.0,
        kind=_between(float, 0),
    ),
    AppOption(
        ("--num-sections",),
        "measure only so many sections, from the first",
        _MEASURE,
        kind=_POSITIVE,
    ),
    AppOption(("--bench-report-json",), "file for the result", _MEASURE),
    AppOption(("--json",), "older name of --bench-report-json", _MEASURE),
    AppOption(("--compiled-stats-json",), "file for what the compiler estimated", _MEASURE),
    AppOption(("--acc-report-json",), "file for the accuracy, which the app writes", _DEVICE),
)

_EXPERT = (
    AppOption(("--mac-human-decision",), "", _COMPILE, expert=True),
    AppOption(("--compiler-configs-file",), "", _COMPILE, expert=True),
    Switch(("--mac-v1",), "", _COMPILE, expert=True),
    Switch(("--mac-v2",), "", _COMPILE, expert=True),
    Switch(("--enable-conv-tiling",), "", _COMPILE, expert=True),
    Switch(("--enable-stoc-rounding",), "", _COMPILE, expert=True),
    Switch(("--enable-stochastic-rounding",), "", _COMPILE, expert=True),
    AppOption(("--default-par-factors",), "", _COMPILE, expert=True),
    Switch(("--metapipe-disable",), "", _COMPILE, expert=True),
    Switch(("--plot",), "", _COMPILE, expert=True),
    Switch(("--gen-tensorboard",), "", _COMPILE, expert=True),
    AppOption(
        ("--stage-instrumentation",),
        "",
        _COMPILE,
        choices=("metapipe_stage_cycles", "metapipe_buf_cycles"),
        expert=True,
    ),
    Switch(("--include-read-stall-cycles",), "", _COMPILE, expert=True),
    AppOption(("--resources-scaling-factors",), "", _COMPILE, None, float, count=3, expert=True),
    Switch(("--disable-retry-lower-visible-resources",), "", _COMPILE, expert=True),
)
"""Options for how hardware is mapped to: accepted and recorded, without effect here."""

OPTIONS: tuple[AppOption, ...] = (*_COMMON, *_COMPILING, *_RUNNING, *_MEASURING, *_EXPERT)
"""Every predefined option."""

NOTES = {
    "compile": (
        "The PEF is <output-folder>/<pef-name>/<pef-name>.pef. Compile again when the model, the "
        "batch size or another shape changes."
    )
}
"""What the help of a command ends with."""

FURTHER_ATTRIBUTES: dict[str, object] = {
    "distlearn_config": None,
    "verbose_report": None,
    "resource_report_path": None,
    "tensormem": None,
}
"""Attributes that applications read and no option sets."""


def defaults() -> dict[str, object]:
    """Return every attribute that a namespace has, with its value where nothing is given."""
    return {option.attribute: option.default for option in OPTIONS} | FURTHER_ATTRIBUTES


def spelled_option(key: str) -> AppOption | None:
    """Return the predefined option that `key` spells, with or without dashes: `b`, `o0`, `--o0`."""
    word = key.lstrip("-").replace("_", "-")
    spellings = (f"-{word}", f"--{word}")
    return next((each for each in OPTIONS if {*spellings} & {*each.spellings}), None)


def as_given(option: AppOption) -> str:
    """Return how a dict of options has `option`: `'batch_size'`, `'optim_level': 'o1'`."""
    chosen = "" if option.constant in (None, True) else f": {option.constant!r}"
    return f"'{option.attribute}'{chosen}"


def read(attribute: str, value: object) -> object:
    """Return `value` as the predefined option of `attribute` has it, if there is one.

    Raises ValueError for what the option does not take.
    """
    options = [each for each in OPTIONS if each.attribute == attribute]
    if not options:
        return value
    option = options[0]
    if isinstance(option, Switch):
        if value is True or value is False:
            return value
        raise ValueError(f"{value!r} is neither true nor false")
    if option.constant is not None:
        return _one_of(value, [each.constant for each in options])
    if option.count == 1:
        return _read_one(option, value)
    if not isinstance(value, list) or len(value) != option.count:
        raise ValueError(f"{value!r} is no list of {option.count}")
    return [_read_one(option, each) for each in value]


_READABLE = (str, int, float)


def _read_one(option: AppOption, value: object) -> object:
    if type(value) not in _READABLE:
        raise ValueError(f"{value!r} is a {type(value).__name__}, expected one value")
    try:
        found = option.kind(str(value))
    except ArgumentTypeError as error:
        raise ValueError(str(error)) from error
    except ValueError as error:
        raise ValueError(f"{value!r} is no number that it takes") from error
    return found if option.choices is None else _one_of(found, option.choices)


def _one_of(value: object, choices: Collection[object]) -> object:
    if value not in choices:
        raise ValueError(f"{value!r} is none of {', '.join(map(str, choices))}")
    return value
