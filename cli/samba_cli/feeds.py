"""Inputs of a run from words: files, random numbers, ones."""

from __future__ import annotations

import os
import re
import zlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import pef
from pef import dtypes
from pef.foreign import reading, why
from pef.states import is_training, states_of
from pef.wording import listed

from .shell import Wrong, echo, one_each

Array = npt.NDArray[Any]

SEED = 0
_EVERY = "*"
_NAMES_SHOWN = 5
_MADE = ("random", "ones")
_SIZES = re.compile(r"\d{1,9}(x\d{1,9})*", re.ASCII)


@dataclass(frozen=True, slots=True)
class Need:
    """A tensor that the chosen sections read and do not compute themselves.

    `maker` is the type of the sections of a training step that compute it, if some do.
    """

    name: str
    symbol: pef.Symbol
    maker: str = ""


def needs(program: pef.Program, calls: Iterable[int]) -> list[Need]:
    """Return what has to be given to run `calls`, inputs of the model first.

    What has content in the file, what lives in memory from run to run, what the host makes and what
    may be absent need not be given.
    """
    ports = {port.symbol: port.name for graph in program.graphs for port in graph.inputs}
    states = states_of(program)
    computed = set(states.all)
    in_order = list(calls)
    chosen = [program.schedule[call] for call in in_order]
    computed.update(
        index for row in program.host_kernels if row.section in chosen for index in row.outputs
    )
    read: dict[int, int] = {}  # by symbols the calls that read them first
    for call, number in zip(in_order, chosen, strict=True):
        section = program.sections[number]
        for index in section.inputs:
            if index not in computed:
                for part in states.packs.get(index, (index,)):
                    read.setdefault(part, call)
        computed.update(section.outputs)
        computed.update(
            flat for flat, members in states.packs.items() if not computed.isdisjoint(members)
        )
    symbols, makers = program.symbols, _makers(program, read) if is_training(program) else {}
    ordered = [*(index for index in ports if index in read), *(i for i in read if i not in ports)]
    return [
        Need(ports.get(index, symbols[index].name), symbols[index], makers.get(index, ""))
        for index in ordered
        if symbols[index].data is None and not dtypes.is_optional(symbols[index].type)
    ]


def _makers(program: pef.Program, read: Mapping[int, int]) -> dict[int, str]:
    """Return the type of the sections that compute each symbol, masks that the host makes too.

    Of several it is the last before the call that `read` has for the symbol: GRADNORM clips what
    BCKWD gives, and reads it.
    """
    packs = states_of(program).packs
    found: dict[int, str] = {}
    for call, number in enumerate(program.schedule):
        section = program.sections[number]
        for index in section.outputs:
            parts = (part for part in (index, *packs.get(index, ())) if call < read.get(part, -1))
            found.update(dict.fromkeys(parts, section.type.name))
    for row in program.host_kernels:
        found.update(dict.fromkeys(row.outputs, program.sections[row.section].type.name))
    return found


def feeds(
    needed: Sequence[Need], program: pef.Program, given: Iterable[str], file: str | None
) -> dict[str, object]:
    """Return the inputs by name.

    `given` holds words like `x=@x.npy`, `x=random`, `*=ones`, `file` is an `.npz` with arrays by
    name. What a word says wins over the file. The items of a sequence `s` are given one by one,
    as `s.0`, `s.1` and so on. Raises `Wrong` that lists what is missing and how to give it, and
    for maps, which no file holds.
    """
    _refuse_maps(needed)
    words = one_each("--input", (_split(word, program) for word in given))
    every = words.pop(_EVERY, None)
    others = (Need(symbol.name, symbol) for symbol in program.symbols)
    by_name = {need.name: need for need in (*others, *_ports(program), *needed)}
    values: dict[str, object] = {}
    if file:
        with open_archive(file, f"give it as --input NAME=@{file}, or make an .npz") as stored:
            values |= {name: _typed(x, by_name.get(name)) for name, x in stored.items()}
    for name, source in words.items():
        values[name] = _value(name, source, by_name.get(name))
    if every is not None:
        for need in needed:
            if values.keys().isdisjoint((need.name, need.symbol.name)):
                values[need.name] = _value(need.name, every, need)
    _gather_sequences(values, by_name.values())
    missing = [n for n in needed if values.keys().isdisjoint((n.name, n.symbol.name))]
    if missing and not _misspelt(values, by_name.keys() | _tensors(program)):
        raise Wrong(_missing(missing, everything=not values))
    return values


def _refuse_maps(needs: Iterable[Need]) -> None:
    maps = [need for need in needs if "map(" in need.symbol.type]
    if maps:
        inputs = "\n".join(f"Input '{need.name}' is a {need.symbol.type}." for need in maps)
        raise Wrong(
            f"{inputs}\nNo array file can hold a map; run the program from Python, where "
            "sambarun.load(...).run takes it as a dict."
        )


