"""Checks of values, which end in an error or let a module go on: recorded as if they passed.

    assert (t[1:] > t[:-1]).all()
    if x.min() < 0:
        raise ValueError("...")
    if index.max().item() >= self.count:
        raise IndexError("...")

Control flow that depends on values cannot be recorded. Here it only guards, so that what comes
after it is the same for all inputs that are meant.
"""

from __future__ import annotations

import ast
import dis
import linecache
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, TypeAlias, TypeGuard

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode
from torch.overrides import TorchFunctionMode

from sambac.errors import CompileError
from sambac.frontend.torch.errors import OWN, place_outside
from sambac.frontend.torch.modules.inputs import Example
from sambac.frontend.torch.modules.memory import Before
from sambac.frontend.torch.modules.tape import caller_of
from sambac.frontend.torch.modules.when_exported import call_copy
from sambac.frontend.torch.patching import replaced

Span: TypeAlias = tuple[int, int, int, int]
"""The first and the last line of an expression, and the columns where it begins and ends."""


_RECORDER = f"{__package__}.capture"
"""The module whose function records: what calls that is no part of what is recorded."""


@dataclass(frozen=True)
class _ValueCheck:
    """What a condition is to be to pass, and the lines that raise the error if it is not."""

    wanted: bool
    raising: range


@dataclass(frozen=True)
class _CheckedFile:
    """The conditions that check, and the lines whose errors are caught."""

    checks: Mapping[Span, _ValueCheck]
    caught: Sequence[range]


class PassedChecks(TorchFunctionMode):
    """Answers each check of values, of the module called `name`, so that it passes.

    `told` gets a sentence of each place, and `raising` the lines in files where errors are raised.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.told: dict[str, None] = {}
        self.raising: set[tuple[str, range]] = set()
        self._refused: Exception | None = None
        self._files: dict[str, _CheckedFile] = {}

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Sequence[type],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        """Call an operator, or answer."""
        if is_dynamo_compiling() or func not in (Tensor.__bool__, torch._assert):
            return func(*args, **(kwargs or {}))
        frame = caller_of(sys._getframe(1))
        if func is torch._assert:
            if not isinstance(args[0], Tensor) or self._is_caught(frame):
                return func(*args, **(kwargs or {}))
            return self._tell(frame, range(frame.f_lineno, frame.f_lineno + 1))
        check = self._passing(frame)
        if check is None:
            with self._noting():
                return func(*args, **(kwargs or {}))
        self._tell(frame, check.raising)
        return check.wanted

    @contextmanager
    def of_numbers(self) -> Iterator[None]:
        """Answer checks of numbers of Python, too, that `item()` makes of values."""
        ask: Callable[[torch.SymBool], bool] = torch.SymBool.__bool__

        def asked(number: torch.SymBool) -> bool:
            frame = sys._getframe(1)
            known = is_dynamo_compiling() or number.node.has_hint()
            within = frame.f_code.co_filename.startswith(OWN)
            check = None if known or within else self._passing(frame)
            if check is None:
                with nullcontext() if within else self._noting():
                    return ask(number)
            self._tell(frame, check.raising)
            return check.wanted

        with replaced(torch.SymBool, "__bool__", asked):
            yield

    def require_told(self) -> None:
        """Raise the error of a condition that the module's own code caught, if there is one.

        It would do something else in a run.
        """
        if self._refused is not None:
            raise self._refused

    @contextmanager
    def _noting(self) -> Iterator[None]:
        """Note what PyTorch says of a value that is not known."""
        try:
            yield
        except GuardOnDataDependentSymNode as error:
            self._refused = error
            raise

    def _passing(self, frame: FrameType) -> _ValueCheck | None:
        """Return the check that asks for a tensor, by which the code of `frame` decides, if any."""
        span = _span(frame.f_code, frame.f_lasti)
        check = None if span is None else self._file(frame).checks.get(span)
        return None if check is None or self._is_caught(frame.f_back) else check

    def _is_caught(self, frame: FrameType | None) -> bool:
        """Tell whether a caller of the module's own, `frame` or behind it, catches errors."""
        while frame is not None and frame.f_globals.get("__name__") != _RECORDER:
            if not frame.f_code.co_filename.startswith(OWN):
                line = frame.f_lineno
                if any(line in lines for lines in self._file(frame).caught):
                    return True
            frame = frame.f_back
        return False

    def _file(self, frame: FrameType) -> _CheckedFile:
        path = frame.f_code.co_filename
        if path not in self._files:
            self._files[path] = _read("".join(linecache.getlines(path)))
        return self._files[path]

    def _tell(self, frame: FrameType, raising: range) -> None:
        self.raising.add((frame.f_code.co_filename, raising))
        self.told[
            f"{self.name} checks values at {place_outside(frame)}; a program does not, and "
            "computes as if the check passed"
        ] = None


def require_passed(
    module: torch.nn.Module, example: Example, before: Before, checks: PassedChecks
) -> None:
    """Raise `CompileError` if `module` raises an error for the example inputs, which it checks.

    Even one that something else catches, which would then compute something else.
    """
    call = _NotedCall(checks.raising)
    with suppress(Exception):  # of the module's own code, and of how it is copied
        call_copy(module, example, before, call)
    if call.error is not None:
        raise CompileError(
            f"{next(iter(checks.told)).partition(';')[0]}, and raises {type(call.error).__name__} "
            f"for the example inputs ({call.error}); give inputs that pass"
        ) from call.error


