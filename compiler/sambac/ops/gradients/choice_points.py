"""All kinds of problems that have several formulations, by name."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from .filters import FILTER_GRADIENT
from .formulations import AnyPoint
from .gathering import CONVOLUTION
from .products import PRODUCT
from .recurrent_layer import RECURRENT_LAYERS
from .spreading import DATA_GRADIENT

_POINTS: tuple[AnyPoint, ...] = (
    CONVOLUTION,
    FILTER_GRADIENT,
    DATA_GRADIENT,
    PRODUCT,
    *RECURRENT_LAYERS.values(),
)

CHOICE_POINTS: Mapping[str, AnyPoint] = MappingProxyType({point.name: point for point in _POINTS})