def _gather_sequences(values: dict[str, object], needs: Iterable[Need]) -> None:
    """Make a list of what is given as `name.0`, `name.1` and so on for a sequence `name`."""
    for need in needs:
        if need.name in values or not _is_sequence(need):
            continue
        items: list[object] = []
        while (key := f"{need.name}.{len(items)}") in values:
            items.append(values.pop(key))
        if items:
            values[need.name] = items


def _is_sequence(need: Need) -> bool:
    kind, inside = dtypes.container(need.symbol.type)
    return "seq" in (kind, dtypes.container(inside)[0] if kind == "optional" else "")


def _key(need: Need) -> str:
    """Return the name under which a file is given for `need`: of a sequence, its first item's."""
    return f"{need.name}.0" if _is_sequence(need) else need.name


def files_read(words: Iterable[str]) -> list[str]:
    """Return the files that words like `x=@x.npy` name."""
    return [file for _, at, file in (word.partition("=@") for word in words) if at]


def load_array(path: str) -> Array:
    """Return the array in an `.npy` file; never runs code that a file may hold."""
    loaded = _load(path)
    if not isinstance(loaded, np.ndarray):
        raise Wrong(f"{path} holds several arrays (.npz); one (.npy) was expected.")
    return loaded


def _ports(program: pef.Program) -> Iterator[Need]:
    for port in program.graphs[0].inputs:
        yield Need(port.name, program.symbols[port.symbol])


def _tensors(program: pef.Program) -> set[str]:
    """Return the names of all that can be given in place of what sections compute."""
    outputs = {port.name for graph in program.graphs for port in graph.outputs}
    return outputs.union(symbol.name for symbol in program.symbols)


def _misspelt(values: Iterable[str], known: Collection[str]) -> bool:
    """Tell whether a name is unknown: the runtime then says so, with the name that was meant."""
    return any(name not in known for name in values)


def _split(word: str, program: pef.Program) -> tuple[str, str]:
    """Return the name and the source in `name=source`; names may contain `=` themselves."""
    for port in program.graphs[0].inputs:
        if word.startswith(f"{port.name}="):
            return port.name, word[len(port.name) + 1 :]
    name, equals, source = word.partition("=")
    if not equals or not name:
        raise Wrong(f"--input {word}: expected NAME=@FILE.npy, NAME=random or NAME=ones.")
    return name, source


def _value(name: str, source: str, need: Need | None) -> object:
    if source.startswith("@") and source != "@":
        return _typed(load_array(source[1:]), need)
    how, colon, sizes = source.partition(":")
    if how not in _MADE or (colon and not _SIZES.fullmatch(sizes)):
        raise Wrong(
            f"--input {name}={source}: expected {name}=@FILE.npy, {name}=random or {name}=ones, "
            f"with sizes as in {name}=random:8x3."
        )
    # The runtime says that it knows no such input, and which one was meant.
    return None if need is None else _made(need, how, sizes)


def _made(need: Need, how: str, sizes: str) -> Array:
    """Return an array that fits `need`, of ones or of numbers that are random but always the same.

    Floats are drawn from the normal distribution; all other types are 0 or 1, which suits masks,
    and as indices stays inside any table. `sizes` is its shape, or nothing; the runtime refuses one
    that the input does not have.
    """
    number, known = dtypes.parse(need.symbol.type), need.symbol.shape
    if number in (None, dtypes.STRING) or (known is None and not sizes):
        raise Wrong(
            f"--input {need.name}={how}: a {need.symbol.type} cannot be made up; "
            f"give a file, {_key(need)}=@FILE.npy."
        )
    if sizes:
        shape = tuple(map(int, sizes.split("x")))
    else:
        shape = tuple(size if isinstance(size, int) else 1 for size in known or ())
        if shape != known:
            _say_assumed(need)
    try:
        return _filled(need, how, shape, dtypes.numpy_dtype(number))
    except (MemoryError, ValueError) as error:
        raise Wrong(f"--input {need.name}={how}{':' * bool(sizes)}{sizes}: {error}.") from error


