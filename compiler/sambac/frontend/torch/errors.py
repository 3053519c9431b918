"""What torch's exporters raise, in a sentence for the user."""

from __future__ import annotations

import re

from sambac.errors import CompileError, root_cause

_MOST = 300
"""Characters of torch's reason that a message carries."""

_OPERATOR = re.compile(r"<OpOverload\(op='([\w.]+)', overload='\w+'\)>")
"""How torch spells an operator; its name is enough."""

# What torch says -> what to do about it. The first that matches counts.
_CURES = (
    (
        re.compile(r"DynamicOutputShape|_pack_padded_sequence|tuple of ints, ?but got FakeTensor"),
        (
            "the size of a tensor depends on the values of another one, as in packed sequences; "
            "pad to fixed sizes, and mask"
        ),
    ),
    (
        re.compile(r"data-dependent|DataDependentOutput|guard on|_local_scalar_dense|\.item\(\)"),
        "its control flow depends on the values of tensors; use torch.where, or take it outside",
    ),
    (
        re.compile(r"fake tensor in the exported program constant|FakeTensor"),
        "it takes tensors out of the recording; use detach() for .data, buffers to keep tensors",
    ),
    (
        re.compile(r"in output, which is not a known type"),
        (
            "it returns something else than tensors and collections of them; return a dict "
            "(transformers models: config.use_cache = False)"
        ),
    ),
    (
        re.compile(r"No decompositions? registered|No ONNX function|missing ONNX function", re.I),
        "an operator of it has no ONNX form; write it with other operators",
    ),
)


def refusal(name: str, error: BaseException) -> CompileError:
    """Return the error for a module or program called `name` that cannot be exported."""
    cause = root_cause(error)
    if isinstance(cause, CompileError):
        return cause
    text = f"{error}\n{type(cause).__name__}: {cause}"
    cure = next((cure for pattern, cure in _CURES if pattern.search(text)), None)
    reason = first_sentence(str(cause)) or type(cause).__name__
    return CompileError(f"{name} cannot be exported: {f'{cure} ({reason})' if cure else reason}")


def first_sentence(text: str) -> str:
    """Return the first sentence of a message of many lines, cut where it gets long."""
    lines = [line.strip() for line in text.strip().splitlines()]
    paragraph = " ".join(lines[: lines.index("")] if "" in lines else lines)
    sentence = re.split(r"(?<=[.!?])\s", paragraph, maxsplit=1)[0]
    sentence = _OPERATOR.sub(r"\1", sentence)
    return sentence if len(sentence) <= _MOST else sentence[:_MOST].rstrip() + " ..."
