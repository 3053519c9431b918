"""Values that could be passed over without a word: each is refused, or has its effect."""

from __future__ import annotations

import copy
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from samba_models import batch, classifier, sgd
from torch import nn

import sambaflow.samba as samba
from pef.program import Argin
from sambaflow.samba import SambaError, utils
from sambaflow.samba.argconf.args import CompileArgs, RunArgs
from sambaflow.samba.arguments.options import MisspeltOptionWarning, require_known
from sambaflow.samba.compile.graph_names import compiled_graph
from sambaflow.samba.graph import FwdGraph
from sambaflow.samba.run.hyperparameters import Hyperparameters

SESSION = samba.session


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(tmp_path_factory.mktemp("out"))


@pytest.fixture(scope="module")
def pef(folder):
    model = classifier()
    return SESSION.compile(model, batch(), sgd(model), config_dict={"output_folder": folder})


@pytest.fixture
def traced(pef):
    model = classifier()
    utils.trace_graph(model, batch(), sgd(model), pef=pef)
    return model


@pytest.mark.parametrize("data_parallel", [False, True])
def test_a_mode_of_reduction_is_checked_in_any_run(traced, data_parallel):
    with pytest.raises(
        SambaError, match=r"no data_parallel_mode 'inorde' \(did you mean 'inorder'"
    ):
        SESSION.run(batch(), data_parallel=data_parallel, data_parallel_mode="inorde")


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([7], "loss_indices has 7, and the model has 2 outputs"),
        ([-1], "loss_indices has -1"),
        (7, "loss_indices has 7"),
        (["a"], r"loss_indices is \['a'\]; give numbers"),
        ([True], r"loss_indices is \[True\]; give numbers"),
        ([0.0], r"loss_indices is \[0.0\]; give numbers"),
    ],
)
def test_losses_are_outputs_of_the_model(given, words, folder, pef):
    model = classifier()
    config = {"output_folder": folder}
    for optimizer in (None, sgd(model)):
        with pytest.raises(SambaError, match=words):
            SESSION.compile(model, batch(), optimizer, config_dict=config, loss_indices=given)
        for path in ("", pef):
            for wanted in (True, False):
                with pytest.raises(SambaError, match=words):
                    utils.trace_graph(
                        classifier(), batch(), optimizer, wanted, pef=path, loss_indices=given
                    )


def test_a_loss_that_the_pef_does_not_start_from_is_refused(pef):
    model = classifier()
    with pytest.raises(SambaError, match=r"does not start from .*; compile it with loss_indices"):
        utils.trace_graph(model, batch(), sgd(model), pef=pef, loss_indices=[1])


def test_what_is_no_number_is_none_after_the_number_was_run(traced):
    """What a run asks for is looked up by what was asked before."""
    SESSION.run(batch(), section_ids=[0])
    for wrong in ([False], "[0]", [[False]], [0.0]):
        with pytest.raises(SambaError, match=r"section_ids has .*; give whole numbers"):
            SESSION.run(batch(), section_ids=wrong)
    SESSION.run(batch(), section_types=["FWD"])
    with pytest.raises(SambaError, match="no sections of type"):
        SESSION.run(batch(), section_types="['FWD']")
    SESSION.run(batch(), run_until_call_id=1)
    for name in ("run_from_call_id", "run_until_call_id"):
        with pytest.raises(SambaError, match=f"{name} is True; expected a whole number"):
            SESSION.run(batch(), **{name: True})


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("inference", "no"),
        ("data_parallel", "False"),
        ("gradient_accumulation", 1),
        ("grad_accumulation_steps", "4"),
        ("gradient_accumulation_steps", True),
        ("gradient_accumulation_steps", 2.0),
        ("grad_accumulation_steps", 0),
        ("grad_accumulation_steps", -2),
    ],
)
def test_options_are_flags_and_numbers(option, value, folder):
    config = {"output_folder": folder, option: value}
    with pytest.raises(SambaError, match=f"{option} is {value!r}; expected"):
        SESSION.compile(classifier(), batch(), config_dict=config)
    with pytest.raises(SambaError, match=f"{option} is {value!r}; expected"):
        SESSION.setup(config)
    assert not SESSION.options


