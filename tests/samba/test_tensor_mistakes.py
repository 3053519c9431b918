"""What applications do wrong with tensors, with a PEF and without: each a sentence."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from samba_models import batch, classifier, sgd

import sambaflow.samba as samba
from sambaflow.samba import SambaError, SambaTensor, utils

_WEIGHT = "classifier__layer__weight"


@pytest.fixture(scope="module")
def pef(tmp_path_factory):
    model = classifier()
    config = {"output_folder": str(tmp_path_factory.mktemp("out"))}
    return samba.session.compile(model, batch(), sgd(model), name="c", config_dict=config)


@pytest.fixture
def traced(pef):
    """A model on the device, and its outputs."""
    model = classifier()
    return model, utils.trace_graph(model, batch(), sgd(model), pef=pef)


@pytest.mark.parametrize(
    ("value", "kind", "words"),
    [
        ([1.0], TypeError, "is given a list, expected a tensor"),
        (np.ones((3, 4)), TypeError, "is given a ndarray, expected a tensor"),
        (torch.ones(5), SambaError, r"is float32\[3, 4\], it is given float32\[5\]"),
        (torch.ones(3, 1), SambaError, r"it is given float32\[3, 1\]"),
        (torch.ones(3, 4) * 1j, SambaError, r"it is given complex64\[3, 4\]"),
        (torch.empty(3, 4, device="meta"), SambaError, "a tensor without values"),
        (SambaTensor(shape=(3, 4), name="w"), SambaError, "w has no data, and no materializer"),
    ],
)
def test_values_that_the_device_cannot_take(value, kind, words, traced) -> None:
    weight = traced[0].layer.weight
    samba.session.run(batch(), traced[1])
    for name in ("sn_data", "sn_grad"):
        with pytest.raises(kind, match=words) as caught:
            setattr(weight, name, value)
        assert _WEIGHT in str(caught.value) or "'" not in str(caught.value)
    assert not torch.equal(weight.sn_data, torch.ones(3, 4))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.int64, torch.bool])
def test_values_of_other_types_are_converted(dtype, traced) -> None:
    weight = traced[0].layer.weight
    weight.sn_data = torch.ones(3, 4, dtype=dtype)
    assert torch.equal(weight.sn_data, torch.ones(3, 4))


def test_whole_numbers_stay_whole(traced) -> None:
    """A count of steps comes as a float from torch's optimizers; a part of one cannot be kept."""
    count = SambaTensor(torch.tensor(2.0), name="classifier__norm__num_batches_tracked")
    count.rdu()
    assert count.sn_data.dtype is torch.int64
    assert count.sn_data == 2
    with pytest.raises(SambaError, match=r"is int64\[\], it is given float32\[\]"):
        count.sn_data = torch.tensor(2.5)


def test_gradients_that_there_are_none_of(traced) -> None:
    model, outputs = traced
    with pytest.raises(SambaError, match=rf"'{_WEIGHT}__grad' has no value now: run what"):
        _ = model.layer.weight.sn_grad
    image, label = batch()
    samba.session.run((image, label), outputs)
    assert model.layer.weight.sn_grad.shape == (3, 4)
    with pytest.raises(SambaError, match="the PEF has no gradient of 'image': it was compiled for"):
        _ = image.sn_grad
    image.requires_grad_()
    image.grad = torch.ones(5, 4)
    with pytest.raises(SambaError, match="or without requires_grad of 'image', or no loss"):
        image.rdu()
    with pytest.raises(SambaError, match=r"no tensor 'weight__grad'"):
        _ = samba.ones(1, name="weight").sn_grad


def test_inputs_without_data_are_materialised_when_they_are_read(traced) -> None:
    image, label = batch()
    expected = samba.session.run((image, label), traced[1], section_types="fwd", train=False)
    lazy = SambaTensor(
        shape=(5, 4), dtype=torch.float32, name="image", materializer=lambda _: image.torch()
    )
    found = samba.session.run((lazy, label), traced[1], section_types="fwd", train=False)
    assert torch.equal(found[1], expected[1])
    assert not lazy.has_data
    lazy.materializer = None
    with pytest.raises(SambaError, match="image has no data, and no materializer"):
        samba.session.run((lazy, label), traced[1])


def test_two_inputs_of_one_name(traced) -> None:
    image, label = batch()
    with pytest.raises(SambaError, match="two inputs are called 'image'; give each a name"):
        samba.session.run((image, label, samba.ones(5, 4, name="image")), traced[1])
    samba.session.run((image, label, image), traced[1])  # but one may be named twice


def test_tensors_outlive_the_session(traced) -> None:
    model, outputs = traced
    found = samba.session.run(batch(), outputs)
    samba.session.reset()
    assert found[0].item() > 0
    assert outputs[0].shape == ()
    for use in (model.layer.weight.rdu, model.layer.weight.cpu, lambda: model.layer.bias.sn_data):
        with pytest.raises(SambaError, match=r"no PEF is loaded; call samba\.utils"):
            use()


@pytest.mark.parametrize(
    ("call", "kind", "words"),
    [
        (lambda: SambaTensor(torch.ones(2), name=3), TypeError, "name is 3, expected a string"),
        (lambda: samba.ones(2, region_name=b"r"), TypeError, "region_name is b'r', expected"),
        (lambda: setattr(samba.ones(2), "data", 3), TypeError, "data is a tensor, not 3"),
        (lambda: setattr(samba.ones(2), "mem_type", 3), ValueError, "mem_type is 3, expected 'DDR"),
        (lambda: samba.to_torch([1.0]), TypeError, "a tensor or None, got a list"),
        (lambda: samba.ones(2).new_ones((2,), None, True, 1), TypeError, "positional arguments"),
        (lambda: samba.ones(2).new_full(3, 1.0), TypeError, "size is 3; expected a list"),
        (lambda: SambaTensor(shape=(2,), materializer=3), TypeError, "materializer is 3; expected"),
    ],
)
def test_arguments_of_the_wrong_kind(call: Callable[[], object], kind: type, words: str) -> None:
    with pytest.raises(kind, match=words):
        call()


@pytest.mark.parametrize(
    ("materializer", "words"),
    [
        (lambda a, b, c: torch.ones(2), r"of w takes \(a, b, c\); it is a function of"),
        (lambda: torch.ones(2), r"of w takes \(\); it is"),
        (lambda tensor: None, "of w made a NoneType, expected a tensor"),
        (lambda tensor: [1, 2], "of w made a list, expected a tensor"),
        (lambda tensor: torch.ones(2, device="meta"), "made a tensor without values"),
        (lambda tensor: torch.ones(2) * 1j, r"of torch.complex64, which torch.float32 cannot"),
        (lambda tensor: torch.ones(3), r"of shape \(3,\), expected \(2,\)"),
    ],
)
def test_materializers_that_make_no_values(materializer, words: str) -> None:
    tensor = SambaTensor(shape=(2,), dtype=torch.float32, name="w", materializer=materializer)
    for use in (tensor.materialize_, tensor.torch_tensor):
        with pytest.raises(SambaError, match=words):
            use()
    assert not tensor.has_data


def test_mistakes_inside_a_materializer_are_its_own() -> None:
    def broken(tensor, generator):
        raise TypeError("of my own")

    tensor = SambaTensor(shape=(2,), dtype=torch.float32, name="w", materializer=broken)
    with pytest.raises(TypeError, match="of my own"):
        tensor.materialize_()
