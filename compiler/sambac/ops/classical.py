"""Classical machine learning: linear models, trees, support vectors, feature tables."""

from __future__ import annotations

import onnx_ir as ir

from sambac.graph.nodes import input_at

from .family import Family, FlopRule, dim, each, elements, nothing, per_output

_ML = "ai.onnx.ml"


def _against(table: str) -> FlopRule:
    """2 * rows * coefficients: every row meets every coefficient of an attribute."""

    def rule(node: ir.Node) -> int:
        coefficients = node.attributes.get(table)
        count = len(coefficients.as_floats()) if coefficients is not None else 0
        return 2 * dim(input_at(node, 0), 0) * count

    return rule


def _trees(roots: str) -> FlopRule:
    """2 * rows * trees * depth, the depth of a balanced tree over an attribute's nodes."""

    def rule(node: ir.Node) -> int:
        table = node.attributes.get(roots)
        ids = tuple(table.as_ints()) if table is not None else ()
        trees = max(len(set(ids)), 1)
        return 2 * dim(input_at(node, 0), 0) * trees * (len(ids) // trees).bit_length()

    return rule


def _table_size(node: ir.Node) -> int:
    """One comparison per element."""
    return elements(input_at(node, 0))


_FLOPS = {
    **each("LinearClassifier LinearRegressor", _against("coefficients"), _ML),
    **each("SVMClassifier SVMRegressor", _against("support_vectors"), _ML),
    **each("TreeEnsembleClassifier TreeEnsembleRegressor", _trees("nodes_treeids"), _ML),
    **each("TreeEnsemble", _trees("tree_roots"), _ML),
    **each("Scaler", per_output(2), _ML),
    **each("Normalizer", per_output(3), _ML),
    **each("Binarizer Imputer", _table_size, _ML),
    **each(
        "ArrayFeatureExtractor CastMap CategoryMapper DictVectorizer FeatureVectorizer "
        "LabelEncoder OneHotEncoder ZipMap",
        nothing,
        _ML,
    ),
}

FAMILY = Family(
    "classical",
    _FLOPS,
    undifferentiable=dict.fromkeys(_FLOPS, "classical models are fitted, not trained by gradients"),
)
