"""A run of `sambarun`: load, feed, run, and say what came out."""

from __future__ import annotations

import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

import pef
import sambarun
from pef.states import has_states, is_training
from pef.text import plural
from pef.wording import listed
from sambarun import Executable, Provider, RunError, Selection
from sambarun.device.hyperparams import matching
from sambarun.linking.schedule import Chosen, resolve, select

from .feeds import feeds, files_read, load_array, needs
from .shell import DIFFERS, DONE, Wrong, echo
from .state_words import begin, hyperparams
from .train_options import TrainWords

if TYPE_CHECKING:
    from .parts import Beside

_WARM_UP = 3
_NAMES_SHOWN = 10
_IDS = re.compile(r"\s*([0-9]{1,18})(?:\.\.([0-9]{1,18}))?\s*")
_Result = TypeVar("_Result")
Outputs = Mapping[str, object]


class Words(TrainWords):
    """What the command line says, as click hands it over."""

    file: str
    list_only: bool
    graph: str | None
    sections: str | None
    train: bool
    section_ids: str | None
    inputs: tuple[str, ...]
    inputs_file: str | None
    output: str | None
    expect: tuple[str, ...]
    rtol: float
    atol: float
    iterations: int | None
    threads: int | None
    provider: str | None
    profile: str | None


def run_program(words: Words) -> int:
    """Do what the command line says and return the exit code."""
    _check_targets(words)
    if words["save"] is not None and (words["iterations"] is not None or words["profile"]):
        raise Wrong(
            "--save: keeps the state after one run, and --iterations and --profile make several; "
            "leave out one or the other."
        )
    given = hyperparams(words["hyperparams"])
    types = _types(words["sections"])
    once = words["iterations"] is None and words["profile"] is None
    # The process ends after this run, so the executable is never closed.
    executable = sambarun.load(
        words["file"],
        threads=words["threads"],
        own_process=True,
        one_shot=once,
        provider=provider_of(words["provider"]),
    )
    if words["save"] is not None and not has_states(executable.program):
        raise Wrong(f"--save: {words['file']} has no state; it was compiled for inference.")
    ids = section_ids(words["section_ids"], len(executable.program.sections))
    asked = Selection(types, ids, train=words["train"], graph=words["graph"])
    chosen = resolve(executable.program, asked)
    calls = select(executable.program, chosen)
    _require_use(executable.program, chosen, calls, words, given)
    seen = replace(executable.program, graphs=executable.program.graphs[chosen.graph :][:1])
    values = feeds(needs(seen, calls), seen, words["inputs"], words["inputs_file"])
    more = _beside(executable.program, chosen)
    cursor = begin(executable, words)
    if not _write_gradients(executable, values) and words["load"] is None:
        _tell_of_zeros(executable.program, calls)

    def run() -> Outputs:
        return executable.run(values, asked, hyperparams=given)

    outputs = {**interruptible(run)}
    outputs |= executable.read(*(name for name in more.gradients if name not in outputs))
    _show(outputs, _crossing(executable, more, values) if words["output"] else {}, words)
    if words["iterations"] is not None:
        echo("\n".join(_timing(run, words["iterations"])))
    if words["profile"] is not None:
        profile = interruptible(lambda: executable.profile(values, asked, operators=True))
        profile.save(words["profile"])
        echo("\n".join(_profiled(words, executable, profile)))
    if words["save"] is not None:
        executable.save(words["save"], cursor)
        echo(f"{words['save']}: the state after this run")
    return _check(outputs, words)


def _types(text: str | None) -> list[str] | None:
    """Return the types that --sections names. Raises `Wrong` for numbers, which are none."""
    types = text.split(",") if text is not None else None
    if not all(word.strip() for word in types or ()):
        raise Wrong(f"--sections {text}: expected types, such as FWD or FWD,BCKWD.")
    if any(word.strip().isdecimal() for word in types or ()):
        raise Wrong(f"--sections {text}: give types, such as FWD; numbers are for --section-ids.")
    return types


