"""What torch's exporters raise, in a sentence for the user."""

from __future__ import annotations

import os
import re
import sysconfig
import traceback
from itertools import takewhile
from types import FrameType

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import _ModuleNotInstalledAsSubmoduleError as ModuleMade

from pef.foreign import why
from pef.warned import is_inside
from pef.wording import listed
from sambac.errors import CompileError, causes
from sambac.graph.origins import last_line, spell_place

_MOST = 300
"""Characters of torch's reason that a message carries."""

_OPERATOR = re.compile(r"<OpOverload\(op='([\w.]+)', overload='\w+'\)>")
"""How torch spells an operator; its name is enough."""

OWN = (
    os.path.dirname(torch.__file__),
    os.path.dirname(os.path.dirname(os.path.dirname(__file__))),
    "<",
)
"""Where code lies that records a module: PyTorch, this compiler."""

OTHERS = (*OWN, sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"))
"""Where code lies that is not the user's: besides that, Python, what is installed."""

_DYNAMO = "torch._dynamo"
"""What records the bodies of loops and choices."""

_IN_BODY = re.compile(r"Dynamo failed to run FX node.*?: got (\w+)\((['\"])(.*?)(?:\\n|\2\))", re.S)
"""How it says what an operator raised there."""

_WHILE = "\n\nWhile executing"
"""What PyTorch writes behind an error of what it records, and where that was, in many lines."""

_SUGGESTED = re.compile(r"^Suggested fixes:\n((?:  .+\n?)+)", re.M)
"""How torch says which sizes a module takes, in the names of the user's `Dim`s."""

_SIZES_OF_VALUES = (
    "a size in it depends on values, as that of x[mask] or nonzero() does; "
    "torch.where(mask, a, b) keeps the sizes"
)

# What torch says -> what to do about it. The first that matches counts.
_CURES = (
    (
        re.compile(r"Constraints violated|conflicts between user-specified ranges"),
        (
            "it fixes sizes that dynamic_shapes leaves open; give examples in which open sizes "
            "are 2 or more and differ, or fix what it fixes"
        ),
    ),
    (
        re.compile(r"linalg_lstsq"),
        (
            "torch.linalg.lstsq has no ONNX form; of columns that are independent "
            "torch.linalg.solve(A.mT @ A, A.mT @ B) gives the same"
        ),
    ),
    (
        re.compile(r"linalg_pinv"),
        (
            "torch.linalg.pinv has no ONNX form; of columns that are independent "
            "torch.linalg.solve(A.mT @ A, A.mT) gives the same"
        ),
    ),
    (
        re.compile(r"linalg_qr"),
        (
            "torch.linalg.qr has no ONNX form; of columns that are independent "
            "R = torch.linalg.cholesky(A.mT @ A).mT and Q = A @ torch.linalg.inv(R) are one, with "
            "other signs"
        ),
    ),
    (
        re.compile(r"linalg_(?:eig|eigh|svd)\b"),
        (
            "eigenvalues and singular values have no ONNX form; compute them outside, and take "
            "them as inputs"
        ),
    ),
    (
        re.compile(r"linalg_matrix_exp"),
        (
            "torch.linalg.matrix_exp has no ONNX form; square the sum of a few terms of its series "
            "for A / 2**n as often as n says"
        ),
    ),
    (
        re.compile(
            r"Pending unbacked symbols|have been constant, but got \S*u\d"
            r"|data-dependent expression (?:Eq|Ne)\(\d+\*u\d+, 0\)"
        ),
        _SIZES_OF_VALUES,
    ),
    (
        re.compile(r"data-dependent expression (?:Eq|Ne)\(u\d+, u\d+\)"),
        (
            f"{_SIZES_OF_VALUES}; for two sizes to be the same, let one mask that is computed once "
            "select both (m = x > 0, then x[m] and y[m])"
        ),
    ),
    (
        re.compile(r"DynamicOutputShape|tuple of ints, ?but got FakeTensor"),
        ("the size of a tensor depends on the values of another one; pad to fixed sizes, and mask"),
    ),
    (
        re.compile(r"guard on data-dependent expression zuf\d+ \("),
        (
            "it makes a Python number of a tensor with float() or int(); .item(), as for a log, "
            "can be recorded"
        ),
    ),
    (
        re.compile(r"vmap: It looks like you're calling \.item\(\)"),
        (
            "a function under torch.vmap indexes with a tensor, as x[i] does, which PyTorch "
            "records as a number; let it be x.index_select(0, i.reshape(1))"
        ),
    ),
    (
        re.compile(r"data-dependent|DataDependentOutput|guard on|_local_scalar_dense|\.item\(\)"),
        "its control flow depends on the values of tensors; use torch.where, or take it outside",
    ),
    (
        re.compile(r"at least two devices.*\bmeta\b"),
        (
            "it reads a tensor without content, on PyTorch's meta device, that is neither a "
            "parameter nor a buffer; register it as a buffer"
        ),
    ),
    (
        re.compile(r"output stride|merging two branches' output"),
        (
            "what its branches return may lie in memory in several ways; let both return results "
            "of contiguous().clone()"
        ),
    ),
    (
        re.compile(r"do not support aliasing"),
        (
            "the function of a loop or a choice returns one tensor twice, or one that it is given; "
            "return x.clone()"
        ),
    ),
    (
        re.compile(r"Invalid arg types in"),
        (
            "loops of PyTorch hand on tensors alone besides their rows; let the function itself "
            "have the numbers, or make tensors of them"
        ),
    ),
    (
        re.compile(r"outs_to_grad length"),
        (
            "PyTorch takes no gradients through a loop that carries or gives whole numbers; let it "
            "have them as floats, or run under torch.no_grad()"
        ),
    ),
    (
        re.compile(r"fake tensor in the exported program constant|FakeTensor"),
        "it takes tensors out of the recording; let buffers keep tensors from call to call",
    ),
    (
        re.compile(r"symbolic sizes/strides"),
        (
            "PyTorch records bodies of torch.scan with open sizes, which an operator there does "
            "not take, as dropout does not; compute it outside of the loop"
        ),
    ),
    (
        re.compile(
            r"data pointer of Tensor that doesn't have storage|storage of TensorWrapper"
            r"|has no attribute 'constant'|_unwrap_for_grad|Nested forward mode AD"
        ),
        "it takes derivatives inside forward (torch.func); write their formulas into it",
    ),
    (
        re.compile(r"in output, which is not a known type"),
        (
            "it returns something else than tensors, and collections and objects that hold them; "
            "return a dict"
        ),
    ),
    (
        re.compile(r"User output \w+ is not in the correct order"),
        "it writes one tensor to two buffers, or returns it too; write copies, clone() of it",
    ),
    (
        re.compile(r"is mutated in the forward method"),
        (
            "it writes a tensor that is not registered; register_buffer() it, and modules in a "
            "list in a ModuleList"
        ),
    ),
    (
        re.compile(r"Cannot swap t1 because it has weakref"),
        "forward converts or moves the module itself (to(), float(), cpu()); do that before",
    ),
    (
        re.compile(r"expected compiled_fn to be GraphModule"),
        "it writes a buffer that shares memory with another tensor; keep a copy, clone() of it",
    ),
    (
        re.compile(r"attribute '\w+' already exists"),
        "graphs of PyTorch have something of that name; call the buffer or parameter otherwise",
    ),
    (
        re.compile(r"SparseTensorImpl|SparseCsr|Sparse CS[CR] tensors|aten\._?(to_)?sparse"),
        "it computes with sparse tensors, which have no ONNX form; make them dense with to_dense()",
    ),
    (re.compile(r"\bu\d+\b.*is open; fix"), _SIZES_OF_VALUES),
    (
        re.compile(r"is open; fix"),
        "an operator of it needs sizes that dynamic_shapes leaves open",
    ),
    (
        re.compile(r"No decompositions? registered|No ONNX function|missing ONNX function", re.I),
        "an operator of it has no ONNX form; write it with other operators",
    ),
)


def refusal(name: str, error: BaseException) -> CompileError:
    """Return the error for a module or program called `name` that cannot be exported."""
    cause = _reasons(error)[-1]
    if isinstance(cause, CompileError):
        said, where, _ = str(cause).partition(_WHILE)
        return CompileError(said) if where else cause
    text = f"{error}\n{type(cause).__name__}: {cause}"
    inside = _IN_BODY.search(text)
    if inside:
        text = inside[3]
    cure = next((cure for pattern, cure in _CURES if pattern.search(text)), None)
    reason = first_sentence(text) if inside else why(cause, first_sentence)
    said = f"{cure} ({reason})" if cure else reason
    said += _suggested(text)
    return CompileError(f"{name} cannot be exported{_place(error)}: {said}")


def _suggested(text: str) -> str:
    """Return what torch suggests in `text`, if it does, such as the most that a size may be."""
    found = _SUGGESTED.search(text)
    lines = [line.strip() for line in found[1].splitlines()] if found else []
    return f"; PyTorch suggests {listed(lines, separator=', ')}" if lines else ""


def _reasons(error: BaseException) -> list[BaseException]:
    """Return the causes of `error` but for those that mean nothing, from the last on.

    PyTorch finds with an error that forward has made a module, then calls that one as it is.
    """
    meant = takewhile(lambda cause: not isinstance(cause, ModuleMade), causes(error))
    found = list(meant) or [error]
    while type(found[-1]).__module__.startswith(_DYNAMO) and found[-1].__context__ is not None:
        found.append(found[-1].__context__)  # which Dynamo hides
    return found


def _place(error: BaseException) -> str:
    """Return where in the module's code an error came up, as far as that can be known.

    That is the operator that was being translated, which only the frames of the translator hold,
    or else the last line of a module that is not PyTorch's own, such as one of a library's, and
    the last line of the user's if that is another.
    """
    operators, users, last = [], "", ""
    for cause in _reasons(error):
        for frame, number in traceback.walk_tb(cause.__traceback__):
            held = frame.f_locals.get("node")
            operators += [held] if isinstance(held, fx.Node) else []
            if is_inside(frame):  # what APIs put a module into is not its code
                continue
            path = frame.f_code.co_filename
            line = f"{os.path.basename(path)}:{number}"
            if not path.startswith(OTHERS):
                users = last = line
            elif _is_of_a_library(frame):
                last = line
    known = (spell_place(*_origin(node)) for node in reversed(operators))
    found = next((place for place in known if place), "")
    called = f", called at {users}" if users not in ("", last) else ""
    return found or spell_place(last + called, "")


def place_outside(frame: FrameType) -> str:
    """Return the file and line of the module's code that led to `frame`."""
    while frame.f_back is not None and frame.f_code.co_filename.startswith(OWN):
        frame = frame.f_back
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}"


def _is_of_a_library(frame: FrameType) -> bool:
    """Tell whether what runs in `frame` is a method of a module that is not PyTorch's own."""
    path = frame.f_code.co_filename
    return isinstance(frame.f_locals.get("self"), torch.nn.Module) and not path.startswith(OWN)


def _origin(node: fx.Node) -> tuple[str, str]:
    """Return the line of the source and the path of the module that `node` comes from."""
    modules = list(node.meta.get("nn_module_stack", {}).values())
    return last_line(node.meta.get("stack_trace") or ""), modules[-1][0] if modules else ""


def first_sentence(text: str) -> str:
    """Return the first sentence of a message of many lines, cut where it gets long."""
    lines = [line.strip() for line in text.strip().splitlines()]
    paragraph = " ".join(lines[: lines.index("")] if "" in lines else lines)
    sentence = re.split(r"(?<=[.!?])\s", paragraph, maxsplit=1)[0]
    sentence = _OPERATOR.sub(r"\1", sentence)
    return sentence if len(sentence) <= _MOST else sentence[:_MOST].rstrip() + " ..."
