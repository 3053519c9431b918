"""Several models in one program: what they share, and their graphs joined."""

from .joining import join
from .sharing import (
    Loaded,
    check_sources,
    find_shared,
    find_weights,
    joint_source,
    settle_types,
    shared_members,
    with_options,
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
    "with_options",
]
