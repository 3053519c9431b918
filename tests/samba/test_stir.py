"""Patterns of parallel loops: on the host, traced and compiled."""

from __future__ import annotations

import pytest
import torch

import sambaflow.samba as samba
from sambaflow.samba import utils
from sambaflow.samba.functional.stir import (
    sn_fma,
    sn_imm,
    sn_iteridx,
    sn_reduce,
    sn_select,
    sn_zipmapreduce,
)
from sambaflow.samba.utils import SNType

_X = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(0))


def causal(loop, x):
    row = sn_iteridx(dim=2, attrs=loop, dtype=SNType.UINT16)
    column = sn_iteridx(loop, -1, torch.int32)
    return sn_select(torch.ge(row, column), x, sn_imm(-1e9, torch.float32))


class Scores(torch.nn.Module):
    """Causal scores of articles: both masks are made of patterns."""

    def forward(self, x, mask, turned):
        same = sn_zipmapreduce(
            lambda _, a, b: sn_select(a == b, sn_imm(1.0, SNType.FP32), sn_imm(0.0, SNType.FP32)),
            [mask, turned],
        )
        return sn_zipmapreduce(causal, [x]) * same


def test_a_function_is_mapped_over_elements_that_broadcast():
    found = sn_zipmapreduce(lambda _, a, b, c: sn_fma(a, b, c), [_X, _X[:1], _X[..., :1]])
    torch.testing.assert_close(found, _X * _X[:1] + _X[..., :1])
    expected = torch.where(torch.ones(4, 4).tril().bool(), _X, torch.tensor(-1e9))
    assert torch.equal(sn_zipmapreduce(causal, [_X]), expected)


def test_indices_have_the_loops_rank_and_the_type_that_is_asked_for():
    seen = []

    def index(loop, x):
        seen.append(sn_iteridx(loop, 1))
        return x * seen[0]

    assert torch.equal(sn_zipmapreduce(index, [torch.ones(2, 3)]), torch.tensor([[0.0, 1, 2]] * 2))
    assert (seen[0].dtype, tuple(seen[0].shape)) == (torch.int32, (1, 3))
    with pytest.raises(IndexError, match="dimension 2 of a loop of 2 dimensions"):
        sn_zipmapreduce(lambda loop, x: sn_iteridx(loop, 2), [torch.ones(2, 3)])


@pytest.mark.parametrize(
    ("word", "reduced"),
    [
        ("SUM", lambda x, dims: x.sum(dims, keepdim=True)),
        ("min", lambda x, dims: x.amin(dims, keepdim=True)),
        ("Max", lambda x, dims: x.amax(dims, keepdim=True)),
        ("MEAN", lambda x, dims: x.mean(dims, keepdim=True)),
    ],
)
def test_what_is_mapped_can_be_reduced(word, reduced):
    found = sn_zipmapreduce(lambda _, x: 2 * x, [_X], word, [1, 3])
    torch.testing.assert_close(found, reduced(2 * _X, [1, 3]))
    assert sn_zipmapreduce(lambda _, x: x, [_X], word).shape == (1, 1, 1, 1)
    torch.testing.assert_close(sn_reduce(_X, 1, word), reduced(_X, [1]))


def test_mistakes_are_sentences():
    with pytest.raises(ValueError, match="there is no reduction 'PROD'; choose SUM, MIN"):
        sn_reduce(_X, 0, "PROD")
    with pytest.raises(ValueError, match="at least one input"):
        sn_zipmapreduce(lambda _: _X, [])


def test_an_immediate_is_an_element_of_its_type():
    for kind, dtype in ((SNType.FP32, torch.float32), (torch.int64, torch.int64)):
        found = sn_imm(3, kind)
        assert (found.dtype, found.shape, found.item()) == (dtype, (), 3)


def test_types_without_arithmetic_are_computed_in_wider_ones():
    assert SNType.to_torch_reference_type(SNType.UINT16) is torch.int32
    assert SNType.to_torch_reference_type(SNType.BF16) is torch.bfloat16


def test_patterns_are_compiled(tmp_path):
    ids = torch.tensor([[1.0, 1, 2, 2]]).expand(2, 4)
    x = samba.from_torch_tensor(_X, name="x")
    mask = samba.from_torch_tensor(ids[:, None, None].contiguous(), name="mask")
    turned = samba.from_torch_tensor(ids[:, None, :, None].contiguous(), name="turned")
    inputs, config = (x, mask, turned), {"output_folder": str(tmp_path)}
    path = samba.session.compile(Scores(), inputs, config_dict=config, inference=True)
    outputs = utils.trace_graph(Scores(), inputs, pef=path)
    found = samba.session.run(inputs, outputs)[0]
    samba.session.reset()
    torch.testing.assert_close(found.torch(), Scores()(*(item.torch() for item in inputs)))
    assert found[0, 0, 1, 2] == 0.0  # of another article
    assert found[0, 0, 2, 3] == -1e9


def test_directives_are_kept_for_their_block():
    with samba.session._add_directives({"opfusion_id": "matmul"}):
        assert samba.session._context_directives == {"opfusion_id": "matmul"}
        with samba.session._add_directives(None):
            assert "opfusion_id" in samba.session._context_directives
    assert samba.session._context_directives == {}
    assert samba.session.dynamic_dims == {}
    before = dict(samba.session.traced_tensors)
    samba.session.add_aux_tensor(torch.ones(2), "aux_cos")
    assert samba.session.traced_tensors == before
