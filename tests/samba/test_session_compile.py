"""What a compilation makes of a model: the file, its names, its regions, its metadata."""

from __future__ import annotations

import pytest
import torch
from samba_models import batch, classifier, sgd
from torch import nn

import pef
import sambac
import sambaflow.samba as samba
from sambaflow.samba.utils.argparser import parse_app_args
from sambaflow.samba.utils.pef_utils import PefInfoStruct, get_pef_info


def compiled(tmp_path, model, inputs, optimizer=None, **keywords):
    config = {"output_folder": str(tmp_path), **keywords.pop("config", {})}
    path = samba.session.compile(model, inputs, optimizer, config_dict=config, **keywords)
    with pef.open(path) as file:
        return path, file.program


@pytest.fixture(scope="module")
def trains(tmp_path_factory):
    """The classifier with an optimizer, compiled without further words: path and program."""
    model = classifier()
    path, program = compiled(tmp_path_factory.mktemp("trains"), model, batch(), sgd(model))
    return path, program


class Sine(nn.Module):
    def forward(self, x):
        return torch.sin(x)


def region_of(program, name):
    symbol = next(symbol for symbol in program.symbols if symbol.name == name)
    return program.allocations[symbol.allocation].region.name


def test_the_pef_is_named_and_has_a_log_beside_it(tmp_path):
    model = classifier()
    path, _ = compiled(tmp_path, model, batch(), sgd(model), name="first")
    assert path == str(tmp_path / "first" / "first.pef")
    assert (tmp_path / "first" / "first.pef.log").exists()
    path, _ = compiled(tmp_path, model, batch(), name="first", config={"pef_name": "second"})
    assert path == str(tmp_path / "second" / "second.pef")
    path, _ = compiled(tmp_path, model, batch())
    assert path == str(tmp_path / "classifier" / "classifier.pef")


def test_the_pef_has_names_of_samba_and_they_are_in_no_checkpoint(trains):
    import sambarun

    path, program = trains
    names = {alias.name: program.symbols[alias.symbol].name for alias in program.aliases}
    assert names["classifier__layer__weight"] == "layer.weight"
    assert names["classifier__norm__running_mean"] == "norm.running_mean"
    assert names["image"] == "image"
    assert names["classifier__dropout__dropout__outputs__0"] == "output_1"
    with sambarun.load(path) as executable:
        assert not [name for name in executable.state() if "__layer__" in name]


def test_equal_models_give_equal_files(tmp_path):
    first, second = (
        compiled(tmp_path / folder, classifier(), batch(), name="c")[0] for folder in "ab"
    )
    with open(first, "rb") as one, open(second, "rb") as other:
        assert one.read() == other.read()


def test_metadata_is_read_back(tmp_path):
    path, _ = compiled(tmp_path, classifier(), batch(), pef_metadata={"batch_size": 5})
    found = get_pef_info(path, {"batch_size": PefInfoStruct(1), "model": PefInfoStruct("")})
    assert found == {"batch_size": 5, "model": "classifier"}


def test_tensors_choose_their_regions(tmp_path):
    model, (image, label) = classifier(), batch()
    image.host_memory = True
    model.layer.weight.mem_type = "DDR"
    _, program = compiled(tmp_path, model, (image, label), sgd(model))
    assert region_of(program, "image") == "HOST"
    assert region_of(program, "layer.weight") == "DDR"
    assert region_of(program, "norm.weight") == "HBM"
    _, program = compiled(tmp_path, classifier(), batch(), io_host_memory=True)
    assert {region_of(program, name) for name in ("image", "label", "output_1")} == {"HOST"}


def test_losses_are_where_the_backward_pass_starts(trains, tmp_path):
    model = classifier()

    def starts(program):
        return [port.name for port in program.graphs[0].inputs if port.name.endswith("__grad")]

    def chosen(losses):
        return compiled(tmp_path, model, batch(), sgd(model), loss_indices=losses)[1]

    assert starts(trains[1]) == ["output_0__grad"]
    assert starts(chosen([(0,), 1])) == ["output_0__grad", "output_1__grad"]
    assert starts(chosen(1)) == ["output_1__grad"]


class Tokens(torch.nn.Module):
    """Logits of each token and a loss for each, as models of language return them; no total."""

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)
        self.criterion = torch.nn.CrossEntropyLoss(reduction="none")

    def forward(self, image, label):
        logits = self.layer(image)
        return self.criterion(logits, label).view(-1, 1) * 2, logits * 1


