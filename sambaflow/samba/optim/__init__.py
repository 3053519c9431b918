"""Optimizers: they say what a PEF is compiled with, and can also take steps on the host."""

from __future__ import annotations

from sambaflow.submodules import on_demand

from .optimizers import LAMB, LARS, SGD, Adagrad, Adam, AdamW, RMSprop, SparseAdamW

__all__ = ["LAMB", "LARS", "SGD", "Adagrad", "Adam", "AdamW", "RMSprop", "SparseAdamW"]

__getattr__ = on_demand(__name__)  # says which name may be meant
