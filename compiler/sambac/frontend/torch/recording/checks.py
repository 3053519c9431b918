"""Checks of values, which end in an error or let a module go on: recorded as if they passed.

    assert (t[1:] > t[:-1]).all()
    if x.min() < 0:
        raise ValueError("...")

Control flow that depends on values cannot be recorded. Here it only guards, so that what comes
after it is the same for all inputs that are meant.
"""

from __future__ import annotations

import ast
import dis
import linecache
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import CodeType, FrameType
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.compiler import is_dynamo_compiling
from torch.overrides import TorchFunctionMode

from sambac.errors import CompileError
from sambac.frontend.torch.errors import OWN
from sambac.frontend.torch.modules.inputs import Example
from sambac.frontend.torch.modules.memory import Before
from sambac.frontend.torch.modules.tape import caller_of
from sambac.frontend.torch.modules.when_exported import call_copy

Span: TypeAlias = tuple[int, int, int, int]
"""The first and the last line of an expression, and the columns where it begins and ends."""


class PassedChecks(TorchFunctionMode):
    """Answers each check of values, of the module called `name`, so that it passes.

    `told` gets a sentence of each place.
    """

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.told: dict[str, None] = {}
        self._files: dict[str, Mapping[Span, bool]] = {}

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
            if not isinstance(args[0], Tensor):
                return func(*args, **(kwargs or {}))
            return self._tell(frame)
        answer = self._passing(frame)
        if answer is None:
            return func(*args, **(kwargs or {}))
        self._tell(frame)
        return answer

    def _passing(self, frame: FrameType) -> bool | None:
        """Return what a tensor is to be, by which the code of `frame` decides, if that checks."""
        path = frame.f_code.co_filename
        if path not in self._files:
            self._files[path] = dict(_checked("".join(linecache.getlines(path))))
        span = _span(frame.f_code, frame.f_lasti)
        return None if span is None else self._files[path].get(span)

    def _tell(self, frame: FrameType) -> None:
        while frame.f_back is not None and frame.f_code.co_filename.startswith(OWN):
            frame = frame.f_back
        place = f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"
        self.told[
            f"{self.name} checks values at {place}; a program does not, and computes as if the "
            "check passed"
        ] = None


def require_passed(
    module: torch.nn.Module, example: Example, before: Before, checks: PassedChecks
) -> None:
    """Raise `CompileError` if `module` raises an error for the example inputs, which it checks."""
    call = _NotedCall()
    with suppress(Exception):  # of the module's own code, and of how it is copied
        call_copy(module, example, before, call)
    if call.error is not None:
        raise CompileError(
            f"{next(iter(checks.told)).partition(';')[0]}, and raises {type(call.error).__name__} "
            f"for the example inputs ({call.error}); give inputs that pass"
        ) from call.error


class _NotedCall:
    """A context that notes which error ends it."""

    error: Exception | None = None

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        self.error = error if isinstance(error, Exception) else None


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


def _checked(source: str) -> Iterator[tuple[Span, bool]]:
    """Yield the parts of each condition that checks, and what they are to be for it to pass."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError):
        return
    tried = {
        inner
        for node in ast.walk(tree)
        if isinstance(node, ast.Try) and node.handlers
        for statement in node.body
        for inner in ast.walk(statement)
    }
    for node in ast.walk(tree):
        if node in tried:  # an error may be caught there, and something else computed
            continue
        if isinstance(node, ast.Assert):
            yield from _parts(node.test, True)
        elif isinstance(node, ast.If) and _raises(node.body) != _raises(node.orelse):
            yield from _parts(node.test, _raises(node.orelse))


def _raises(body: Sequence[ast.stmt]) -> bool:
    last = body[-1] if body else None
    if isinstance(last, ast.If):
        return _raises(last.body) and _raises(last.orelse)
    return isinstance(last, ast.Raise)


def _parts(test: ast.expr, wanted: bool) -> Iterator[tuple[Span, bool]]:
    """Yield what a condition is made of by `and`, `or` and `not`, with what makes it `wanted`."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yield from _parts(test.operand, not wanted)
    elif isinstance(test, ast.BoolOp):
        for part in test.values:
            yield from _parts(part, wanted)
    elif test.end_lineno is not None and test.end_col_offset is not None:
        yield (test.lineno, test.end_lineno, test.col_offset, test.end_col_offset), wanted
