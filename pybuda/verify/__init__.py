"""Verification: what devices give for modules, against what torch gives on the host."""

from pybuda.verifying import TestKind as TestKind
from pybuda.verifying import VerifyConfig as VerifyConfig

from .backend import verify_module as verify_module
from .backend import verify_module_pipeline as verify_module_pipeline
