"""Several graphs in one PEF: traced, compiled, and run by name, beside torch."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import pef as pef_format
import sambaflow.samba as samba
from sambaflow.samba import SambaError, utils
from sambaflow.samba.graph import FwdGraph, SambaGraph

WIDTH, LONG = 4, 6


class Attention(nn.Module):
    """One head over a cache of keys and values."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(WIDTH, 3 * WIDTH)
        self.register_buffer("scale", torch.tensor(0.5))

    def attend(self, x, keys, values, mask):
        scores = x @ keys.transpose(-1, -2) * self.scale + mask
        return torch.softmax(scores, -1) @ values


class Prefill(nn.Module):
    """The whole prompt at once: fills the cache."""

    def __init__(self, attention: Attention) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, x, mask):
        queries, keys, values = self.attention.project(x).chunk(3, -1)
        return self.attention.attend(queries, keys, values, mask), keys, values


class Decode(nn.Module):
    """One position, which takes its place in the cache."""

    def __init__(self, attention: Attention) -> None:
        super().__init__()
        self.inner = attention

    def forward(self, x, at, keys, values, mask):
        query, key, value = self.inner.project(x).chunk(3, -1)
        keys = torch.where(at, key, keys)
        values = torch.where(at, value, values)
        return self.inner.attend(query, keys, values, mask), keys, values


def models():
    torch.manual_seed(0)
    attention = Attention()
    return Prefill(attention), Decode(attention)


def prompt(seed: int = 0, length: int = 3):
    torch.manual_seed(seed)
    mask = torch.where(torch.arange(LONG) < length, 0.0, -1e9)
    return (
        samba.from_torch_tensor(torch.randn(LONG, WIDTH), name="prompt"),
        samba.from_torch_tensor(mask, name="prompt_mask"),
    )


def token(position: int = 3, seed: int = 1):
    torch.manual_seed(seed)
    places = torch.arange(LONG)
    return (
        samba.from_torch_tensor(torch.randn(1, WIDTH), name="token"),
        samba.from_torch_tensor((places == position)[:, None], name="at"),
        samba.from_torch_tensor(torch.where(places <= position, 0.0, -1e9), name="token_mask"),
    )


def caches():
    return tuple(
        samba.from_torch_tensor(torch.zeros(LONG, WIDTH), name=name) for name in ("keys", "values")
    )


def trace_both(prefill, decode):
    """Trace both graphs: the caches that one puts out are those of the other."""
    first = utils.trace_multigraph(prefill, prompt(), trace_prefix="prefill")
    x, at, mask = token()
    keys, values = caches()
    second = utils.trace_multigraph(decode, (x, at, keys, values, mask), trace_prefix="decode")
    for outputs in (first, second):
        outputs[1].sn_region_name, outputs[2].sn_region_name = "keys", "values"
    samba.session.add_graph(FwdGraph(prompt(), first, name="prefill"))
    samba.session.add_graph(FwdGraph((x, at, keys, values, mask), second, name="decode"))
    return first, second


@pytest.fixture(autouse=True)
def _anew():
    samba.session.reset()
    yield
    samba.session.reset()


@pytest.fixture(scope="module")
def pef(tmp_path_factory):
    samba.session.reset()
    trace_both(*models())
    config = {"output_folder": str(tmp_path_factory.mktemp("out"))}
    path = samba.session.compile_multigraph(
        name="llm",
        config_dict=config,
        pef_metadata={"batch_size": 1},
        enable_hypersection=True,
        inference=True,
    )
    assert path.endswith("llm/llm.pef")
    return path


def test_the_file_has_both_graphs_and_no_weights(pef):
    with pef_format.open(pef) as file:
        program = file.program
    assert [graph.name for graph in program.graphs] == ["prefill", "decode"]
    weights = [s.name for s in program.symbols if s.kind is pef_format.SymbolKind.WEIGHT]
    assert weights == ["attention.project.weight", "attention.project.bias"]
    assert not any(symbol.data for symbol in program.symbols if symbol.name in weights)
    assert {a.name for a in program.allocations if a.name} == {"keys", "values"}


