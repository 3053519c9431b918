"""Strings, tokens and vocabularies: no arithmetic worth counting."""

from __future__ import annotations

from .family import Family, each, nothing

_FLOPS = {
    **each("RegexFullMatch StringConcat StringNormalizer StringSplit TfIdfVectorizer", nothing),
    **each("Tokenizer", nothing, "com.microsoft"),
}

FAMILY = Family("text", _FLOPS, constant=frozenset(_FLOPS))