def _filled(need: Need, how: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    if how == "ones":
        return np.ones(shape, dtype)
    generator = np.random.default_rng((SEED, zlib.crc32(need.name.encode())))
    if "float" in dtype.name or dtype.kind == "c":
        return generator.standard_normal(shape, np.float32).astype(dtype)
    return generator.integers(0, 2, shape, np.int8).astype(dtype)


def _say_assumed(need: Need) -> None:
    from pef.text import plural

    sizes = [size for size in need.symbol.shape or () if not isinstance(size, int)]
    names = [size for size in dict.fromkeys(sizes) if size is not None]
    unknown = sizes.count(None)
    said = ", ".join([*names, *([plural(unknown, "unknown size")] if unknown else [])])
    verb = "is" if len(names) + unknown == 1 else "are"
    echo(f"Note: {need.name}: {said} {verb} taken as 1.", err=True)


def _typed(array: Array, need: Need | None) -> Array:
    """Return `array` with its type, which files lose where numpy does not know it (bfloat16)."""
    number = None if need is None else dtypes.parse(need.symbol.type)
    if array.dtype.kind != "V" or number is None:
        return array
    dtype = dtypes.numpy_dtype(number)
    return array.view(dtype) if array.dtype.itemsize == dtype.itemsize else array


class Archive(Mapping[str, Array]):
    """The arrays of an `.npz` file by name, each read when it is asked for.

    Raises `Wrong` for a member that is damaged or no array.
    """

    def __init__(self, path: str, loaded: np.lib.npyio.NpzFile) -> None:
        self._path = path
        self._loaded = loaded

    def __getitem__(self, name: str) -> Array:
        if name not in self._loaded.files:
            raise KeyError(name)
        with readable(f"{self._path}: {name}"):
            found: object = self._loaded[name]
        if not isinstance(found, np.ndarray):
            raise Wrong(f"{self._path}: {name} is no array; store arrays alone, with numpy.savez.")
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._loaded.files)

    def __len__(self) -> int:
        return len(self._loaded.files)


@contextmanager
def open_archive(path: str, cure: str) -> Iterator[Archive]:
    """Yield the arrays of the `.npz` file at `path`; `cure` says what to do about a single one."""
    _require_file(path)
    with ExitStack() as stack:
        with readable(path):
            # numpy would leave a file open that it has opened and cannot read.
            file = stack.enter_context(open(path, "rb"))
            loaded: Array | np.lib.npyio.NpzFile = np.load(file, allow_pickle=False)
        if isinstance(loaded, np.ndarray):
            raise Wrong(f"{path} holds one array (.npy); {cure}.")
        yield Archive(path, stack.enter_context(loaded))


def _require_file(path: str) -> None:
    """Raise `Wrong` for what cannot be read in any order, as archives are."""
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        raise Wrong(f"{path} is a device or pipe; store the arrays in a file and give that.")


def _load(path: str) -> Array | np.lib.npyio.NpzFile:
    _require_file(path)
    with readable(path), open(path, "rb") as file:
        loaded: Array | np.lib.npyio.NpzFile = np.load(file, allow_pickle=False)
        behind = isinstance(loaded, np.ndarray) and file.read(1)
    if behind:
        raise Wrong(f"{path} holds an array and more; store each array in a file of its own.")
    return loaded


@contextmanager
def readable(what: str) -> Iterator[None]:
    """Raise `Wrong` where numpy cannot read `what` in this block.

    numpy takes whatever it does not know for a pickle, so it is not asked what is wrong then.
    """

    def refuse(error: Exception) -> Wrong:
        reason = "" if "pickle" in str(error) else f" ({why(error)})"
        return Wrong(
            f"{what} is no array file, or damaged, or holds Python objects, which are never "
            f"loaded{reason}; store the array with numpy.save."
        )

    try:
        with reading(refuse):
            yield
    except FileNotFoundError:
        raise Wrong(f"{what} does not exist.") from None
    except OSError as error:
        if error.filename is not None:
            raise
        raise refuse(error) from error  # a place in the file where it has nothing


def _missing(missing: Sequence[Need], *, everything: bool) -> str:
    """Return what is missing and the cure, a line for each input."""
    made = [need for need in missing if need.maker]
    if made:
        return _not_made(made)
    lines = [f"Input {_described(need)} is missing." for need in missing]
    cure = "'*=random'" if everything or len(missing) > 1 else f"{missing[0].name}=random"
    numbers = all(dtypes.parse(need.symbol.type) not in (None, dtypes.STRING) for need in missing)
    made_up = f", or try --input {cure}" if numbers else ""
    lines.append(f"Give a file, --input {_key(missing[0])}=@FILE.npy{made_up}.")
    return "\n".join(lines)


def _not_made(missing: Sequence[Need]) -> str:
    """Return what other sections of a training step would have given, and how to get it."""
    makers = list(dict.fromkeys(need.maker for need in missing))
    names = listed([f"'{need.name}'" for need in missing], _NAMES_SHOWN, ", ")
    types = ",".join(makers)
    run = f"--sections {types}{' --train' if makers == ['FWD'] else ''}"
    return (
        f"What {' and '.join(makers)} sections give is missing: {names}.\n"
        f"Run them in the same command (--sections {types},...), or store it with\n"
        f"{run} --output FILE.npz, and give it with --inputs FILE.npz."
    )


def _described(need: Need) -> str:
    from pef.text import shape_text

    number = dtypes.parse(need.symbol.type)
    dtype = need.symbol.type if number is None else dtypes.BY_NUMBER[number].name
    return f"'{need.name}' ({dtype} {shape_text(need.symbol.shape)})"
