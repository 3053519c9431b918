"""The command line of an application: its commands, options, and files with options."""

from __future__ import annotations

import os
import sys
from argparse import (
    SUPPRESS,
    Action,
    ArgumentError,
    ArgumentParser,
    Namespace,
    _StoreAction,
    _StoreConstAction,
)
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

from pef.foreign import reading, why
from pef.text import number_of
from pef.warned import warn
from pef.wording import did_you_mean
from sambaflow.logging import samba_logger
from sambaflow.samba.arguments.app_options import (
    COMMANDS,
    HIDDEN_COMMANDS,
    NOTES,
    OPTIONS,
    AppOption,
    Switch,
    defaults,
    read,
    spelled_option,
)
from sambaflow.samba.arguments.checked import checked
from sambaflow.samba.arguments.declared import Declarations, declared
from sambaflow.samba.arguments.kinds import ArgumentKind
from sambaflow.samba.parallel.exits import join_launched
from sambaflow.samba.session import session

__all__ = ["AppParser", "SambaConfig", "parse_app_args", "parse_yaml_to_args"]

ParserFunction = Callable[[ArgumentParser], object]
"""Adds an application's own options to the parser it is called with."""

_NO_EFFECT = "accepted and recorded in the PEF, without effect here"
_CALLBACKS = {
    "common": {*COMMANDS, *HIDDEN_COMMANDS},
    "run": {"run", "measure-performance", "measure-sections"},
    "test": {"test"},
}
"""The commands that each function of an application adds options to, in the order of calls."""


