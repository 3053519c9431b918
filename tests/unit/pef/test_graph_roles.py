"""Which graphs belong to one model."""

from __future__ import annotations

from pef import GraphRole, NamedGraph
from pef.graphs import callers, graph_of, trained_models

SERVE = NamedGraph("serve", (), (), 0, 1, "serve")
FIT = NamedGraph("learn", (), (), 1, 1, "fit", GraphRole.TRAIN)
JUDGE = NamedGraph("judge", (), (), 2, 1, "fit", GraphRole.EVAL)


def test_graphs_are_looked_up_by_model_and_role() -> None:
    graphs = (SERVE, FIT, JUDGE)
    assert graph_of(graphs, "fit", GraphRole.EVAL) == 2
    assert graph_of(graphs, "serve", GraphRole.INFERENCE) == 0
    assert graph_of(graphs, "serve", GraphRole.TRAIN) is None
    assert trained_models(graphs) == ("fit",)
    assert trained_models(graphs[:1]) == ()


def test_inputs_and_outputs_are_called_after_graph_and_model() -> None:
    assert callers("fit/train", "fit") == ("fit/train", "fit")
    assert callers("serve", "serve") == ("serve",)
    assert callers("train", "") == ("train",)
