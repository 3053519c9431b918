"""Runs of a traced model: sections, inputs, gradients, hyperparameters, beside torch."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from near import assert_near, exactly
from samba_models import batch, classifier, sgd

import sambaflow.samba as samba
from sambaflow.samba import SambaError, utils


@pytest.fixture(scope="module")
def pef(tmp_path_factory):
    model = classifier(0.5)
    folder = str(tmp_path_factory.mktemp("out"))
    return samba.session.compile(
        *(model, batch(), sgd(model)),
        name="c",
        config_dict={"output_folder": folder},
        loss_indices=[0, 1],
    )


@pytest.fixture
def model():
    return classifier(0.5)


@pytest.fixture
def outputs(pef, model):
    yield utils.trace_graph(model, batch(), sgd(model), pef=pef)
    samba.session.reset()


def run(*args, **keywords):
    return samba.session.run(*args, **keywords)


def undropped(model):
    """Return a copy of `model` for torch, of float64 and without dropout."""
    host = exactly(model)
    host.dropout.p = 0.0
    return host


def called(host, seed=0):
    """Return what `host` makes of a batch: the loss and what it is of."""
    return host(*exactly([item.torch() for item in batch(seed)]))


def on_the_host(model, steps=1, lr=0.1):
    """Train a copy of `model` with torch; return the losses and the copy."""
    host = undropped(model)
    optimizer = torch.optim.SGD(host.parameters(), lr=lr, momentum=0.9)
    losses = []
    for seed in range(steps):
        loss, _ = called(host, seed)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, host


def test_outputs_bear_names_of_operators(outputs, model):
    assert [output.sn_name for output in outputs] == [
        "classifier__criterion__crossentropyloss__outputs__0",
        "classifier__dropout__dropout__outputs__0",
    ]
    assert model.output_tensors == outputs
    assert not outputs[0].has_data


def test_steps_give_the_losses_and_weights_of_torch(outputs, model):
    losses, host = on_the_host(model, steps=4)
    found = [run(batch(seed), outputs, {"p": 0.0})[0].item() for seed in range(4)]
    assert_near(found, np.array(losses), what="losses")
    samba.session.to_cpu(model)
    for mine, wanted in zip(model.parameters(), host.parameters(), strict=True):
        assert_near(mine.torch(), wanted)
    assert_near(samba.to_torch(model.norm.running_mean), host.norm.running_mean)


def test_results_are_in_the_order_of_what_is_asked_for(outputs):
    loss, out = outputs
    found = run(batch(), [out, loss])
    assert [tensor.sn_name for tensor in found] == [out.sn_name, loss.sn_name]
    assert found[0].shape == (5, 3)
    assert isinstance(run(batch(), loss), tuple)
    assert run(batch()) == ()


def test_sections_in_parts_do_what_the_schedule_does(outputs, model):
    _, host = on_the_host(model)
    run(batch(), outputs, {"p": 0.0}, section_types=["fwd"])
    run(section_types=["BCKWD", "Opt"])
    samba.session.to_cpu(model)
    assert_near(model.layer.weight.torch(), host.layer.weight)


TYPES = ("FWD", "BCKWD", "OPT")
ITERATORS = {"iter": iter, "generator": lambda found: (item for item in found), "map": None}


@pytest.mark.parametrize("kind", ITERATORS)
@pytest.mark.parametrize("what", ["section_types", "section_ids", "nested ids"])
def test_what_an_iterator_yields_is_run_whatever_another_has_yielded(kind, what, outputs, model):
    """Iterators that are gone leave their place in memory, and so their text, to others."""
    made = ITERATORS[kind] or (lambda found: map(type(found[0]), found))
    ask = {
        "section_types": lambda ids: {"section_types": made([TYPES[number] for number in ids])},
        "section_ids": lambda ids: {"section_ids": made(ids)},
        "nested ids": lambda ids: {"section_ids": [made(ids)]},
    }[what]
    run(batch(), outputs)
    for _ in range(3):
        before = model.layer.weight.sn_data
        run(**ask([0]))
        run(**ask([1]))
        assert torch.equal(model.layer.weight.sn_data, before)
        run(**ask([2]))
        assert not torch.equal(model.layer.weight.sn_data, before)


def test_section_ids_may_come_in_groups(outputs, model):
    _, host = on_the_host(model)
    run(batch(), outputs, {"p": 0.0}, section_ids=[[0, 1], 2])
    samba.session.to_cpu(model)
    assert_near(model.layer.weight.torch(), host.layer.weight)


def test_calls_until_one_and_from_it_are_the_schedule(outputs, model):
    _, host = on_the_host(model)
    run(batch(), outputs, {"p": 0.0}, run_until_call_id=1)
    run(run_from_call_id=1)
    samba.session.to_cpu(model)
    assert_near(model.layer.weight.torch(), host.layer.weight)


def test_the_call_that_a_run_goes_until_is_the_first_that_is_not_run(outputs, model):
    """What each call leaves behind is there if it is before that one, and only then."""
    device = samba.session.device
    kinds = [device.program.sections[n].type.name for n in device.program.schedule]
    kinds = [kinds[call] for call in device.calls]
    assert {"FWD", "BCKWD", "OPT"} <= {*kinds}
    weight = model.layer.weight
    for end in range(1, len(kinds) + 1):
        samba.session.to_rdu(model)
        weight.sn_grad = torch.full_like(weight, 7.0)
        run(batch(), hyperparam_dict={"p": 0.0}, run_until_call_id=end)
        assert (weight.sn_grad == 7).all() == ("BCKWD" not in kinds[:end])
        changed = not torch.equal(weight.sn_data, weight.data)
        assert changed == ("OPT" in kinds[:end])


def test_inputs_given_once_stay(outputs):
    first = run(batch(), outputs[1], {"p": 0.0}, section_types=["fwd"])[0].clone()
    torch.testing.assert_close(run(None, outputs[1], section_types=["fwd"])[0], first)


def test_inputs_of_a_part_of_the_schedule_may_be_overwritten(outputs, model):
    _, host = on_the_host(model)
    image, label = batch()
    run((image, label), outputs, {"p": 0.0}, section_types=["fwd"])
    image.data.zero_()
    run(section_types=["bckwd", "opt"])
    samba.session.to_cpu(model)
    assert_near(model.layer.weight.torch(), host.layer.weight)


def test_inputs_are_matched_by_name_and_not_by_place(outputs):
    image, label = batch()
    straight = run((image, label), outputs, {"p": 0.0}, section_types=["fwd"])
    for given in ((label, image), {"label": label, "image": image}, [None, [label], image]):
        found = run(given, outputs, section_types=["fwd"])
        torch.testing.assert_close(found[1].torch(), straight[1].torch())


def test_gradients_on_the_device_are_those_of_torch(outputs, model):
    host = undropped(model)
    called(host)[0].backward()
    run(batch(), outputs, {"p": 0.0}, section_types=["fwd", "bckwd"])
    assert_near(model.layer.weight.sn_grad, host.layer.weight.grad)


def test_a_backward_pass_from_gradients_of_the_host(outputs, model):
    host = undropped(model)
    start = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    called(host)[1].backward(start.double())
    run(batch(), outputs, {"p": 0.0}, section_types=["fwd"])
    zero = torch.zeros(())
    run(section_types=["bckwd"], grad_of_outputs=[zero, samba.from_torch_tensor(start)])
    assert_near(model.layer.weight.sn_grad, host.layer.weight.grad)
    run(section_types=["bckwd"], grad_of_outputs=[zero, None])
    assert not model.layer.weight.sn_grad.any()
    outputs[0].sn_grad, outputs[1].sn_grad = zero, 2 * start
    assert torch.equal(outputs[1].sn_grad, 2 * start)
    run(section_types=["bckwd"])
    assert_near(model.layer.weight.sn_grad, 2 * host.layer.weight.grad)


def test_hyperparameters_stay_and_unknown_ones_are_told_once(outputs, model):
    _, host = on_the_host(model, steps=2, lr=0.5)
    with pytest.warns(UserWarning, match="no hyperparameter max_norm; it is ignored"):
        run(batch(0), outputs, {"p": 0.0, "lr": 0.5, "max_norm": 1.0})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(batch(1), outputs, {"max_norm": 1.0})
    with pytest.warns(UserWarning, match=r"learning_rate \(did you mean 'lr'\?\); it is ignored"):
        run(None, outputs, {"learning_rate": 1.0}, section_types=["FWD"])
    samba.session.to_cpu(model)
    assert_near(model.layer.weight.torch(), host.layer.weight)


def test_without_train_dropout_is_off_and_comes_back(outputs):
    def zeros(**keywords):
        found = run(batch(), outputs[1], section_ids=[0], **keywords)[0]
        return int((found == 0).sum())

    assert zeros() > 0
    assert zeros(train=False) == 0
    assert zeros(train=False) == 0
    assert zeros() > 0
    assert zeros(hyperparam_dict={"p": 0.0}) == 0


def test_rates_given_without_train_count_when_it_trains_again(outputs, model):
    def found(**keywords):
        return run(batch(), outputs[1], section_ids=[0], **keywords)[0].torch().clone()

    full = found(train=False)
    assert torch.equal(found(train=False, hyperparam_dict={"p": 0.9}), full)
    assert int((found() == 0).sum()) > 0
    assert torch.equal(found(train=False, hyperparam_dict={"p": 0.0}), full)
    assert torch.equal(found(), full)
    (name,) = samba.session.get_dropout_rate_argin_names()
    found(train=False, hyperparam_dict={name: 1.0})
    assert not found().any()


@pytest.mark.parametrize("whole", [False, True])
def test_a_rate_given_to_the_run_after_an_evaluation_counts(outputs, whole):
    (name,) = samba.session.get_dropout_rate_argin_names()
    run(batch(), outputs, train=False)
    run(batch(), outputs, {name if whole else "p": 0.25})
    assert samba.session.device.argins()[name] == 0.25
    run(batch(), outputs, train=False)
    assert samba.session.device.argins()[name] == 0
    run(batch(), outputs)
    assert samba.session.device.argins()[name] == 0.25


def test_a_rate_that_is_none_is_refused_without_train_too(outputs):
    (name,) = samba.session.get_dropout_rate_argin_names()
    before = samba.session.device.argins()[name]
    run(batch(), outputs, train=False)
    with pytest.raises(samba.SambaError, match="a probability, 0 to 1, was expected"):
        run(batch(), outputs, {"p": 7.0}, train=False)
    run(batch(), outputs)
    assert samba.session.device.argins()[name] == before


def test_a_seed_reaches_the_masks_of_a_step(pef):
    """Equal seeds drop the same in equal steps, others do not; what was dropped has no gradient."""

    def step(seed):
        model = classifier(0.5)
        outputs = utils.trace_graph(model, batch(), sgd(model), pef=pef)
        (name,) = samba.session.get_dropout_seed_argin_names()
        found = run(batch(), outputs, {name: seed})[1].torch().clone()
        return found, model.layer.weight.sn_grad

    (first, gradient), (again, same), (other, another) = step(1), step(1), step(2)
    assert torch.equal(first, again)
    assert torch.equal(gradient, same)
    assert not torch.equal(first == 0, other == 0)
    assert not torch.equal(gradient, another)


def test_without_train_forward_sections_evaluate(outputs, model):
    for seed in range(3):
        run(batch(seed), outputs)
    found = run(batch(), outputs, section_types=["fwd"], train=False)[1]
    samba.session.to_cpu(model)
    wanted = model.eval()(*(item.torch() for item in batch()))[1]
    torch.testing.assert_close(found.torch(), wanted.detach().torch())


def test_a_training_pef_serves_inference(pef):
    model = classifier(0.5)
    outputs = utils.trace_graph(model, batch(), None, pef=pef)
    assert not any(parameter.requires_grad for parameter in model.parameters())
    before = model.layer.weight.sn_data
    found = run(batch(), outputs)[1]
    assert torch.equal(model.layer.weight.sn_data, before)
    wanted = model.eval()(*(item.torch() for item in batch()))[1]
    torch.testing.assert_close(found.torch(), wanted.torch())
    samba.session.reset()


def test_mistakes_are_sentences(outputs, pef):
    with pytest.raises(SambaError, match="section_types and section_ids are both given"):
        run(batch(), section_types=["fwd"], section_ids=[0])
    with pytest.raises(SambaError, match=r"no input 'picture'; the inputs are 'image', 'label'$"):
        run(samba.from_torch_tensor(torch.zeros(5, 4), name="picture"))
    with pytest.raises(SambaError, match="has no name"):
        run(torch.zeros(5, 4))
    with pytest.raises(SambaError, match="1 gradients, the model 2 outputs"):
        run(grad_of_outputs=[None])
    with pytest.raises(SambaError, match="has no tensor 'weigth'"):
        samba.session.get_tensors_by_name(["weigth"])
    samba.session.reset()
    with pytest.raises(SambaError, match=r"no PEF is loaded; call .*trace_graph"):
        run(batch())


def test_a_pef_of_another_shape_is_refused_with_all_that_differs(pef):
    model = classifier(0.5)
    model.layer = samba.from_torch_model(torch.nn.Linear(4, 2))
    model.norm = torch.nn.BatchNorm1d(2)
    inputs = [samba.from_torch_tensor(item[:3], name=item.sn_name) for item in batch()]
    with pytest.raises(SambaError) as caught:
        utils.trace_graph(model, inputs, None, pef=pef)
    text = str(caught.value)
    assert "input 'image' is float32[3, 4], in the PEF it is float32[5, 4]" in text
    assert "parameter 'classifier__layer__weight' is float32[2, 4], in the PEF it is" in text
    samba.session.reset()


def test_shapes_that_do_not_fit_are_told_in_the_words_of_torch(model):
    image, label = batch()
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        samba.session.compile(model, (image[:, :3], label), sgd(model))


def test_a_seed_repeats_its_masks_also_where_a_run_takes_parts(outputs):
    def losses(*given, **keywords):
        return [run(batch(), outputs, {"lr": 0.0, **item}, **keywords)[0].item() for item in given]

    seed = {"seed": 7}
    backward_first = {"section_types": ["OPT", "FWD", "BCKWD"]}
    wanted = losses(seed, {}, {})
    assert len(set(wanted)) == 3
    run(batch(), outputs, {"lr": 0.0})
    assert losses(seed, {}, seed, {}, {}, **backward_first) == [*wanted[:2], *wanted]
    assert losses(seed, seed) == wanted[:1] * 2


def test_a_rate_of_dropout_that_was_compiled_away_is_told(tmp_path):
    model = classifier(0.0)
    pef = samba.session.compile(
        *(model, batch(), sgd(model)), config_dict={"output_folder": str(tmp_path)}, name="zero"
    )
    outputs = utils.trace_graph(model, batch(), sgd(model), pef=pef)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(batch(), outputs, {"p": 0.0})
    with pytest.warns(UserWarning, match="no hyperparameter p; .* rate 0 is left out"):
        run(batch(), outputs, {"p": 0.9})
    samba.session.reset()


def test_a_rate_that_only_some_dropouts_can_take_is_told_once(tmp_path):
    def made():
        torch.manual_seed(0)
        first = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.0))
        layers = torch.nn.Sequential(first, torch.nn.Dropout(0.5), torch.nn.Linear(4, 2))
        return samba.from_torch_model(layers)

    model, image = made(), batch()[:1]
    config = {"output_folder": str(tmp_path)}
    pef = samba.session.compile(model, image, sgd(model), name="some", config_dict=config)
    outputs = utils.trace_graph(model, image, sgd(model), pef=pef)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(image, outputs, {"1.p": 0.5})
        run(image, outputs, {"p": 0.0})
    with pytest.warns(UserWarning, match=r"hyperparameter p does not set 0.1.p: dropout of rate 0"):
        run(image, outputs, {"p": 0.9})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(image, outputs, {"p": 0.8})
    samba.session.reset()