def test_a_mapping_is_that_of_the_pef(folder, pef):
    model, config = classifier(), {"output_folder": folder, "mapping": "spatial"}
    found = SESSION.compile(model, batch(), sgd(model), name="spatial", config_dict=config)
    for path, own, other in ((pef, "section", "spatial"), (found, "spatial", "section")):
        with pytest.raises(SambaError, match=f"mapping is '{other}', the PEF .*'{own}'"):
            utils.trace_graph(classifier(), batch(), pef=path, mapping=other)
        for fitting in (own, None, ""):
            utils.trace_graph(classifier(), batch(), pef=path, mapping=fitting)


def test_a_mapping_of_a_graph_is_that_of_the_pef(folder):
    x, model = samba.ones(2, 4, name="x"), samba.from_torch_model(nn.Linear(4, 3))
    outputs = utils.trace_multigraph(model, x, mapping="spatial")
    SESSION.add_graph(FwdGraph(x, outputs, name="g"))
    path = SESSION.compile_multigraph(config_dict={"output_folder": folder})
    with pytest.raises(SambaError, match=r"mapping is 'spatial', the PEF .*'section'"):
        SESSION.init_multigraph_runtime(path)


def test_dampening_without_momentum_has_no_effect(folder):
    """As in torch, which takes it."""
    model, inputs = classifier(rate=0.0), batch()
    plain = copy.deepcopy(model)
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1, momentum=0, dampening=0.3)
    config = {"output_folder": folder}
    path = SESSION.compile(model, inputs, optimizer, name="damped", config_dict=config)
    utils.trace_graph(model, inputs, optimizer, pef=path)
    reference = torch.optim.SGD(plain.parameters(), lr=0.1, momentum=0, dampening=0.3)
    for _ in range(3):
        SESSION.run(inputs)
        reference.zero_grad()
        plain(*(samba.to_torch(item) for item in inputs))[0].backward()
        reference.step()
    SESSION.to_cpu(model)
    for found, expected in zip(model.parameters(), plain.parameters(), strict=True):
        utils.assert_close(found, expected, threshold=1e-5)


def test_a_graph_goes_from_tensors_to_tensors():
    for ends in ((3, samba.ones(2)), (samba.ones(2), ["y"])):
        with pytest.raises(SambaError, match="a graph goes from tensors to tensors, and was given"):
            FwdGraph(*ends, name="g")


def test_names_of_tensors_are_texts(folder):
    x = samba.ones(2, 4)
    x.sn_name = 3
    with pytest.raises(SambaError, match="sn_name is 3; expected a name"):
        SESSION.compile(nn.Linear(4, 3), x, config_dict={"output_folder": folder})


@pytest.mark.parametrize("given", [{"OPT", "FWD"}, frozenset(["FWD"]), {0, 1}])
def test_sections_are_given_in_an_order(traced, given):
    name = "section_ids" if 0 in given else "section_types"
    with pytest.raises(SambaError, match=f"{name} is a .*set, which has no order"):
        SESSION.run(batch(), traced.output_tensors, **{name: given})


