"""Phrases of messages: what was probably meant, and lists that end."""

from __future__ import annotations

import pytest

from pef.wording import did_you_mean, listed


@pytest.mark.parametrize(
    ("word", "hint"),
    [("imgae", " (did you mean 'image'?)"), ("IMAGE", " (did you mean 'image'?)"), ("q", "")],
)
def test_the_word_that_is_most_alike(word: str, hint: str) -> None:
    assert did_you_mean(word, ("mask", "image", "page")) == hint


@pytest.mark.parametrize(
    ("word", "meant"),
    [("wd", "weight_decay"), ("learning_rate", "lr"), ("WD", "weight_decay"), ("q", "")],
)
def test_initials(word: str, meant: str) -> None:
    hint = did_you_mean(word, ("lr", "weight_decay", "p"))
    assert hint == (f" (did you mean '{meant}'?)" if meant else "")


@pytest.mark.parametrize(
    ("count", "text"), [(0, ""), (1, "a"), (2, "a, b"), (3, "a, b and 1 more")]
)
def test_a_list_says_how_much_it_leaves_out(count: int, text: str) -> None:
    assert listed("abc"[:count], most=2, separator=", ") == text


def test_a_word_of_one_part_has_no_initials() -> None:
    assert did_you_mean("com.microsft", ("", "com.microsoft")) == " (did you mean 'com.microsoft'?)"
    assert did_you_mean("", ("legalize", "simplify")) == ""