class _Single(Action):
    """An action that refuses a second value of an attribute that differs from the first.

    argparse takes the last one. Only where there are no defaults, as in `_given`, can a value that
    was given be told from one that was not.
    """

    def __call__(
        self,
        parser: ArgumentParser,
        namespace: Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Set the attribute in `namespace`."""
        before = getattr(namespace, self.dest, None) if self.default is SUPPRESS else None
        super().__call__(parser, namespace, values, option_string)
        now = getattr(namespace, self.dest)
        if before is not None and before != now:
            raise ArgumentError(
                self, f"{self.dest} is given twice, as {before!r} and as {now!r}; give it once"
            )


class _StoreSingle(_Single, _StoreAction):
    """Keeps the value of an option."""


class _StoreSingleConst(_Single, _StoreConstAction):
    """Keeps what an option without a value stands for."""


class AppParser(ArgumentParser):
    """A parser in which a later declaration of an option wins, in whole or in part.

    An application that declares `--batch-size` anew, with another default, leaves `-b` as it was
    and changes the default of both. On the command line an option has one value.
    """

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.register("action", None, _StoreSingle)
        self.register("action", "store", _StoreSingle)
        self.register("action", "store_const", _StoreSingleConst)

    def add_argument(self, *spellings: str, **facts: object) -> Action:
        """Add an argument as `ArgumentParser` does; its default holds for all of its attribute."""
        action = super().add_argument(*spellings, **facts)  # type: ignore[arg-type]
        if SUPPRESS not in (action.dest, action.default):
            self.set_defaults(**{action.dest: action.default})
        return action


class AppArgs(Namespace):
    """The options of an application, as attributes.

    `given` are those that its command line has set, `declared` says what those of its command take.
    """

    __slots__ = ("declared", "given")

    def __init__(
        self, given: frozenset[str], declared: Declarations, values: Mapping[str, object]
    ) -> None:
        super().__init__(**values)
        self.given = given
        self.declared = declared


@checked()
def parse_app_args(
    argv: Sequence[str] | None = None,
    common_parser_fn: ParserFunction | None = None,
    run_parser_fn: ParserFunction | None = None,
    test_parser_fn: ParserFunction | None = None,
    dev_mode: bool = False,
) -> Namespace:
    """Return the options in `argv` (by default the process's own) as a namespace.

    The first word is the command: compile, run, test, measure-performance or measure-sections.
    `common_parser_fn` adds the application's options to every command, `run_parser_fn` those of run
    and of the measurements, `test_parser_fn` those of test; what they declare wins over what is
    predefined. The namespace has every predefined attribute, for each command. With `dev_mode`, or
    with --debug beside --help, the help shows experimental options. `--log-level` holds from now
    on, and the session takes the predefined options that were given for calls that do not say them,
    such as `session.compile` without `config_dict`. With --data-parallel the processes that were
    launched together meet here, so that `torch.distributed` knows ranks from now on. As argparse
    does, it exits with status 2 and a message where `argv` makes no sense.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    shown = dev_mode or "--debug" in words
    functions = {"common": common_parser_fn, "run": run_parser_fn, "test": test_parser_fn}
    parser = AppParser(description="A SambaFlow application.")
    subparsers = parser.add_subparsers(
        dest="command",
        required=True,
        metavar="{" + ",".join(COMMANDS | (HIDDEN_COMMANDS if shown else {})) + "}",
        help="different modes of operation",
    )
    parsers = {}
    for command, text in (COMMANDS | HIDDEN_COMMANDS).items():
        parsers[command] = subparsers.add_parser(
            command,
            description=f"{text[0].upper()}{text[1:]}.",
            conflict_handler="resolve",
            epilog=NOTES.get(command),
        )
        _add_options(parsers[command], command, shown)
        for function in (functions[key] for key in functions if command in _CALLBACKS[key]):
            if function is not None:
                function(parsers[command])
    values = vars(parser.parse_args(words))
    taken = declared(parsers[values["command"]]._actions)
    args = AppArgs(_given((parser, *parsers.values()), words), taken, values)
    _complete(args)
    if args.command != "compile" and not args.pef:
        parsers[args.command].error("--pef is missing: give the PEF that compile made")
    _obey(args)
    return args


def _given(parsers: Sequence[ArgumentParser], words: Sequence[str]) -> frozenset[str]:
    """Return the attributes that `words` set, parsing them again without any defaults.

    The first of `parsers` takes the words; all of them lose their defaults.
    """
    for parser in parsers:
        parser._defaults.clear()
        for action in parser._actions:
            action.default = SUPPRESS
    return frozenset(vars(parsers[0].parse_args(words)))


def _add_options(parser: ArgumentParser, command: str, shown: bool) -> None:
    for option in OPTIONS:
        if command in option.commands:
            parser.add_argument(
                *option.spellings,
                **_facts(option),  # type: ignore[arg-type]
                dest=option.attribute,
                default=option.default,
                help=SUPPRESS if option.expert and not shown else _help(option),
            )


def _help(option: AppOption) -> str:
    """Return what the option is for, with its default where that says something."""
    text = option.text or _NO_EFFECT
    silent = option.default in (None, False) or option.constant is not None
    return text if silent else f"{text} (default: {option.default})"


def _facts(option: AppOption) -> dict[str, object]:
    """Return what argparse has to know beyond the name, the default and the help."""
    if isinstance(option, Switch):
        return {"action": "store_true"}
    if option.constant is not None:
        return {"action": "store_const", "const": option.constant}
    facts: dict[str, object] = {"type": option.kind, "choices": option.choices}
    return facts | ({"nargs": option.count} if option.count > 1 else {})


def _complete(args: Namespace) -> None:
    """Give `args` the predefined attributes that its command has no options for."""
    for attribute, value in defaults().items():
        if not hasattr(args, attribute):
            setattr(args, attribute, value)


def _obey(args: Namespace) -> None:
    """Do what options ask for at once; the session gets those that are not as by default."""
    # Here, as the package of both imports this one.
    if args.log_level or args.debug:
        samba_logger.set_level(args.log_level or "debug")

    given = vars(args)
    session.options = {
        name: given[name] for name, usual in defaults().items() if given[name] != usual
    }
    if args.data_parallel and args.command != "compile":
        join_launched()


@checked()
def parse_yaml_to_args(yaml_path: str | os.PathLike[str], args: Namespace) -> Namespace:
    """Put the options of a YAML file into `args`, and return it.

    The file is one mapping; `batch-size`, `batch_size` and `b` mean the same, and `o0: true` what
    -o0 means. What was given on the command line wins, over the file and this over defaults; a
    predefined option that is null is not given. Where `args` are not of
    `parse_app_args`, given is what is not the predefined default, nor False or None. A number
    without a dot, such as 1e-4, is text for YAML; where the option has a number, it is one. What is
    no option becomes an attribute too; a warning tells of what is nearly one. What the application
    declares itself is read by the type and the choices that it declares. Options of the file then
    do what those of the command line do: the session takes them, processes meet.
    Raises ValueError if the file is no such mapping or says an option twice, or for values that
    options do not take, all at once; OSError if it cannot be read.
    """
    found = _in_file(yaml_path)
    known, problems = tuple(vars(args)), list[str]()
    spelled: dict[str, str] = {}
    for key, said in found.items():
        name, value = _meant(key, said, known)
        if value is None and name in defaults():
            continue
        if (other := spelled.setdefault(name, key)) != key:
            problems.append(f"{other} and {key} are one option")
        if name not in known and (meant := did_you_mean(name, known)):
            warn(f"{os.fspath(yaml_path)}: there is no option '{key}'{meant}")
        try:
            wanted = _read(args, name, value)
        except ValueError as error:
            problems.append(f"{key}: {error}")
            continue
        if not was_given(args, name):
            setattr(args, name, wanted)
    if problems:
        raise ValueError(f"{os.fspath(yaml_path)}: {'; '.join(problems)}")
    if isinstance(args, AppArgs):
        _obey(args)
    return args


def _in_file(path: str | os.PathLike[str]) -> dict[str, object]:
    """Return the mapping in a YAML file. Raises ValueError for what is none."""
    import yaml  # here, as few applications have such a file and all wait for imports

    from sambac.rule_files import UniqueKeys

    def refuse(error: Exception) -> ValueError:
        return ValueError(f"{os.fspath(path)} is no YAML: {why(error)}")

    with open(path, encoding="utf-8") as file, reading(refuse):
        found: object = yaml.load(file, Loader=UniqueKeys)
    if not isinstance(found, dict) or not all(isinstance(key, str) for key in found):
        raise ValueError(f"{os.fspath(path)} is no mapping of options to values")
    return found


def _meant(key: str, value: object, known: Collection[str]) -> tuple[str, object]:
    """Return the attribute that the `key` of a file means, and what it gives it.

    `known` are those of an application, which go before the spellings of predefined options.
    """
    name = key.replace("-", "_")
    option = None if name in known else spelled_option(key)
    if option is None or option.attribute not in known:
        return name, value
    if option.constant is None or isinstance(option, Switch) or not isinstance(value, bool):
        return option.attribute, value
    return option.attribute, option.constant if value else None


def _read(args: Namespace, name: str, value: object) -> object:
    """Return `value` as the attribute `name` of `args` has it. Raises ValueError as options do."""
    if name not in defaults() and isinstance(args, AppArgs) and name in args.declared:
        return args.declared[name].read(value)
    return _as_held(getattr(args, name, None), read(name, value))


def _as_held(held: object, value: object) -> object:
    """Return `value`, as a number if it is the text of one and stands for the number `held`."""
    if not isinstance(value, str) or isinstance(held, bool) or not isinstance(held, int | float):
        return value
    found = number_of(value)
    if found is None:
        return value
    return int(found) if isinstance(held, int) and found.is_integer() else found


def was_given(args: Namespace, name: str) -> bool:
    """Return whether the command line has set an attribute of `args`."""
    if isinstance(args, AppArgs):
        return name in args.given
    usual, value = defaults(), getattr(args, name, None)
    return not (value is None or value is False or (name in usual and value == usual[name]))


class SambaConfig:
    """The options of an application, checked against a schema such as `SNConfig`.

    `schema` is a dataclass whose fields are named like attributes of `args`. Raises ValueError that
    lists every value of `args` of a type that the schema's default is not of.
    """

    @checked(schema=ArgumentKind("a dataclass", lambda v: isinstance(v, type) and is_dataclass(v)))
    def __init__(self, args: Namespace, schema: type) -> None:
        self._params = dict(vars(args))
        known = {field.name: field.default for field in fields(schema)}
        problems = [
            f"{name} is {value!r}, expected {type(known[name]).__name__}"
            for name, value in self._params.items()
            if not _fits(value, known.get(name))
        ]
        if problems:
            raise ValueError("; ".join(problems))
        self._params = known | self._params

    def get_all_params(self) -> dict[str, object]:
        """Return every option by its attribute, those of the schema that were not given too."""
        return dict(self._params)


def _fits(value: object, default: object) -> bool:
    if value is None or default is None:
        return True
    kinds = (int, float) if isinstance(default, float) else type(default)
    return isinstance(value, kinds)