def _require_use(
    program: pef.Program,
    chosen: Chosen,
    calls: Sequence[int],
    words: Words,
    given: Mapping[str, float],
) -> None:
    """Raise `Wrong` for words that do nothing to the `calls` of a run, though to others they do."""
    graph = program.graphs[chosen.graph]
    if words["train"] and graph.role is not pef.GraphRole.TRAIN:
        raise Wrong(
            f"--train: what was selected belongs to the graph '{graph.name}'; leave out one."
        )
    if not given or words["save"] is not None:
        return
    sections = {program.schedule[call] for call in calls}
    read = {symbol for number in sections for symbol in program.sections[number].inputs}
    read.update(s for row in program.host_kernels if row.section in sections for s in row.inputs)
    set_by = matching(given, [argin.name for argin in program.argins])
    used = {set_by.get(argin.name) for argin in program.argins if argin.symbol in read}
    if idle := [name for name in given if name not in used]:
        raise Wrong(
            f"--hyperparam {', '.join(idle)}: nothing that runs reads it; leave it out, or keep it "
            f"with --save."
        )


def provider_of(text: str | None) -> Provider:
    """Return the execution provider that --provider means; the processor without it."""
    if text is None:
        return Provider()
    try:
        return Provider.spelled(text)
    except RunError as error:
        raise Wrong(f"--provider: {error}") from error


def _profiled(words: Words, executable: Executable, profile: sambarun.Profile) -> Iterator[str]:
    """Yield what is said of a profile that has been written."""
    from .state_words import memory_lines

    spans = plural(len(profile.spans), "span")
    inner = plural(len(profile.operators), "operator")
    yield f"{words['profile']}: {spans}, {inner} in them; sections ran unlinked, one by one."
    if words["provider"] is not None:
        yield _run_by(profile)
    yield from memory_lines(executable)


def _run_by(profile: sambarun.Profile) -> str:
    """Return how many calls of sections each provider has run, most first."""
    counts = Counter(span.provider for span in profile.spans if span.provider)
    shares = (f"{plural(count, 'call')} by {name}" for name, count in counts.most_common())
    return f"run by: {', '.join(shares)}"


def _check_targets(words: Words) -> None:
    """Refuse at once what could not be written in the end; many runs write nothing."""
    targets = (words["output"], words["profile"], words["save"])
    if targets != (None, None, None):
        from .targets import check_kind, check_targets

        check_kind(words["profile"], ".json")
        sources = (words["file"], words["inputs_file"], *files_read(words["inputs"]))
        check_targets(targets, (*sources, *files_read(words["expect"])))
        # A checkpoint may take the place of the one that the run began with.
        check_targets((words["output"], words["profile"]), (words["load"],))
    if words["output"] is not None:
        from .results import check_ending

        check_ending(words["output"])
    if words["save"] is not None:
        from .results import check_checkpoint

        check_checkpoint(words["save"])


def _write_gradients(executable: Executable, values: dict[str, object]) -> bool:
    """Move gradients that the program keeps from `values`, inputs of a run, to its memory.

    Tell whether there were some.
    """
    if not is_training(executable.program):
        return False
    from .parts import gradients_kept

    names = gradients_kept(executable.program).intersection(values)
    executable.write({name: values.pop(name) for name in sorted(names)})
    return bool(names)


def _tell_of_zeros(program: pef.Program, calls: Sequence[int]) -> None:
    """Say so where optimizers run on gradients that add up over runs, of which none has been."""
    kept = any(section.type is pef.SectionType.ZEROGRAD for section in program.sections)
    types = {program.sections[program.schedule[call]].type for call in calls}
    if kept and pef.SectionType.OPT in types and pef.SectionType.BCKWD not in types:
        echo(
            "Note: OPT runs on gradients of zero, as no BCKWD has run: give some with --inputs, or "
            "a checkpoint that has some with --load.",
            err=True,
        )


def _beside(program: pef.Program, chosen: Chosen) -> Beside:
    """Return what there is beside results; few runs are of training programs."""
    from .parts import Beside, beside

    return beside(program, chosen) if is_training(program) else Beside()


def _crossing(executable: Executable, more: Beside, values: Outputs) -> Outputs:
    """Return what other sections of a step read: it was computed here, or given among `values`."""
    given = {name: values[name] for name in more.inputs if name in values}
    return {**executable.read(*more.crossing), **given}