def test_only_the_traced_model_is_copied(traced):
    class Classifier(nn.Module):
        def __init__(self, size):
            super().__init__()
            self.layer = nn.Linear(size, 2)

    class Wrapper(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = traced

    for other in (traced.layer, Wrapper()):
        for copy_ in (SESSION.to_cpu, SESSION.to_cpu_, SESSION.to_rdu):
            with pytest.raises(SambaError, match=r"has no parameter of this .*classifier__layer"):
                copy_(other)
    for copy_ in (SESSION.to_cpu, SESSION.to_cpu_, SESSION.to_rdu):
        wide = Classifier(9)
        with pytest.raises(SambaError, match=r"classifier__layer__weight' is float32\[3, 4\]"):
            copy_(wide)
        assert wide.layer.weight.shape == (2, 9)
    with pytest.raises(SambaError, match="no parameter of the optimizers belongs to this"):
        SESSION.to_cpu(traced, sgd(Classifier(4)))
    SESSION.to_cpu(traced, [sgd(Classifier(4)), sgd(traced)])


def test_nothing_runs_on_a_pef_that_did_not_fit(traced, pef):
    outputs = traced.output_tensors
    other = samba.from_torch_model(nn.Linear(4, 2))
    with pytest.raises(SambaError, match="was not compiled from this model"):
        utils.trace_graph(other, batch()[:1], sgd(other))
    SESSION.run(batch(), outputs)  # as nothing else was loaded
    with pytest.raises(SambaError, match="was not compiled from this model"):
        utils.trace_graph(other, batch()[:1], sgd(other), pef=pef)
    # Its parameters would be those of the compilation.
    with pytest.raises(SambaError, match="no PEF is loaded"):
        SESSION.run(batch(), outputs)


def test_parameters_that_want_no_gradients_are_told(traced, pef):
    utils.trace_graph(traced, batch(), None, pef=pef)
    with pytest.raises(SambaError, match=r"are none, .* requires a gradient, .*requires_grad_\(\)"):
        utils.trace_graph(traced, batch(), sgd(traced), pef=pef)
    traced.requires_grad_()
    utils.trace_graph(traced, batch(), sgd(traced), pef=pef)


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"maping": "section"}, r"no option 'maping' \(did you mean 'mapping'"),
        ({"mapping": "whole"}, "there is no mapping 'whole'"),
        ({"mapping": "spatial"}, "the mapping is 'spatial', the PEF was compiled with 'section'"),
    ],
)
def test_options_of_a_call_that_traces_count_beside_a_pef(config, words, pef):
    model = classifier()
    with pytest.raises(SambaError, match=words):
        utils.trace_graph(model, batch(), sgd(model), pef=pef, config_dict=config)


@pytest.mark.parametrize("seed", [2**64, -(2**63) - 1])
def test_a_seed_that_torch_does_not_take_is_refused(seed):
    with pytest.raises(SambaError, match=r"seed is .*; expected a whole number from -2\*\*63 to"):
        utils.set_seed(seed)


def test_options_that_are_misspelt_are_told():
    model = classifier()
    says = r"no option 'infrence' \(did you mean 'inference'\?\), 'zz'; give options of the comm"
    with pytest.raises(SambaError, match=says):
        SESSION.compile(model, batch(), sgd(model), config_dict={"infrence": True, "zz": 1})
    for name, meant in {
        "accumulation_steps": "grad_accumulation_steps",
        "maping": "mapping",
        "dataparallel": "data_parallel",
        "pef-name": "pef_name",
        "arhc": "arch",
    }.items():
        with pytest.warns(MisspeltOptionWarning, match=f"'{name}' .did you mean '{meant}'"):
            SESSION.setup({name: 1})
    own = {"gradient_checkpointing": True, "input_folder": "x", "model_name": "m", "peft": 1}
    own |= {"hidden_size": 4, "num_epochs": 3, "lr": 0.1, "optim_level": "o0", "batch_size": 3}
    everything = {**vars(utils.argparser.parse_app_args(["compile"])), **own, "level": 3}
    with warnings.catch_warnings():
        warnings.simplefilter("error", MisspeltOptionWarning)
        for given in (own, everything):
            SESSION.setup(given)


