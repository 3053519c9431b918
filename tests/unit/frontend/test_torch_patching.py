"""Attributes that are others for a while are what they were afterwards, inherited ones as well."""

from __future__ import annotations

import pytest

from sambac.frontend.torch.patching import replaced


class Base:
    number = 1


class Derived(Base):
    pass


def test_an_inherited_attribute_is_inherited_again() -> None:
    with replaced(Derived, "number", 2):
        with replaced(Derived, "number", 3):
            assert Derived.number == 3
        assert Derived.number == 2
    assert "number" not in vars(Derived)
    assert Derived.number == Base.number == 1


def test_an_attribute_that_there_is_not_is_an_error() -> None:
    with pytest.raises(AttributeError, match="nubmer"), replaced(Derived, "nubmer", 2):
        pass