class StopRequest:
    """Where a run that was interrupted sees that it should end; `cause` is the interrupt."""

    def __init__(self) -> None:
        self.cause: KeyboardInterrupt | None = None

    def is_set(self) -> bool:
        """Tell whether an interrupt has come."""
        return self.cause is not None


def interruptible(work: Callable[[], _Result], stop: StopRequest | None = None) -> _Result:
    """Do `work` on a thread of its own and return or raise what it does.

    Python handles an interrupt only between its own steps, and one step may be a long computation
    of onnxruntime. The main thread, which waits here, has none. With `stop`, which `work` looks at,
    the first interrupt sets that, and `work` may end as it likes; the second one is raised.
    """
    results: list[_Result] = []
    failures: list[BaseException] = []
    ended = threading.Event()  # an interrupted Thread.join takes the thread for ended

    def target() -> None:
        try:
            results.append(work())
        except BaseException as error:
            failures.append(error)
        ended.set()

    threading.Thread(target=target, daemon=True).start()
    try:
        ended.wait()
    except KeyboardInterrupt as interrupt:
        if stop is None:
            raise
        stop.cause = interrupt
        ended.wait()
    if failures:
        raise failures[0]
    return results[0]


def section_ids(text: str | None, count: int) -> list[int] | None:
    """Return the numbers in `0,2,5..9`, or None for None.

    Of a range that leads beyond `count` sections no more is returned than shows that it does.
    """
    if text is None:
        return None
    found: list[int] = []
    for part in text.split(","):
        match = _IDS.fullmatch(part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last:
            raise Wrong(f"--section-ids {text}: expected ids like 0,2 or 5..9.")
        found += range(first, max(first, min(last, count)) + 1)
    return found


def _show(outputs: Outputs, crossing: Outputs, words: Words) -> None:
    """Store the results and what is `crossing`, or summarise results if nothing else is asked."""
    if words["output"] is not None:
        from pef.text import name_text

        from .results import save

        names = save({**outputs, **crossing}, words["output"])
        shown = [name_text(name) for name in names if name not in crossing]
        more = f", and {plural(len(crossing), 'tensor')} for other sections" if crossing else ""
        stored = listed(shown, _NAMES_SHOWN, ", ") or "no results"
        echo(f"{words['output']}: {stored}{more}")
    elif not outputs:
        cure = "" if words["save"] else "; --save FILE.safetensors keeps the new state"
        echo(f"no results{cure if words['sections'] else ''}")
    elif not words["expect"]:
        from .results import summary

        echo("\n".join(summary(outputs)))


def _timing(run: Callable[[], Outputs], count: int) -> list[str]:
    """Run `count` times after a warm-up and return latency and throughput."""
    times = interruptible(lambda: [_seconds(run) for _ in range(_WARM_UP + count)])[_WARM_UP:]
    median, high = quantile(times, 0.5), quantile(times, 0.9)
    runs = f"{count:,} runs after {_WARM_UP + 1} to warm up"
    return [
        f"latency     median {_ms(median)}, p90 {_ms(high)}, min {_ms(min(times))} ({runs})",
        f"throughput  {count / sum(times):,.4g} runs/s",
    ]


def _seconds(run: Callable[[], Outputs]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` of the values do not exceed, interpolated."""
    ordered = sorted(values)
    position = share * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.4g} ms"


def _check(outputs: Outputs, words: Words) -> int:
    """Compare the results with what was expected; print a line for each."""
    if not words["expect"]:
        return DONE
    from .results import arrays, compare, expectation

    results = dict(outputs)
    for name, value in outputs.items():
        results.update(arrays(name, value))
    equal = True
    for name, file in map(expectation, words["expect"]):
        if name not in results:
            known = listed(list(results), _NAMES_SHOWN, ", ") or "nothing"
            raise Wrong(f"--expect {name}: there is no such result, only {known}.")
        found = compare(name, results[name], load_array(file), words["rtol"], words["atol"])
        echo(found.text)
        equal = equal and found.equal
    return DONE if equal else DIFFERS
