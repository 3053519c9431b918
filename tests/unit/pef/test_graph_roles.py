"""Which graphs belong to one model, by their names and the features of the program."""

from __future__ import annotations

import pytest

from pef.graphs import Role, callers, graph_of, name_among, roles, trained_model

ALONE, TOGETHER = ("training",), ("training", "several_models")


@pytest.mark.parametrize(
    ("names", "features", "expected"),
    [
        (["main"], (), [("main", "main")]),
        (["train", "a/eval"], (), [("train", "main"), ("a/eval", "main")]),
        (["train", "eval"], ALONE, [("", "train"), ("", "eval")]),
        (["a/train", "a/eval", "b"], TOGETHER, [("a", "train"), ("a", "eval"), ("b", "main")]),
        (["train", "eval"], TOGETHER, [("train", "main"), ("eval", "main")]),
        (["train/train", "a/b/eval"], TOGETHER, [("train", "train"), ("a/b", "eval")]),
    ],
)
def test_names_say_which_model_a_graph_is_of(
    names: list[str], features: tuple[str, ...], expected: list[tuple[str, str]]
) -> None:
    assert [tuple(role) for role in roles(names, features)] == expected


def test_a_graph_gets_the_name_of_its_model() -> None:
    assert name_among("fit", "train") == "fit/train"
    assert name_among("serve", "main") == "serve"
    assert name_among("", "train") == "train"
    with pytest.raises(ValueError, match="'fit/eval' reads like a graph"):
        name_among("fit/eval", "main")


def test_roles_are_looked_up() -> None:
    found = (Role("serve", "main"), Role("fit", "train"), Role("fit", "eval"))
    assert graph_of(found, "fit", "eval") == 2
    assert graph_of(found, "serve", "train") is None
    assert trained_model(found) == "fit"
    assert trained_model(found[:1]) is None


def test_inputs_and_outputs_are_called_after_graph_and_model() -> None:
    assert callers(["fit/train", "serve"], TOGETHER) == (("fit/train", "fit"), ("serve",))
    assert callers(["train", "eval"], ALONE) == (("train",), ("eval",))
