"""Keywords: those that other versions of SambaFlow know do what the page says, all others raise."""

from __future__ import annotations

import ast
import inspect
import re
import warnings
from argparse import Namespace
from pathlib import Path

import pytest
import torch
from samba_models import batch, classifier, sgd
from torch import nn

import sambaflow
import sambaflow.samba as samba
from sambaflow.samba import SambaError, utils
from sambaflow.samba.arguments.keywords import KEYWORDS, UnusedKeywordWarning
from sambaflow.samba.utils.common import common_app_driver

SOURCE = Path(sambaflow.__file__).parent
PAGE = Path(__file__).parents[2] / "docs" / "samba" / "api.md"
TAKEN = [(name, word) for name, table in KEYWORDS.items() for word in table]


def called(name):
    """Return what is called `name` below samba; methods are those of the session."""
    found = samba.session if name.startswith("SambaSession.") else samba
    for part in name.removeprefix("SambaSession.").split("."):
        found = getattr(found, part)
    return found


PARAMETERS = [
    (name, word) for name in KEYWORDS for word in inspect.signature(called(name)).parameters
]


@pytest.mark.parametrize(("name", "word"), PARAMETERS)
def test_a_keyword_misspelt_is_refused_beside_the_one_meant(name, word):
    function, wrong = called(name), f"{word}_"
    with pytest.raises(TypeError, match=rf"takes no keyword '{wrong}' \(did you mean '{word}'\?\)"):
        function(**{wrong: None})


def test_all_unknown_keywords_are_told_at_once():
    with pytest.raises(TypeError, match=r"run\(\) takes no keyword 'section_type' \(did you mean "):
        samba.session.run(section_type=["fwd"], hyperparams={"lr": 0.1})
    with pytest.raises(TypeError, match=r", 'hyperparams' \(did you mean 'hyperparam_dict'\?\)$"):
        samba.session.run(section_type=["fwd"], hyperparams={"lr": 0.1})


def test_options_of_the_command_line_are_sent_to_the_dict_of_options():
    for given, told in (
        ({"o3": True}, r"'o3'; config_dict takes 'optim_level': 'o3'$"),
        ({"batch_size": 2, "zz": 1}, r"'zz'; config_dict takes 'batch_size'$"),
        ({"optim_level": "o3"}, r"config_dict takes 'optim_level'$"),
    ):
        with pytest.raises(TypeError, match=told):
            samba.session.compile(nn.Linear(1, 1), (), **given)
    with pytest.raises(TypeError, match=r"'batch_size'$"):
        samba.session.run(batch_size=2)


def test_no_function_takes_keywords_that_it_does_not_read():
    """A `**further` that nothing looks at would swallow what was misspelt."""
    seen = 0
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.args.kwarg is not None:
                if all(isinstance(part, ast.Expr | ast.Raise) for part in node.body):
                    continue
                seen += 1
                name = node.args.kwarg.arg
                read = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
                assert name in read, f"{path}:{node.lineno}: {node.name} ignores **{name}"
    assert seen > 10


def test_the_page_tells_every_keyword():
    _, _, text = PAGE.read_text().partition("## Keywords of other versions")
    text, _, _ = text.partition("\n## ")
    rows = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \| (.+) \|$", text, re.M)
    told = {(name, word): effect for name, word, effect in rows}
    assert told == {(name, word): KEYWORDS[name][word].effect for name, word in TAKEN}


# What the accepted ones do.


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return str(tmp_path_factory.mktemp("out"))


def compiled(folder, *args, name="c", **keywords):
    model = classifier()
    given = {"optimizers": sgd(model)} if "optim" not in keywords and not args else {}
    config = {"output_folder": folder}
    found = samba.session.compile(
        model, batch(), *args, name=name, config_dict=config, **given, **keywords
    )
    return found


@pytest.fixture(scope="module")
def pef(folder):
    return compiled(folder)


def content(path):
    """Return the sections of a PEF, which do not depend on where and when it was compiled."""
    import sambarun

    with sambarun.load(path) as found:
        program = found.program
    return [
        (section.name, section.type, section.inputs, section.outputs)
        for section in program.sections
    ]


def test_keywords_without_an_effect_compile_the_same(folder, pef):
    table = KEYWORDS["SambaSession.compile"]
    unused = {word: True for word, keyword in table.items() if not keyword.means}
    with pytest.warns(
        UnusedKeywordWarning, match="'graph_transform_hook' does nothing: dep"
    ) as told:
        found = compiled(folder, name="unused", **unused)
    assert content(found) == content(pef)
    assert [str(one.message) for one in told if one.filename != __file__] == []
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnusedKeywordWarning)
        compiled(folder, name="quiet", graph_transform_hook=None, squeeze_bs_dim=True)


