"""Several models in one program: what they share, and their graphs joined."""

from .joining import join
from .region_types import settle_types
from .sharing import (
    Loaded,
    check_sources,
    find_shared,
    find_weights,
    joint_source,
    shared_members,
)

__all__ = [
    "Loaded",
    "check_sources",
    "find_shared",
    "find_weights",
    "join",
    "joint_source",
    "settle_types",
    "shared_members",
]
