"""Strings, tokens and vocabularies: no arithmetic worth counting."""

from __future__ import annotations

from .family import Family, each, nothing

FAMILY = Family(
    "text",
    {
        **each("RegexFullMatch StringConcat StringNormalizer StringSplit TfIdfVectorizer", nothing),
        **each("Tokenizer", nothing, "com.microsoft"),
    },
)
