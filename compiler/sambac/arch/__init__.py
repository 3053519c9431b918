"""Descriptions of devices, read from data files."""

from .loading import Alternative, Arch, Constant, Origin, Tier, builtin_archs, load_arch

__all__ = ["Alternative", "Arch", "Constant", "Origin", "Tier", "builtin_archs", "load_arch"]