def test_a_cache_goes_from_one_graph_to_the_other_and_on(pef):
    prefill, decode = models()
    first, second = trace_both(prefill, decode)
    samba.session.init_multigraph_runtime(pef)
    found = samba.session.run(prompt(), first, graph_name="prefill")
    wanted = prefill(*(item.torch() for item in prompt()))
    for mine, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(mine.torch(), samba.to_torch(other))
    for position in (3, 4):
        inputs = token(position, seed=position)
        samba.session.run(input_tensors=inputs, graph_name="decode")
        x, at, mask = (item.torch() for item in inputs)
        wanted = decode(x, at, samba.to_torch(wanted[1]), samba.to_torch(wanted[2]), mask)
        (out,) = samba.session.get_tensors_by_name([second[0].sn_name])
        torch.testing.assert_close(out.data, samba.to_torch(wanted[0]))
    (keys,) = samba.session.get_tensors_by_name(["keys"])
    torch.testing.assert_close(keys.data, samba.to_torch(wanted[1]))


def test_names_begin_with_the_prefix_and_weights_keep_theirs(pef):
    first, second = trace_both(*models())
    assert first[0].sn_name.startswith("prefill__prefill__")
    assert second[0].sn_name.startswith("decode__decode__")
    samba.session.init_multigraph_runtime(pef)
    assert set(samba.session.get_weight_names()) == {
        "prefill__attention__project__weight",
        "prefill__attention__project__bias",
    }


def test_weights_come_from_the_models_that_are_traced(pef):
    prefill, decode = models()
    with torch.no_grad():
        prefill.attention.project.weight.mul_(2)
    first, _ = trace_both(prefill, decode)
    samba.session.init_multigraph_runtime(pef, transfer_device=False)
    with pytest.raises(RuntimeError, match=r"no values for .*project\.weight"):
        samba.session.run(prompt(), first, graph_name="prefill")
    samba.session.to_rdu(prefill)
    found = samba.session.run(prompt(), first, graph_name="prefill")[0]
    wanted = prefill(*(item.torch() for item in prompt()))[0]
    torch.testing.assert_close(found.torch(), samba.to_torch(wanted))


def test_inputs_that_stay_need_not_be_given_again(pef):
    first, _ = trace_both(*models())
    samba.session.init_multigraph_runtime(pef)
    once = samba.session.run(prompt(), first[0], graph_name="prefill")[0].clone()
    samba.session.run((*token(), *caches()), graph_name="decode")
    again = samba.session.run(None, first[0], graph_name="prefill")[0]
    torch.testing.assert_close(again.torch(), once.torch())


def test_graphs_are_kept_in_order_and_names_are_their_own():
    outputs = utils.trace_multigraph(models()[0], prompt())
    one, other = (FwdGraph(prompt(), outputs, name=name) for name in ("one", "other"))
    samba.session.add_graph(one)
    samba.session.add_graph(other)
    assert list(samba.session.graphs) == ["one", "other"]
    with pytest.raises(SambaError, match=r"two graphs are called 'one': .*overwrite=True"):
        samba.session.add_graph(FwdGraph(prompt(), outputs, name="one"))
    samba.session.add_graph(SambaGraph(prompt(), outputs, name="one"), overwrite=True)
    assert list(samba.session.graphs) == ["other", "one"]


def test_graphs_can_be_checked_alone(tmp_path):
    trace_both(*models())
    config = {"output_folder": str(tmp_path)}
    assert samba.session.compile_multigraph(samba_only=True, config_dict=config) is None
    assert not [*tmp_path.iterdir()]


def test_mistakes_before_compiling_are_sentences():
    prefill, _ = models()
    with pytest.raises(SambaError, match=r"no graphs to compile; add them with .*add_graph"):
        samba.session.compile_multigraph()
    with pytest.raises(SambaError, match="has no name"):
        FwdGraph(prompt(), prompt())
    with pytest.raises(SambaError, match="no graph was traced"):
        samba.session.init_multigraph_runtime("x.pef")
    utils.trace_multigraph(prefill, prompt())
    with pytest.raises(SambaError, match="has traced this model before"):
        utils.trace_multigraph(prefill, prompt())
    samba.session.add_graph(FwdGraph(prompt(), prompt(), name="loop"))
    with pytest.raises(SambaError, match=r"stops at \['prompt', .*trace_multigraph"):
        samba.session.compile_multigraph()


