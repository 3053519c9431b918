"""Models of PyTorch in files: exported programs, and Python code that makes a module."""

from __future__ import annotations

import importlib.util
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import torch
from torch.export import ExportedProgram

from pef.files import in_text
from pef.foreign import why
from pef.wording import did_you_mean
from sambac.errors import CompileError, root_cause
from sambac.frontend.torch.errors import first_sentence
from sambac.frontend.torch.modules.inputs import Shapes
from sambac.frontend.torch.patching import quiet

from .archives import program_in


def program_from(path: str) -> ExportedProgram:
    """Return the program in a .pt2 file; raise `CompileError` if there is none, or code in it."""
    if not Path(path).is_file():
        raise CompileError(f"there is no file '{path}'; check its path")
    with quiet():
        try:
            return _program_of_archive(path)
        except (CompileError, OSError, MemoryError):
            raise
        except Exception as error:  # of readers of other people, who may stumble in any way
            raise CompileError(
                f"'{path}' cannot be read: {why(root_cause(error), first_sentence)}; save it again "
                f"with PyTorch {torch.__version__}"
            ) from error


def unsound(path: str) -> str | None:
    """Return why the program in a .pt2 file that was loaded is none; None if PyTorch takes it."""
    with quiet():
        try:
            program_from(path).run_decompositions({})
        except Exception as error:  # of a program that may be anything
            return (
                f"'{path}' is not a sound program, PyTorch refuses it as well "
                f"({why(root_cause(error), first_sentence)}); save it again"
            )
    return None


def _program_of_archive(path: str) -> ExportedProgram:
    if not zipfile.is_zipfile(path):
        raise CompileError(f"'{path}' is no exported program; make one with torch.export.save")
    return program_in(path)


def made_by(path: str) -> tuple[object, object, Shapes]:
    """Return what the callable of `file.py:callable` makes: a model, its inputs and open sizes.

    These are torch.export's dynamic_shapes, None where all sizes are those of the example inputs.
    A callable that returns an exported program needs no inputs. Raises `CompileError` if there is
    no such file or callable, if it fails, and if it returns something else.
    """
    file, _, name = path.rpartition(":")
    if not Path(file).is_file():
        raise CompileError(f"there is no file '{file}'; check its path")
    with _running(path), _importable(Path(file).parent):
        module = _load(Path(file))
    function = getattr(module, name, None)
    if not callable(function):
        names = [key for key, value in vars(module).items() if callable(value)]
        raise CompileError(
            f"'{file}' has no callable '{name}'{did_you_mean(name, names)}; name a function that "
            "returns a module and its example inputs"
        )
    if isinstance(function, torch.nn.Module | ExportedProgram):
        raise CompileError(
            f"{path} is {_described(function)}; name a function without arguments that returns it, "
            "a module with its example inputs: return module, (x, ...)"
        )
    with _running(path), _importable(Path(file).parent):
        made: object = function()
    return _checked(path, made)


@contextmanager
def _running(path: str) -> Iterator[None]:
    """Report what the user's code raises."""
    try:
        yield
    except (Exception, SystemExit) as error:  # it may raise anything
        said = filter(None, (type(error).__name__, first_sentence(str(error))))
        raise CompileError(f"{path} failed: {': '.join(said)}") from error


def _load(file: Path) -> ModuleType:
    name = f"sambac_model_{in_text(file.stem)}"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where dataclasses and pickles look their module up
    spec.loader.exec_module(module)
    return module


@contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """Let the file import its neighbours."""
    entry = str(folder.resolve())
    sys.path.insert(0, entry)
    try:
        yield
    finally:
        sys.path.remove(entry)


def _checked(path: str, made: object) -> tuple[object, object, Shapes]:
    if isinstance(made, ExportedProgram):
        return made, None, None
    if isinstance(made, tuple) and len(made) in (2, 3) and isinstance(made[0], torch.nn.Module):
        module, inputs, *shapes = made
        return module, inputs, shapes[0] if shapes else None
    raise CompileError(
        f"{path} returned {_described(made)}; it has to return a torch.nn.Module and its example "
        "inputs: return module, (x, ...) (or module, (x, ...), dynamic_shapes)"
    )


def _described(made: object) -> str:
    if isinstance(made, tuple):
        return f"({', '.join(type(item).__name__ for item in made)})"
    return f"a {type(made).__name__}"
