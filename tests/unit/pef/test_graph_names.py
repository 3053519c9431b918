"""Names of tensors that several graphs have: what each means, and which mean two things."""

from __future__ import annotations

import pytest

from pef.graphs import AmbiguousNameError, Namespace

NAMES = Namespace(
    [
        (("encode",), "x", "x"),
        (("encode",), "y", "h"),
        (("fit/train", "fit"), "x", "fit.x"),
        (("fit/eval", "fit"), "x", "fit.x"),
        (("layer",), "weight", "weight"),
        (("layer",), "kept", "layer.kept"),
        (("layer",), "hidden", "layer.h"),
    ],
    [(name, name) for name in ("x", "h", "fit.x", "weight", "layer.weight", "hidden", "deep")],
)


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("x", ("x", "fit.x")),
        ("encode.x", ("x",)),
        ("y", ("h",)),
        ("fit.x", ("fit.x",)),
        ("fit/eval.x", ("fit.x",)),
        ("deep", ("deep",)),
        ("layer.kept", ("layer.kept",)),
        ("weight", ("weight",)),
        ("encode.weight", ()),
        ("", ()),
    ],
)
def test_what_a_name_means(name: str, meant: tuple[str, ...]) -> None:
    assert NAMES.find(name) == meant


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("layer.weight", "the tensor of that name, or 'weight' of graph 'layer'"),
        ("hidden", "inside of a graph, or an input or output"),
    ],
)
def test_what_means_two_things_is_refused(name: str, told: str) -> None:
    with pytest.raises(AmbiguousNameError, match=told):
        NAMES.find(name)
    with pytest.raises(AmbiguousNameError, match=told):
        NAMES.chosen({name: 1})


def test_the_name_of_one_graph_goes_before_that_of_all() -> None:
    assert NAMES.chosen({"encode.x": 1, "x": 2, "none": 3}) == {"x": "encode.x", "fit.x": "x"}


def test_every_name_is_known_once() -> None:
    assert len(NAMES.known) == len(set(NAMES.known))
    assert {"x", "fit.x", "fit/eval.x", "deep"} <= set(NAMES.known)