def test_another_name_of_the_optimizers_compiles_them(folder, pef):
    model = classifier()
    config = {"output_folder": folder}
    found = samba.session.compile(model, batch(), optim=sgd(model), name="o", config_dict=config)
    assert content(found) == content(pef)


@pytest.mark.parametrize("trace", [utils.trace_graph, samba.session.trace_graph])
def test_another_name_of_the_optimizers_trains(pef, trace):
    model = classifier()
    before = model.layer.weight.detach().clone()
    outputs = trace(model, batch(), optimizers=sgd(model), pef=pef, dev_mode=True)
    samba.session.run(batch(), outputs)
    samba.session.to_cpu(model)
    assert not torch.equal(model.layer.weight, before)


def test_two_names_of_one_parameter_are_refused(pef):
    model = classifier()
    for args, keywords in (((sgd(model),), {}), ((), {"optim": sgd(model)})):
        with pytest.raises(TypeError, match="both 'optim' and 'optimizers', which mean the same"):
            utils.trace_graph(model, batch(), *args, optimizers=sgd(model), pef=pef, **keywords)


def test_the_options_of_a_trace_have_the_pef(pef):
    model = classifier()
    outputs = utils.trace_graph(model, batch(), sgd(model), config_dict={"pef": pef})
    assert len(samba.session.run(batch(), outputs)) == 2
    assert samba.session.device.path == pef


@pytest.mark.parametrize("mapping", ["sections", "SPATIAL", 3])
def test_a_mapping_that_there_is_not_is_refused(pef, mapping):
    model = classifier()
    for trace in (utils.trace_graph, samba.session.trace_graph):
        with pytest.raises(SambaError, match=r"no mapping .*; it is one of section, spatial"):
            trace(model, batch(), sgd(model), pef=pef, mapping=mapping)
    with pytest.raises(SambaError, match=r"no mapping .*; it is one of section, spatial"):
        utils.trace_multigraph(model, batch(), mapping=mapping)


def test_graphs_take_the_optimizers_by_their_other_name(tmp_path):
    class Learner(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 1)

        def forward(self, x):
            return self.layer(x).square().mean()

    model = samba.from_torch_model(Learner())
    x = samba.ones(2, 4, name="x")
    with pytest.raises(TypeError, match="both 'optimizers' and 'optim'"):
        samba.session.trace_multigraph(model, (x,), sgd(model), optim=sgd(model))
    outputs = utils.trace_multigraph(model, (x,), optim=sgd(model), mapping="section")
    samba.session.add_graph(samba.graph.FwdGraph((x,), outputs, name="g"))
    unused = dict.fromkeys(KEYWORDS["SambaSession.compile_multigraph"], True)
    with pytest.warns(UnusedKeywordWarning):
        samba.session.compile_multigraph(config_dict={"output_folder": str(tmp_path)}, **unused)
    (path,) = tmp_path.rglob("*.pef")
    assert any(kind.name == "OPT" for _, kind, _, _ in content(path))


def test_the_driver_passes_on_what_is_compiled(folder, pef):
    model = classifier()
    args = Namespace(command="compile", output_folder=folder, pef_name="driven", inference=False)
    unused = {
        word: True
        for word, keyword in KEYWORDS["utils.common.common_app_driver"].items()
        if not keyword.means
    }
    with pytest.warns(UnusedKeywordWarning):
        found = common_app_driver(args, model, batch(), optimizers=sgd(model), **unused)
    assert content(found) == content(pef)
    with pytest.raises(SambaError, match="loss_indices has 9"):
        common_app_driver(args, model, batch(), sgd(model), loss_indices=[9])


SIDES = ("DeviceSide", "Modes", "TracedModels", "CompilerSide")


METHODS = [
    name
    for name, _ in inspect.getmembers(samba.SambaSession, callable)
    if not name.startswith("_") and name not in ("use_abexit", "atexit_register")
]


@pytest.mark.parametrize("name", METHODS)
def test_no_message_names_what_a_session_is_made_of(name):
    """A method that is given too much speaks of itself."""
    with pytest.raises(Exception) as caught:  # of each method its own
        getattr(samba.session, name)(*[object()] * 20)
    assert not any(side in str(caught.value) for side in SIDES), str(caught.value)
