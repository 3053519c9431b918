"""What applications do wrong: each a sentence that says what came, and the cure."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from samba_models import batch, classifier, sgd
from torch import nn

import sambaflow.samba as samba
from pef import PefError
from sambac import CompileError
from sambaflow.samba import SambaError, utils


class Branch(nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            return x * 2
        return x


class Number(nn.Module):
    def forward(self, x):
        return x * x.max().item()


class Chosen(nn.Module):
    def forward(self, x):
        return x[x > 0]


class Array(nn.Module):
    def forward(self, x):
        return x * torch.from_numpy(x.numpy()).max()


class Missing(nn.Module):
    def forward(self, x):
        return torch.linalg.svd(x)[1]


@pytest.fixture(scope="module")
def pef(tmp_path_factory):
    model = classifier()
    config = {"output_folder": str(tmp_path_factory.mktemp("out"))}
    return samba.session.compile(model, batch(), sgd(model), name="c", config_dict=config)


@pytest.fixture(autouse=True)
def _anew():
    yield
    samba.session.reset()


@pytest.mark.parametrize(
    ("model", "line"),
    [(Branch(), "if x.sum"), (Number(), "x.max"), (Chosen(), "x > 0"), (Array(), "x.numpy")],
)
def test_what_depends_on_values_is_told_with_its_line(model, line, tmp_path):
    with pytest.raises(SambaError) as caught:
        samba.session.compile(
            model, samba.zeros(3, 4, name="x"), config_dict={"output_folder": tmp_path}
        )
    text = str(caught.value)
    assert "test_mistakes.py:" in text
    assert line in text
    assert "torch.where" in text


def test_shapes_that_do_not_fit_are_told_by_torch_alone(caplog, capfd):
    class Sum(nn.Module):
        def forward(self, x, y):
            return x + y

    inputs = (samba.zeros(2, 12, name="x"), samba.zeros(2, 14, name="y"))
    with pytest.raises(RuntimeError, match=r"tensor a \(12\) must match .* tensor b \(14\)"):
        samba.session.compile(Sum(), inputs)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
    assert "Traceback" not in capfd.readouterr().err


def test_what_cannot_be_compiled_is_named():
    x = samba.zeros(3, 4, name="x")
    with pytest.raises(CompileError, match=r"exported at test_mistakes.py:\d+: .*linalg_svd"):
        samba.session.compile(Missing(), x)
    model = samba.from_torch_model(nn.Linear(4, 3))
    with pytest.raises(SambaError, match=r"Adadelta cannot be compiled; use one of SGD, AdamW"):
        samba.session.compile(model, x, torch.optim.Adadelta(model.parameters()))
    with pytest.raises(SambaError, match="loss_indices has 3, and the model has 1 outputs"):
        samba.session.compile(model, x, sgd(model), loss_indices=[3])
    for option, word in (("optim_level", "O9"), ("mapping", "foo"), ("arch", "sn99")):
        with pytest.raises(CompileError, match=f"'{word}'.* choose"):
            samba.session.compile(model, x, config_dict={option: word})


def test_inputs_that_forward_does_not_take_are_told_beside_what_it_takes():
    model, (image, label) = classifier(), batch()
    for inputs, words in (
        ((image,), "missing a required argument: 'label'"),
        ((image, label, label), "too many positional arguments"),
        ({"image": image, "target": label}, "missing a required argument: 'label'"),
    ):
        with pytest.raises(TypeError, match=rf"Classifier\.forward\(image: .*\).*: {words}"):
            samba.session.compile(model, inputs)


def test_layers_without_shapes_are_told():
    model = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d())
    with pytest.raises(SambaError, match=r"0\.weight; .*1\.running_mean.* call it once with torch"):
        samba.from_torch_model_(model)
    model(torch.ones(2, 5))
    samba.from_torch_model_(model)
    assert model[0].weight.sn_name == "sequential__0__weight"


def test_what_is_no_optimizer_is_told():
    model = samba.from_torch_model(nn.Linear(4, 3))
    rates = torch.optim.lr_scheduler.StepLR(sgd(model), 1)
    with pytest.raises(SambaError, match="StepLR is no optimizer"):
        samba.session.compile(model, samba.zeros(3, 4, name="x"), rates)


def test_a_pef_of_other_optimizers_is_refused(pef):
    model = classifier()
    weight, *others = model.parameters()
    groups = samba.optim.SGD([{"params": [weight]}, {"params": others}], lr=0.1)
    for optimizer, given in (
        (samba.optim.AdamW(model.parameters()), "adamw"),
        (groups, r"sgd\.0, sgd\.1"),
    ):
        with pytest.raises(SambaError, match=f"optimizers are {given}, in the PEF they are sgd"):
            utils.trace_graph(model, batch(), optimizer, pef=pef)


def test_a_pef_of_other_formulas_is_refused(tmp_path):
    model = classifier()
    made = {
        "kind": samba.optim.SGD(model.parameters(), lr=0.1, argin_region_name="all"),
        "flag": samba.optim.SGD(model.parameters(), 0.1, 0.9, argin_region_name="all"),
    }
    other = {
        "kind": samba.optim.AdamW(model.parameters(), lr=0.1, argin_region_name="all"),
        "flag": samba.optim.SGD(
            model.parameters(), 0.1, 0.9, nesterov=True, argin_region_name="all"
        ),
    }
    told = {
        "kind": "the optimizer of 'all' is adamw, in the PEF it is sgd",
        "flag": "the optimizer of 'all' has nesterov=True, in the PEF it is False",
    }
    for case, optimizer in made.items():
        folder = {"output_folder": str(tmp_path / case)}
        pef = samba.session.compile(model, batch(), optimizer, config_dict=folder)
        with pytest.raises(SambaError, match=told[case]):
            utils.trace_graph(model, batch(), other[case], pef=pef)


def test_what_a_pef_of_an_optimizer_leaves_out_is_told(pef):
    model = classifier()
    optimizer = samba.optim.SGD(
        model.parameters(), lr=0.3, momentum=0.9, dampening=0.1, max_grad_norm=1.0
    )
    words = "compiled without the dampening of 'sgd', max_grad_norm, which"
    with pytest.warns(UserWarning, match=words):
        utils.trace_graph(model, batch(), optimizer, pef=pef)


def test_a_gradient_that_was_refused_is_forgotten(pef):
    model = classifier()
    loss, out = utils.trace_graph(model, batch(), sgd(model), pef=pef)
    with pytest.raises(SambaError, match=r"gradient of '.*' is \[3\], and the output \[\]"):
        samba.session.run(batch(), grad_of_outputs=[torch.ones(3), None])
    assert samba.session.run(batch(), [loss], hyperparam_dict={"p": 0.0})[0].isfinite()
    with pytest.raises(SambaError, match=r"does not start from .*dropout.* loss_indices"):
        out.sn_grad = torch.ones(5, 3)
    assert samba.session.run(batch(), None) == ()


def test_files_that_are_no_pef_are_told(pef, tmp_path):
    model, content = classifier(), Path(pef).read_bytes()
    damaged = bytearray(content)
    damaged[len(content) // 2] ^= 255
    for name, data, words in (
        ("text.pef", b"hello" * 100, "is not a PEF file"),
        ("half.pef", content[: len(content) // 2], "is truncated"),
        ("flip.pef", bytes(damaged), "is damaged"),
    ):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(PefError, match=words):
            utils.trace_graph(model, batch(), sgd(model), pef=str(tmp_path / name))
    with pytest.raises(PefError, match="No such file"):
        utils.trace_graph(model, batch(), sgd(model), pef=str(tmp_path / "none.pef"))
    with pytest.raises(SambaError, match="loss_indices has 9"):
        utils.trace_graph(model, batch(), sgd(model), loss_indices=[9], pef=pef)


def test_runs_that_do_not_fit_the_pef_are_told(pef):
    model = classifier()
    image, label = batch()
    outputs = utils.trace_graph(model, (image, label), sgd(model), pef=pef)
    wide = samba.from_torch_tensor(torch.zeros(4, 4), name="image")
    far = samba.from_torch_tensor(label.torch() + 7, name="label")
    for inputs, keywords, words in (
        ((wide, label), {}, r"'image' has shape \[4, 4\]; float32\[5, 4\] was expected"),
        ((image.double(), label), {}, r"'image' is float64\[5, 4\]; float32"),
        ((image.bfloat16(), label), {}, r"'image' is bfloat16\[5, 4\]; float32"),
        ((image, far), {}, r"index is out of range: 'label' holds 8 to 9"),
        ((image,), {}, r"'label' is missing: int64\[5\]"),
        ((image, label), {"section_types": ["FORWARD"]}, "no sections of type FORWARD; it has FWD"),
        ((image, label), {"section_ids": [77]}, "no section 77; sections go from 0 to"),
        ((image, label), {"run_until_call_id": 99}, "calls go from 0 to"),
        (
            (image, label),
            {"run_from_call_id": 2, "run_until_call_id": 1},
            "run_from_call_id is 2, not before run_until_call_id, 1",
        ),
        ((image, label), {"graph_name": "g"}, "graph_name='g'; leave that out"),
        ((image, label), {"hyperparam_dict": {"p": 3.0}}, "'p' is 3.0; a probability"),
    ):
        samba.session.reset()
        outputs = utils.trace_graph(model, (image, label), sgd(model), pef=pef)
        with pytest.raises(SambaError, match=words):
            samba.session.run(inputs, outputs, **keywords)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (
            lambda calls: {"run_from_call_id": calls},
            "run_from_call_id is {}; the calls go from 0 to",
        ),
        (lambda calls: {"run_from_call_id": calls + 5}, "run_from_call_id is "),
        (lambda calls: {"run_until_call_id": calls + 1}, "is the first that is not run"),
        (lambda _: {"run_until_call_id": 0}, "run_until_call_id is 0; the calls go from 0 to"),
        (lambda _: {"run_from_call_id": 1, "run_until_call_id": 1}, "nothing would run"),
    ],
)
def test_calls_that_run_nothing_or_are_not_there_are_refused(pef, asked, words):
    """The results of the run before would look like those of this one."""
    model = classifier()
    outputs = utils.trace_graph(model, batch(), sgd(model), pef=pef)
    samba.session.run(batch(), outputs)
    calls = len(samba.session.device.calls)
    with pytest.raises(SambaError, match=words.format(calls)):
        samba.session.run(batch(), outputs, **asked(calls))


def test_arguments_of_a_run_that_are_none_are_told(pef):
    model = classifier()
    image, label = batch()
    outputs = utils.trace_graph(model, (image, label), sgd(model), pef=pef)
    for arguments, keywords, words in (
        (("image", outputs), {}, "input_tensors has a str, expected tensors; make them with"),
        (((1.0, None), outputs), {}, "input_tensors has a float"),
        (((image.numpy(), label), outputs), {}, "input_tensors has a ndarray"),
        (({"image": image.numpy()}, outputs), {}, "input_tensors has a ndarray"),
        (
            ((image, label), ["loss"]),
            {},
            "output_tensors has a str; give what trace_graph returned",
        ),
        (((image, label), model), {}, "output_tensors has a Classifier"),
        (((image, label), torch.ones(3)), {}, "output_tensors has a Tensor"),
        (((image, label), outputs, ["lr"]), {}, "hyperparam_dict is a list; give a dict"),
        (((image, label),), {"section_types": ["fwd", 3]}, r"\['fwd', 3\]; give names"),
        (((image, label),), {"section_ids": ["0"]}, "section_ids has '0'; give whole numbers"),
        (
            ((image, label),),
            {"run_until_call_id": "2"},
            "run_until_call_id is '2'; expected",
        ),
        (((image, label),), {"run_until_call_id": -1}, "run_until_call_id is -1; calls go from 0"),
        (((image, label),), {"run_from_call_id": -2}, "run_from_call_id is -2; calls go from 0"),
        (((image, label),), {"grad_of_outputs": [1.0, None]}, r"is a float; give a tensor .*\[\]"),
        (((image, label),), {"grad_of_outputs": torch.ones(())}, "has 1 gradients, the model 2"),
    ):
        with pytest.raises(SambaError, match=words):
            samba.session.run(*arguments, **keywords)


def test_one_section_id_runs_that_section_alone(pef):
    model = classifier()
    outputs = utils.trace_graph(model, batch(), sgd(model), pef=pef)
    samba.session.run(batch(), outputs, section_ids=0)
    samba.session.to_cpu(model)
    assert torch.equal(model.layer.weight.data, classifier().layer.weight.data)


def named(tensor, name):
    return samba.from_torch_tensor(tensor, name=name)


def test_inputs_of_a_run_that_do_not_fit_are_told_in_the_words_of_torch(pef):
    image, label = (item.torch() for item in batch())
    for given, others, words in (
        (
            (image[:, :3], label),
            "image",
            r"mat1 and mat2 shapes cannot be multiplied \(5x3 and 4x3",
        ),
        ((image[:4], label), "image", r"input batch_size \(4\) to match target batch_size \(5\)"),
        ((image.double(), label), "image", r"mat1 and mat2 must have the same dtype, .* Double"),
        ((image, label.int()), "label", r"target dtype to be Long or Byte, but got Int"),
        ((image[:4], label[:4]), "image", r"Input 'label' .*drop_last=True.* compile again"),
    ):
        model = classifier()
        outputs = utils.trace_graph(model, batch(), sgd(model), pef=pef)
        inputs = [named(*pair) for pair in zip(given, ("image", "label"), strict=True)]
        with pytest.raises(SambaError, match=rf"(?s)Input '{others}' .* was expected.*{words}"):
            samba.session.run(inputs, outputs)
        assert model.norm.num_batches_tracked == 0


def test_a_smaller_last_batch_says_what_to_do(pef):
    model = classifier()
    outputs = utils.trace_graph(model, batch(), sgd(model), pef=pef)
    last = [named(item.torch()[:2], item.sn_name) for item in batch()]
    with pytest.raises(SambaError) as caught:
        samba.session.run(last, outputs)
    assert "PyTorch" not in str(caught.value)
    assert str(caught.value).splitlines()[:2] == [
        "Input 'image' has shape [2, 4]; float32[5, 4] was expected.",
        "Input 'label' has shape [2]; int64[5] was expected.",
    ]
    found = samba.session.run(batch(), outputs)  # the session goes on
    assert found[0].isfinite()


def test_values_of_another_shape_are_told_in_the_words_of_torch(pef):
    model = classifier()
    utils.trace_graph(model, batch(), sgd(model), pef=pef)
    weight, other = model.layer.weight, torch.zeros(3, 5)
    said = r"is float32\[3, 4\], it is given float32\[3, 5\]: .* \(4\) must match .* \(5\) at"
    with pytest.raises(SambaError, match=said):
        weight.sn_data = other
    with pytest.raises(SambaError, match=said):
        samba.session.update_tensor(weight.sn_name, other)
    assert weight.shape == (3, 4)
    with pytest.raises(SambaError, match=r"given float32\[4\]$"):  # which torch would broadcast
        weight.sn_grad = torch.zeros(4)
    with pytest.raises(RuntimeError, match=r"size mismatch for layer\.weight: copying a param"):
        model.load_state_dict({**model.state_dict(), "layer.weight": other})
    weight.data = other  # as torch, which lets parameters have other shapes
    for send in (weight.rdu, samba.session.to_device, lambda: samba.session.to_rdu(model)):
        with pytest.raises(SambaError, match=said):
            send()
