"""The order in which operators are fused and cut: depth first, so that little is alive at once."""

from __future__ import annotations

import networkx as nx


def depth_first(graph: nx.DiGraph[str]) -> list[str]:
    """Order operators so that each directly follows the last thing that it waits for.

    The longest way to an operator comes first: what short branches hold is then needed at once.
    """
    generations = enumerate(nx.topological_generations(graph))
    depth = {name: number for number, names in generations for name in names}
    waits: nx.DiGraph[str] = nx.DiGraph()
    # The search begins at what nothing waits for, in the order of the graph.
    waits.add_nodes_from(name for name in graph if not graph.out_degree(name))
    waits.add_edges_from((name, before) for name in graph for before in graph.pred[name])
    return list(
        nx.dfs_postorder_nodes(
            waits, sort_neighbors=lambda names: sorted(names, key=depth.__getitem__)[::-1]
        )
    )