class _NotedCall:
    """A context that notes which error ends it, or is raised in one of the lines `raising`."""

    def __init__(self, raising: Collection[tuple[str, range]]) -> None:
        self.error: Exception | None = None
        self._raising = raising
        self._files = {path for path, _ in raising}
        self._tracer: Any = None

    def __enter__(self) -> None:
        self._tracer = sys.gettrace()
        sys.settrace(self._called)

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        sys.settrace(self._tracer)
        self._note(error)

    def _called(self, frame: FrameType, _event: str, _about: object) -> Any:
        frame.f_trace_lines = False
        return self._happened if frame.f_code.co_filename in self._files else None

    def _happened(self, frame: FrameType, event: str, about: Any) -> Any:
        if event == "exception":
            path, line = frame.f_code.co_filename, frame.f_lineno
            if any(path == file and line in lines for file, lines in self._raising):
                self._note(about[1])
        return self._happened

    def _note(self, error: object) -> None:
        if self.error is None and isinstance(error, Exception):
            self.error = error


def _span(code: CodeType, last: int) -> Span | None:
    """Return where the expression is that is asked for its truth at the instruction at `last`."""
    found: dis.Instruction | None = None
    for instruction in dis.get_instructions(code):
        jumps = "JUMP" in instruction.opname or instruction.opname in ("UNARY_NOT", "TO_BOOL")
        if instruction.offset == last:  # one that jumps has often the place of the statement
            found = found if jumps else instruction
            break
        found = instruction
    places = found.positions if found is not None else None
    if places is None:
        return None
    first, end, start, stop = places
    if first is None or end is None or start is None or stop is None:
        return None
    return first, end, start, stop


def _read(source: str) -> _CheckedFile:
    """Return what is known of the code in a file."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return _CheckedFile({}, ())
    bodies = [node.body for node in ast.walk(tree) if _catches(node)]
    caught = [range(body[0].lineno, (body[-1].end_lineno or 0) + 1) for body in bodies]
    tried = {inner for body in bodies for statement in body for inner in ast.walk(statement)}
    return _CheckedFile(dict(_checked(tree, tried)), caught)


def _catches(node: ast.AST) -> TypeGuard[ast.Try | ast.TryStar | ast.With | ast.FunctionDef]:
    """Tell whether something else may be computed after an error in the body of `node`."""
    if isinstance(node, ast.FunctionDef):
        return node.name in _ASKED
    if isinstance(node, ast.With):
        called = [i.context_expr.func for i in node.items if isinstance(i.context_expr, ast.Call)]
        return any("suppress" in ast.unparse(each) for each in called)
    if not isinstance(node, (ast.Try, ast.TryStar)):
        return False
    left = any(isinstance(one, _LEAVING) for last in node.finalbody for one in ast.walk(last))
    return left or not all(_raises(handler.body) for handler in node.handlers)


_ASKED = ("__getattr__", "__getattribute__", "__getitem__", "__missing__", "__next__")
"""Functions whose errors answer Python: that there is no such thing, or nothing more."""


def _checked(tree: ast.Module, tried: Collection[ast.AST]) -> Iterator[tuple[Span, _ValueCheck]]:
    """Yield the parts of each condition that checks, and how they are to pass."""
    for node in ast.walk(tree):
        if node in tried:  # an error may be caught there, and something else computed
            continue
        if isinstance(node, ast.Assert):
            yield from _parts(node.test, True, _lines([node]))
        elif isinstance(node, ast.If) and _raises(node.body) != _raises(node.orelse):
            passes = _raises(node.orelse)
            yield from _parts(node.test, passes, _lines(node.orelse if passes else node.body))


def _lines(statements: Sequence[ast.stmt]) -> range:
    return range(statements[0].lineno, (statements[-1].end_lineno or 0) + 1)


def _raises(body: Sequence[ast.stmt]) -> bool:
    """Tell whether `body` ends in an error, whatever happens in it."""
    last = body[-1] if body else None
    if any(isinstance(node, _LEAVING) for statement in body for node in ast.walk(statement)):
        return False
    if isinstance(last, ast.If):
        return _raises(last.body) and _raises(last.orelse)
    return isinstance(last, ast.Raise) and not _answers(last)


def _answers(error: ast.Raise) -> bool:
    """Tell whether an error answers Python, which goes on then."""
    kind = error.exc.func if isinstance(error.exc, ast.Call) else error.exc
    return isinstance(kind, ast.Name) and kind.id in ("AttributeError", "StopIteration")


_LEAVING = (ast.Return, ast.Break, ast.Continue, ast.Yield, ast.YieldFrom)


def _parts(test: ast.expr, wanted: bool, raising: range) -> Iterator[tuple[Span, _ValueCheck]]:
    """Yield what a condition is made of by `and`, `or` and `not`, with what makes it `wanted`."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _parts(test.operand, not wanted, raising)
    elif isinstance(test, ast.BoolOp):
        for part in test.values:
            yield from _parts(part, wanted, raising)
    elif test.end_lineno is not None and test.end_col_offset is not None:
        span = (test.lineno, test.end_lineno, test.col_offset, test.end_col_offset)
        yield span, _ValueCheck(wanted, raising)
