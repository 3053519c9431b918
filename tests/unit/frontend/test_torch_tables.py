"""The exporter's tables that are kept between programs are what PyTorch would build."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import onnx_ir as ir
import pytest
import torch
from onnxscript import FLOAT
from torch._C import DispatchKey
from torch._export import utils
from torch._ops import OperatorBase
from torch._subclasses.fake_impls import op_implementations_dict
from torch.export import exported_program
from torch.onnx._internal.exporter import _schemas
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


def kernels_of(operators: Iterable[OperatorBase]) -> list[tuple[object, ...]]:
    """The kernels of operators, and their rules for fake tensors: which code has what arguments."""
    return [
        (
            str(operator),
            {str(key): named(kernel) for key, kernel in operator.py_kernels.items()},
            named(op_implementations_dict.get(operator)),
        )
        for operator in operators
    ]


def named(kernel: object) -> object:
    if isinstance(kernel, partial):
        return [*map(named, (kernel.func, *kernel.args, *kernel.keywords.values()))]
    return getattr(kernel, "__qualname__", str(kernel))


def test_composite_operators_stay_as_they_do_without(monkeypatch: pytest.MonkeyPatch):
    operators = sorted(utils._collect_all_valid_cia_ops(), key=str)[::6]
    replaced = operators[1]
    rules = dict.fromkeys(operators, utils._special_op_to_preserve_cia)
    rules[replaced] = torch.nn.functional.linear

    def meanwhile() -> list[tuple[object, ...]]:
        with exported_program._override_composite_implicit_decomp(rules):
            return kernels_of(operators)

    with exported_program._override_composite_implicit_decomp(rules):
        pass  # it forgets the rules for fake tensors that some of them have
    before = kernels_of(operators)
    own = meanwhile()
    with kept_tables():
        assert [meanwhile(), meanwhile()] == [own, own]
        assert kernels_of(operators) == before
        monkeypatch.setitem(operators[0].py_kernels, DispatchKey.CPU, abs)
        changed = meanwhile()
    assert changed == meanwhile() != own


def test_signatures_are_those_of_the_exporter():
    def signed(x: FLOAT, axis: int = 1) -> FLOAT:
        raise NotImplementedError

    def unsigned(x: ir.Value) -> ir.Value:
        raise NotImplementedError

    own = str(_schemas.op_signature_from_function(signed, "__traced", "signed"))
    with kept_tables():
        read = _schemas.op_signature_from_function
        assert str(read(signed, "__traced", "signed")) == own
        assert read(signed, "__traced", "signed") is read(signed, "__traced", "signed")
        assert read(signed, "__traced", "other") is not read(signed, "__traced", "signed")
        for _ in range(2):
            with pytest.raises(ValueError, match="is not a valid DataType"):
                read(unsigned, "__traced", "unsigned")


def test_torch_is_as_it_was_afterwards():
    before = (
        vars(ONNXRegistry)["from_torchlib"],
        utils._materialize_cpp_cia_ops,
        OperatorBase.py_impl,
        exported_program.autograd_not_implemented,
        exported_program._override_composite_implicit_decomp,
        _schemas.op_signature_from_function,
    )
    with pytest.raises(ValueError, match="a mistake"), kept_tables():
        raise ValueError("a mistake")
    assert before == (
        vars(ONNXRegistry)["from_torchlib"],
        utils._materialize_cpp_cia_ops,
        OperatorBase.py_impl,
        exported_program.autograd_not_implemented,
        exported_program._override_composite_implicit_decomp,
        _schemas.op_signature_from_function,
    )
