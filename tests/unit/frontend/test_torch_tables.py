"""The exporter's tables that are kept between programs are what PyTorch would build."""

from __future__ import annotations

import pytest
import torch
from torch._C import DispatchKey
from torch._export import utils
from torch._ops import OperatorBase
from torch.export import exported_program
from torch.onnx._internal.exporter._registration import ONNXRegistry

from sambac.frontend.torch.shortcuts import kept_tables

OPSET = 23


def described(registry: ONNXRegistry) -> list[tuple[object, ...]]:
    """Each translation with all that an export asks it, in order."""
    return [
        (str(target), meta.onnx_function, str(meta.signature), meta.is_complex, meta.fx_target)
        for target, metas in registry.functions.items()
        for meta in metas
    ]


def kept_registry() -> ONNXRegistry:
    with kept_tables():
        return ONNXRegistry().from_torchlib(opset_version=OPSET)


def test_translations_are_those_of_the_exporter():
    own = ONNXRegistry.from_torchlib(opset_version=OPSET)
    kept = kept_registry()
    assert kept.opset_version == own.opset_version == OPSET
    assert described(kept) == described(own)


def test_translations_of_one_export_are_not_those_of_the_next():
    before = described(kept_registry())
    changed = kept_registry()
    changed.register_op(torch.ops.aten.relu.default, lambda x: x)
    changed.register_op(torch.ops.aten.set_.source_Tensor, lambda x: x)
    assert len(described(changed)) == len(before) + 2
    assert described(kept_registry()) == before


def test_operators_that_a_library_brings_later_are_looked_for(monkeypatch: pytest.MonkeyPatch):
    kept_registry()
    looked: list[str] = []
    find = torch.onnx._internal.exporter._registration._get_overload
    monkeypatch.setattr(
        "torch.onnx._internal.exporter._registration._get_overload",
        lambda name: looked.append(name) or find(name),
    )
    kept_registry()
    assert not looked
    with torch.library._scoped_library("samba_test_tables", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        kept_registry()
    assert looked


def test_composite_operators_are_all_found():
    own = utils._collect_all_valid_cia_ops()
    with kept_tables():
        assert utils._collect_all_valid_cia_ops() == own
        with torch.library._scoped_library("samba_test_composite", "DEF") as library:
            library.define("twice(Tensor x) -> Tensor")
            library.impl("twice", lambda x: x + x, "CompositeImplicitAutograd")
            added = torch.ops.samba_test_composite.twice.default
            assert added in utils._collect_all_valid_cia_ops()


def test_kernels_are_registered_once_and_forgotten_by_the_cache():
    with torch.library._scoped_library("samba_test_kernels", "DEF") as library:
        library.define("twice(Tensor x) -> Tensor")
        operator = torch.ops.samba_test_kernels.twice.default
        with kept_tables():
            assert operator.py_impl(DispatchKey.CPU)(lambda x: x + x) is not None
            operator._dispatch_cache[DispatchKey.CPU] = DispatchKey.CPU
            operator.py_impl(DispatchKey.Meta)(lambda x: x)
            assert not operator._dispatch_cache
            with pytest.raises(RuntimeError, match=r"twice.* has a kernel for .*CPU already"):
                operator.py_impl(DispatchKey.CPU)(lambda x: x)
            with pytest.raises(AssertionError, match="register a mode"):
                operator.py_impl(DispatchKey.Python)(lambda x: x)


def test_each_operator_has_one_kernel_that_has_no_gradient():
    sine, cosine = torch.ops.aten.sin.default, torch.ops.aten.cos.default
    with kept_tables():
        make = exported_program.autograd_not_implemented
        kernel = make(sine, deferred_error=True)
        assert make(sine, deferred_error=True) is kernel is not make(cosine, deferred_error=True)
        found = kernel(x := torch.ones(2, requires_grad=True))
    assert torch.equal(found, x.sin())
    with pytest.raises(RuntimeError, match=r"Autograd not implemented for aten\.sin"):
        found.sum().backward()


def test_torch_is_as_it_was_afterwards():
    before = (
        vars(ONNXRegistry)["from_torchlib"],
        utils._materialize_cpp_cia_ops,
        OperatorBase.py_impl,
        exported_program.autograd_not_implemented,
    )
    with pytest.raises(ValueError, match="a mistake"), kept_tables():
        raise ValueError("a mistake")
    assert before == (
        vars(ONNXRegistry)["from_torchlib"],
        utils._materialize_cpp_cia_ops,
        OperatorBase.py_impl,
        exported_program.autograd_not_implemented,
    )