@pytest.mark.parametrize("rate", [0.0, 0.25, 0.3])
def test_rates_of_dropout_that_a_program_has_otherwise_are_told(rate) -> None:
    """As a compiled program keeps the rate: in float32."""
    compiled = float(np.float32(0.3))
    numbers = Hyperparameters(SimpleNamespace(argins=[Argin("drop.p", 0, compiled, "drop", "p")]))
    parts = {"drop": nn.Dropout(rate), "out": nn.Dropout(0.0), "other": nn.Dropout2d(0.5)}
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        numbers.look_at_rates([nn.ModuleDict(parts)], "net.pef")
    said = [str(warning.message) for warning in told]
    if rate == 0.3:
        assert not said
    else:
        (line,) = said
        assert f"drop.p is {rate:g} in the model, 0.3 in it" in line
        assert f"hyperparam_dict={{'drop.p': {rate}}}" in line
    assert numbers.left_out == ("out.p",)


@pytest.mark.parametrize("copy_buffers", ["sync_buffers_to_rdu", "sync_buffers_to_cpu"])
def test_buffers_of_another_model_are_refused(copy_buffers, pef):
    model = classifier()
    utils.trace_graph(model, batch(), sgd(model), pef=pef)
    getattr(SESSION, copy_buffers)(model)
    for other in (nn.BatchNorm1d(3), next(model.children())):
        with pytest.raises(SambaError, match=r"has no parameter of this .*; give the model"):
            getattr(SESSION, copy_buffers)(other)


@pytest.mark.parametrize("name", ["p", "momentum", "lr"])
def test_several_numbers_are_no_hyperparameter(name) -> None:
    program = SimpleNamespace(
        argins=[Argin(f"a.{n}", at, 0.1, "a", n) for at, n in enumerate(("p", "lr"))]
    )
    numbers = Hyperparameters(program)
    numbers.left_out = ("b.p",)
    for several in (np.array([0.1, 0.2]), torch.tensor([0.1, 0.2])):
        if name == "momentum":  # which the program has not
            with pytest.warns(UserWarning, match="no hyperparameter momentum"):
                Hyperparameters(program).settings({name: several}, train=True)
            continue
        with pytest.raises(SambaError, match=f"'{name}' is an? .*; a number was expected"):
            numbers.settings({name: several}, train=True)


def test_a_graph_that_a_pef_lists_and_has_not_is_told() -> None:
    with pytest.raises(SambaError, match="has no graph of the model 'fit', which it lists"):
        compiled_graph(SimpleNamespace(graphs=()), "fit")


def test_options_of_one_call_are_known_and_those_of_an_application_its_own(folder) -> None:
    model, config = classifier(), {"output_folder": folder, "compiler_mode": "x", "verbose": True}
    assert SESSION.compile(model, batch(), sgd(model), name="known", config_dict=config)
    args = {**vars(utils.argparser.parse_app_args(["compile"])), "zz": 1, "output_folder": folder}
    assert SESSION.compile(model, batch(), sgd(model), name="own", config_dict=args)
    with pytest.raises(SambaError, match="'zz'"):
        utils.trace_graph(model, batch(), sgd(model), config_dict={"zz": 1})


def test_options_of_models_of_other_versions_are_known() -> None:
    require_known(dict.fromkeys({*CompileArgs.model_fields} - {"log_level"}))
    require_known(dict.fromkeys({*RunArgs.model_fields} - {"log_level"}))


SPELLED = {
    "o3": "'optim_level': 'o3'",
    "-o1": "'optim_level': 'o1'",
    "b": "'batch_size'",
    "pef-name": "'pef_name'",
}


@pytest.mark.parametrize(("name", "meant"), SPELLED.items())
def test_spellings_of_the_command_line_are_answered_with_the_option(name, meant) -> None:
    with pytest.raises(SambaError, match=rf"no option '{name}' \(did you mean {meant}\?\)"):
        require_known({name: True})
    if name != "b":  # as likely an application's own, where all of its options are given
        with pytest.warns(MisspeltOptionWarning, match=f"'{name}' .did you mean {meant}"):
            SESSION.setup({name: True})
