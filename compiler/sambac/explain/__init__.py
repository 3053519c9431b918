"""Why a program is planned as it is, from the numbers that its planners used."""

from .explaining import explain
from .facts import Explanation, Fact

__all__ = ["Explanation", "Fact", "explain"]