def test_a_loss_for_every_token_is_one_that_is_minimised(tmp_path):
    torch.manual_seed(0)
    model = samba.from_torch_model(Tokens())
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1)
    path, program = compiled(tmp_path, model, batch(), optimizer)
    starts = [port.name for port in program.graphs[0].inputs if port.name.endswith("__grad")]
    assert starts == ["output_0__grad"]
    outputs = samba.utils.trace_graph(model, batch(), optimizer, pef=path)
    outputs[0].sn_grad = torch.full((5, 1), 0.2)
    samba.session.run(batch())
    host = model(*(item.torch() for item in batch()))[0]
    (0.2 * host).sum().backward()
    samba.utils.assert_close(model.layer.bias.sn_grad, model.layer.bias.grad, "gradient")
    samba.session.reset()


class Table(torch.nn.Module):
    """A buffer that no checkpoint has, which is computed with the model."""

    def __init__(self, start):
        super().__init__()
        self.layer = torch.nn.Linear(4, 3)
        self.register_buffer("table", torch.arange(start, start + 3.0), persistent=False)

    def forward(self, x):
        return (self.layer(x) * self.table).sum()


def test_buffers_of_no_checkpoint_are_compiled_in(tmp_path):
    model, x = samba.from_torch_model(Table(0)), samba.ones(2, 4, name="x")
    path, _ = compiled(tmp_path, model, x, samba.optim.SGD(model.parameters(), lr=0.1))
    same, other = (samba.from_torch_model(Table(start)) for start in (0, 1))
    outputs = samba.utils.trace_graph(same, x, sgd_of(same), pef=path)
    found = samba.session.run(x, outputs, section_types=["fwd"])[0]
    torch.testing.assert_close(found.torch(), same(x.torch()).detach())
    with pytest.raises(samba.SambaError, match="'table__table' has other values than when"):
        samba.utils.trace_graph(other, x, sgd_of(other), pef=path)
    samba.session.reset()


def sgd_of(model):
    return samba.optim.SGD(model.parameters(), lr=0.1)


class Asking(torch.nn.Module):
    """Takes a short cut that depends on values, unless it is compiled."""

    def forward(self, x):
        if not torch.compiler.is_compiling() and torch.all(x > 0):
            return x
        return torch.relu(x)


def test_a_model_may_ask_whether_it_is_compiled(tmp_path):
    x = samba.ones(2, 3, name="x")
    path, _ = compiled(tmp_path, Asking(), x)
    outputs = samba.utils.trace_graph(Asking(), x, pef=path)
    found = samba.session.run(samba.full((2, 3), -1.0, name="x"), outputs)[0]
    assert not found.any()
    samba.session.reset()


def test_options_of_the_command_line_count_without_config_dict(tmp_path):
    parse_app_args(
        ["compile", "--pef-name", "chosen", "--output-folder", str(tmp_path), "--arch=sn30", "--o0"]
    )
    model = classifier()
    path = samba.session.compile(model, batch(), sgd(model), name="other")
    assert path == str(tmp_path / "chosen" / "chosen.pef")
    with pef.open(path) as file:
        options = file.program.producer.options.replace(" ", "")
    assert '"level":"O0"' in options
    assert '"arch":"sn30"' in options
    samba.session.reset()
    parse_app_args(["run", "--pef", path])
    assert samba.utils.trace_graph(model, batch(), sgd(model))
    samba.session.reset()
    assert samba.session.options == {}


def test_a_gradient_of_an_output_that_is_no_loss_is_refused(trains):
    model = classifier()
    samba.utils.trace_graph(model, batch(), sgd(model), pef=trains[0])
    with pytest.raises(samba.SambaError, match="with loss_indices in which output 1 is"):
        samba.session.run(batch(), grad_of_outputs=[None, torch.ones(5, 3)])
    samba.session.reset()


def test_labels_of_16_bits(tmp_path):
    model, (image, label) = classifier(0.0), batch()
    narrow = samba.from_torch_tensor(label.torch().to(torch.int16), name="label")
    path, _ = compiled(tmp_path, model, (image, narrow))
    outputs = samba.utils.trace_graph(model, (image, narrow), pef=path)
    found = samba.session.run((image, narrow), outputs)[0]
    wanted = model.eval()(image.torch(), label.torch())[0]
    torch.testing.assert_close(found.torch(), samba.to_torch(wanted))
    samba.session.reset()


@pytest.mark.parametrize(
    "config", [{"gradient_accumulation": True}, {"grad_accumulation_steps": 4}]
)
def test_gradients_add_up_until_they_are_cleared(tmp_path, config):
    model = classifier(0.0)
    optimizer = sgd(model)
    path, _ = compiled(tmp_path, model, batch(), optimizer, config=config)
    samba.utils.trace_graph(model, batch(), optimizer, pef=path)
    weight, passes = model.layer.weight, ["fwd", "bckwd"]
    samba.session.run(batch(), section_types=["zerograd", *passes])
    once = weight.sn_grad
    samba.session.run(section_types=passes)
    torch.testing.assert_close(weight.sn_grad, 2 * once)
    before = weight.sn_data
    samba.session.run(section_types=["opt"])
    torch.testing.assert_close(weight.sn_data, before - 0.1 * 2 * once)
    samba.session.run(section_types=["zerograd"])
    assert not weight.sn_grad.any()
    samba.session.reset()


