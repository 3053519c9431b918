"""Field numbers of the ONNX messages that the linker and the loader touch."""

from __future__ import annotations

from typing import Final

MODEL_IR_VERSION: Final = 1
MODEL_GRAPH: Final = 7
MODEL_OPSET_IMPORT: Final = 8
MODEL_FUNCTIONS: Final = 25

OPSET_DOMAIN: Final = 1
OPSET_VERSION: Final = 2

GRAPH_NODE: Final = 1
GRAPH_NAME: Final = 2
GRAPH_INITIALIZER: Final = 5
GRAPH_DOC_STRING: Final = 10
GRAPH_INPUT: Final = 11
GRAPH_OUTPUT: Final = 12
GRAPH_VALUE_INFO: Final = 13
GRAPH_QUANTIZATION_ANNOTATION: Final = 14
GRAPH_SPARSE_INITIALIZER: Final = 15
GRAPH_METADATA: Final = 16

# Lists of ValueInfoProto.
GRAPH_VALUE_FIELDS: Final = frozenset({GRAPH_INPUT, GRAPH_OUTPUT, GRAPH_VALUE_INFO})
# What only annotates a graph. Value infos may name what no longer exists, so they go too.
GRAPH_DROPPED: Final = frozenset(
    {GRAPH_DOC_STRING, GRAPH_VALUE_INFO, GRAPH_QUANTIZATION_ANNOTATION, GRAPH_METADATA}
)

NODE_INPUT: Final = 1
NODE_OUTPUT: Final = 2
NODE_NAME: Final = 3
NODE_OP_TYPE: Final = 4
NODE_ATTRIBUTE: Final = 5
NODE_DOMAIN: Final = 7
NODE_VALUE_FIELDS: Final = frozenset({NODE_INPUT, NODE_OUTPUT})

ATTRIBUTE_NAME: Final = 1
ATTRIBUTE_INT: Final = 3
ATTRIBUTE_GRAPH: Final = 6
ATTRIBUTE_GRAPHS: Final = 11
ATTRIBUTE_GRAPH_FIELDS: Final = frozenset({ATTRIBUTE_GRAPH, ATTRIBUTE_GRAPHS})

VALUE_NAME: Final = 1
VALUE_TYPE: Final = 2

TYPE_TENSOR: Final = 1
TENSOR_TYPE_ELEMENT: Final = 1

TENSOR_DIMS: Final = 1
TENSOR_DATA_TYPE: Final = 2
TENSOR_NAME: Final = 8
TENSOR_RAW_DATA: Final = 9
TENSOR_EXTERNAL_DATA: Final = 13
TENSOR_DATA_LOCATION: Final = 14

SPARSE_VALUES: Final = 1

ENTRY_KEY: Final = 1
ENTRY_VALUE: Final = 2

# TensorProto.DataLocation
EXTERNAL: Final = 1
