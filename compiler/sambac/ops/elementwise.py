"""Operators that treat every element alike: arithmetic, comparisons, activations."""

from __future__ import annotations

import onnx_ir as ir

from .family import POLYNOMIAL, Family, each, elements, per_output
from .gradients import activation as activation_gradients
from .gradients import arithmetic as arithmetic_gradients
from .gradients import choice as choice_gradients
from .gradients import rotary as rotary_gradients


def _variadic(node: ir.Node) -> int:
    """One operation per output element for every input after the first, at least one."""
    return max(len(node.inputs) - 1, 1) * elements(node.outputs[0])


_SIMPLE = """
    Abs Add And BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil Clip Div
    Equal Floor Greater GreaterOrEqual IsInf IsNaN LeakyRelu Less LessOrEqual Mod Mul Neg Not Or
    PRelu Reciprocal Relu Round Shrink Sign Sub ThresholdedRelu Where Xor
"""
_FUNCTIONS = """
    Acos Acosh Asin Asinh Atan Atanh Celu Cos Cosh Elu Erf Exp Gelu Log Mish Pow Selu Sigmoid Sin
    Sinh Softplus Sqrt Swish SwiGLU Tan Tanh
"""
# Their results are truth values or integers, or do not change with small changes of the inputs.
_CONSTANT = """
    And BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Ceil Equal Floor Greater GreaterOrEqual
    IsInf IsNaN Less LessOrEqual Not Or Round Sign Xor
"""

FAMILY = Family(
    "elementwise",
    {
        **each(_SIMPLE, per_output(1)),
        **each("HardSigmoid HardSwish Softsign Affine ScaledTanh ImageScaler Scale", per_output(3)),
        **each(_FUNCTIONS, per_output(POLYNOMIAL)),
        **each("ParametricSoftplus", per_output(POLYNOMIAL)),
        **each("Max Mean Min Sum", _variadic),
        **each(
            "BiasGelu FastGelu Gelu QuickGelu ScaledSiLU",
            per_output(POLYNOMIAL + 2),
            "com.microsoft",
        ),
        **each("GatedAdd", per_output(2), "com.microsoft"),
        **each("EngramGate LinearAttentionGate", per_output(POLYNOMIAL), "com.microsoft"),
        **each(
            "MurmurHash3 NGramHashMapping VarlenNGramHashMapping",
            per_output(POLYNOMIAL),
            "com.microsoft",
        ),
        **each("RotaryEmbedding", per_output(3)),
        **each("RotaryEmbedding MRotaryEmbedding", per_output(3), "com.microsoft"),
        **each("HyperConnectionPostMix HyperConnectionPreMix", per_output(4), "com.microsoft"),
    },
    gradients={
        **arithmetic_gradients.GRADIENTS,
        **choice_gradients.GRADIENTS,
        **activation_gradients.GRADIENTS,
        **rotary_gradients.GRADIENTS,
    },
    constant=frozenset(_CONSTANT.split()),
)