def test_gradients_of_inputs_that_want_them(tmp_path):
    model, (image, label) = classifier(0.0), batch()
    image.requires_grad_()
    optimizer = sgd(model)
    path, _ = compiled(tmp_path, model, (image, label), optimizer)
    outputs = samba.utils.trace_graph(model, (image, label), optimizer, pef=path)
    samba.session.run((image, label), outputs, section_types=["FWD", "BCKWD"])
    model(image, label)[0].backward()
    torch.testing.assert_close(image.sn_grad, samba.to_torch(image.grad))
    samba.session.reset()


def test_levels_of_the_command_line(tmp_path):
    counts = {}
    for level in ("o0", "o3"):
        _, program = compiled(tmp_path, classifier(), batch(), config={"optim_level": level})
        counts[level] = len(program.sections)
    assert counts["o0"] > counts["o3"] == 1


def test_optimization_rules_are_fusion_rules_at_o1(tmp_path):
    rules = tmp_path / "rules.yaml"
    rules.write_text(
        "pair:\n  priority: 1000\n  pattern:\n"
        "    first: {op_type: tanh, child: second}\n    second: {op_type: sin}\n"
    )
    model = nn.Sequential(nn.Tanh(), Sine())
    x = samba.from_torch_tensor(torch.zeros(2, 3), name="x")
    groups = {}
    for level, config in (("o1", {}), ("o1", {"optimization_rules": str(rules)})):
        _, program = compiled(tmp_path, model, x, config={"optim_level": level, **config})
        groups[len(config)] = [len(g.operators) for s in program.sections for g in s.groups]
    assert groups == {0: [1, 1], 1: [2]}
    with pytest.raises(sambac.CompileError, match=r"nowhere\.yaml"):
        compiled(
            tmp_path, model, x, config={"optim_level": "o1", "optimization_rules": "nowhere.yaml"}
        )


def test_lazy_parameters_get_values_on_the_device(tmp_path):
    samba.session.enable_lazy_param(seed=3)
    try:
        model = samba.from_torch_model(torch.nn.Linear(4, 3))
    finally:
        samba.session.disable_lazy_param()
    assert not model.weight.has_data
    image = batch()[0]
    path, _ = compiled(tmp_path, model, image)
    assert not model.weight.has_data
    outputs = samba.utils.trace_graph(model, image, pef=path)
    found = samba.session.run(image, outputs)[0]
    weight, bias = model.weight.sn_data, model.bias.sn_data
    assert weight.std() > 0
    wanted = torch.nn.functional.linear(image.torch(), weight, bias)
    torch.testing.assert_close(found.torch(), wanted)
    assert not model.weight.has_data
    samba.session.reset()


def test_lazy_parameters_train(tmp_path):
    samba.session.enable_lazy_param(seed=3)
    try:
        model = samba.from_torch_model(torch.nn.Linear(4, 1))
    finally:
        samba.session.disable_lazy_param()
    optimizer = samba.optim.AdamW(model.parameters(), lr=0.1)
    image = batch()[0]
    path, _ = compiled(tmp_path, model, image, optimizer)
    outputs = samba.utils.trace_graph(model, image, optimizer, pef=path)
    found = [samba.session.run(image, outputs)[0].sum().item() for _ in range(2)]
    assert found[1] < found[0]
    samba.session.to_cpu(model, optimizer)
    assert model.weight.has_data
    assert {value.dtype for value in optimizer.state[model.weight].values()} == {torch.float32}
    samba.session.reset()


def test_two_inputs_of_one_name_are_refused(tmp_path):
    image, label = batch()
    label.sn_name = "image"
    with pytest.raises(samba.SambaError, match="two inputs are called 'image'"):
        compiled(tmp_path, classifier(), (image, label))


TABLE: dict[object, object] = {}
"""What an application has in its file, by tensors."""


def test_tensors_that_are_keys_in_the_file_of_a_model_stay_out_of_what_is_recorded(tmp_path):
    """An application that has trained one model, and has its optimizer, may compile another."""
    for number in range(2):
        model = Tabled()
        samba.from_torch_model_(model)
        optimizer = samba.optim.SGD(model.parameters(), lr=0.1)
        config = {"output_folder": str(tmp_path / str(number))}
        x = samba.randn(3, 4, name="x")
        path = samba.session.compile(model, x, optimizer, config_dict=config)
        samba.utils.trace_graph(model, x, optimizer, pef=path)
        TABLE.update({parameter: [optimizer] for parameter in model.parameters()})
    TABLE.clear()
    samba.session.reset()


class Tabled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 2)

    def forward(self, x):
        return self.layer(x).square().mean()
