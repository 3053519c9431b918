"""What the configuration of a program means for one compilation."""

from __future__ import annotations

import re
from collections.abc import Container, Iterator
from dataclasses import replace

import torch

from sambac import CompileOptions, NumberRule
from sambahost.compiled_step import AnyPart
from sambahost.known_operators import names_in
from sambahost.onnx_part import OnnxPart
from sambahost.predicates import QueriedNode

from .config import Break, CompileSettings, compiler
from .formats import held_as
from .parameter import Parameter
from .recorded import AppliedOperator, RecordedModule, name_at, path_of
from .recording import snake

_INSIDE = r"(?:chain\.|loss\.)?(?:\d+\.)?"
"""What paths begin with in which modules of a program are compiled together."""


def options_for(part: AnyPart, settings: CompileSettings) -> CompileOptions:
    """Return the options to compile `part` with, whose names are known from now on."""
    compiler()._known.add(name_at(re.sub(f"^{_INSIDE}", "", path)) for path in names_in(part))
    compiler()._known.add(str(parameter.get_name()) for _, parameter in _parameters(part))
    rules = [inner for rule in settings.number_rules for inner in _rules_inside(rule, part)]
    return CompileOptions(
        number_rules=(*_held(part), *rules),
        section_breaks=tuple(filter(None, (_pattern(each, part) for each in settings.breaks))),
        chip_breaks=tuple(filter(None, (_pattern(each, part) for each in settings.chip_breaks))),
    )


def _rules_inside(rule: NumberRule, part: AnyPart) -> Iterator[NumberRule]:
    """Yield `rule` for names as they are in `part`, and for parameters that are called otherwise.

    Parameters of PyBuda modules have numbers there.
    """
    if not rule.name:
        yield rule
        return
    yield replace(rule, name=f"{_INSIDE}(?:{rule.name})")
    for path, parameter in _parameters(part):
        if re.fullmatch(rule.name, str(parameter.get_name())):
            yield replace(rule, name=re.escape(path))
    for node in _nodes(part):
        if path_of(node.name) != node.name and re.fullmatch(rule.name, node.name):
            yield replace(rule, name=_INSIDE + re.escape(path_of(node.name)))


def _held(part: AnyPart) -> Iterator[NumberRule]:
    """Yield what says in which formats parameters lie."""
    for path, parameter in _parameters(part):
        if (form := parameter.dev_data_format) is not None:
            yield NumberRule(name=re.escape(path), output=held_as(form, "dev_data_format"))


def _parameters(part: AnyPart) -> Iterator[tuple[str, Parameter]]:
    """Yield the parameters of PyBuda modules, with the names that they have in `part`."""
    if isinstance(part, torch.nn.Module):
        for path, module in part.named_modules():
            if isinstance(module, RecordedModule):
                for name, parameter in module.owners.items():
                    yield f"{path}.{name}" if path else name, parameter


def _pattern(chosen: Break, part: AnyPart) -> str:
    """Return a pattern for the operators that begin a section, none where there are none."""
    names: list[str] = []
    if not all(isinstance(each, str) for each in chosen):
        compiler()._known.add_types(node.op_type for node in _nodes(part))
    for each in chosen:
        if isinstance(each, str):
            names.append(each)
        elif fits := [node.name for node in _nodes(part) if each.holds(node)]:
            names += fits
            compiler()._known.add_held(str(each))
    known = dict.fromkeys(each for name in names for each in (name, path_of(name)))
    return "|".join(_INSIDE + re.escape(name) for name in known)


def operators_of(part: AnyPart, ran: Container[int]) -> list[str]:
    """Return the names of operators, and of the innermost modules of torch that `ran`, by ids."""
    if isinstance(part, OnnxPart):
        return [node.name for node in _nodes(part)]
    modules = dict(part.named_modules())
    paths = {re.sub(f"^{_INSIDE}", "", path): id(module) for path, module in modules.items()}
    names = (node.name for node in _nodes(part))
    return [name for name in names if paths.get(path_of(name)) in ran and name]


def _nodes(part: AnyPart) -> Iterator[QueriedNode]:
    """Yield what predicates are asked of: operators, and the innermost modules of torch."""
    if isinstance(part, OnnxPart):
        for node in part.model.graph.node:
            yield QueriedNode(node.name, snake(node.op_type))
        return
    for path, module in part.named_modules():
        name = re.sub(f"^{_INSIDE}", "", path)
        if isinstance(module, AppliedOperator) and module.kind:
            yield QueriedNode(name_at(name), module.kind)
        elif not [*module.children()]:
            kind = type(module).__name__.lower()
            yield QueriedNode(name, "matmul" if kind == "linear" else kind)