def test_what_one_pef_trained_runs_in_the_graphs_of_another(tmp_path):
    torch.manual_seed(0)
    model = samba.from_torch_model(nn.Linear(4, 4))
    before = model.weight.detach().clone()
    x, config = samba.randn(2, 4, name="x"), {"output_folder": str(tmp_path)}
    optimizer = samba.optim.SGD(model.parameters(), lr=0.1)
    pef = samba.session.compile(model, x, optimizer, name="train", config_dict=config)
    samba.session.run(x, utils.trace_graph(model, x, optimizer, pef=pef))
    samba.session.to_cpu(model)
    assert not torch.equal(model.weight, before)

    samba.session.reset()
    graphs = {}
    for name, rows in (("few", 2), ("many", 5)):
        inputs = samba.randn(rows, 4, name=name)
        graphs[name] = inputs, utils.trace_multigraph(model, inputs, trace_prefix=name)
        samba.session.add_graph(FwdGraph(*graphs[name], name=name))
    path = samba.session.compile_multigraph(name="both", config_dict=config)
    samba.session.init_multigraph_runtime(path)
    for name, (inputs, outputs) in graphs.items():
        (found,) = samba.session.run(inputs, outputs, graph_name=name)
        torch.testing.assert_close(found.torch(), model(inputs).torch())


def test_one_name_for_different_tensors_is_an_error():
    for size in (2, 3):
        model = nn.Linear(4, 4)
        inputs = samba.from_torch_tensor(torch.zeros(size, 4), name="x")
        outputs = utils.trace_multigraph(model, inputs, trace_prefix=f"g{size}")
        samba.session.add_graph(FwdGraph(inputs, outputs, name=f"g{size}"))
    with pytest.raises(SambaError) as caught:
        samba.session.compile_multigraph()
    text = str(caught.value)
    assert "input 'x' of graph 'g3' is float32[3, 4], and float32[2, 4] is the input of" in text
    assert "parameter 'linear__weight' of graph 'g3' has other values than the parameter" in text


def test_mistakes_of_runs_are_sentences(pef):
    prefill, decode = models()
    first, _ = trace_both(prefill, decode)
    samba.session.init_multigraph_runtime(pef)
    with pytest.raises(SambaError, match=r"no graph 'prefil' \(did you mean 'prefill'\?\)"):
        samba.session.run(prompt(), first, graph_name="prefil")
    with pytest.raises(SambaError, match="one of 'prefill', 'decode'"):
        samba.session.run(prompt(), first)
    with pytest.raises(SambaError, match="graph 'prefill' has no input token, at"):
        samba.session.run(token(), first, graph_name="prefill")
    wrong = samba.from_torch_tensor(torch.zeros(LONG, 3), name="prompt")
    with pytest.raises(SambaError, match=r"'prompt' has shape \[6, 3\]; float32\[6, 4\] was"):
        samba.session.run(wrong, first, graph_name="prefill")


def test_a_pef_of_other_graphs_is_refused_with_all_that_differs(pef):
    attention = Attention()
    inputs = samba.from_torch_tensor(torch.zeros(3, WIDTH), name="prompt")
    mask = samba.from_torch_tensor(torch.zeros(3), name="prompt_mask")
    outputs = utils.trace_multigraph(Prefill(attention), (inputs, mask), trace_prefix="prefill")
    samba.session.add_graph(FwdGraph(inputs, outputs, name="fill"))
    with pytest.raises(SambaError) as caught:
        samba.session.init_multigraph_runtime(pef)
    text = str(caught.value)
    assert "there is no graph 'fill' in the PEF" in text
    assert "input 'prompt' is float32[3, 4], in the PEF it is float32[6, 4]" in text
