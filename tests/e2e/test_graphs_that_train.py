"""Several models in one program of which some train: what one learns, the others use."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import pef
import sambac
import sambarun
from pef.report import report
from sambac import SGD, AdamW, CompileOptions, GraphSource
from sambac.reconstruct.verify import check_plans

STEPS = 5


class Trunk(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.norm = nn.LayerNorm(8)
        self.last = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.last(torch.tanh(self.norm(self.first(x))))


class Fit(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return functional.cross_entropy(self.net(x), y)


class Match(nn.Module):
    """Another task for the same trunk."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.inner = net

    def forward(self, x: Tensor, goal: Tensor) -> Tensor:
        return functional.mse_loss(self.inner(x), goal)


class Serve(nn.Module):
    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.model = net

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(self.model(x), -1)


def trunk() -> Trunk:
    torch.manual_seed(0)
    return Trunk()


def data(rows: int = 16) -> tuple[Tensor, Tensor, Tensor]:
    random = torch.Generator().manual_seed(1)
    return (
        torch.randn(rows, 4, generator=random),
        torch.randint(0, 3, (rows,), generator=random),
        torch.randn(rows, 3, generator=random),
    )


def arrays(**tensors: Tensor) -> dict[str, np.ndarray]:
    return {name: tensor.detach().numpy() for name, tensor in tensors.items()}


def fitting(**further: object) -> CompileOptions:
    return CompileOptions(train=True, optimizers=(AdamW(lr=1e-2),), **further)  # type: ignore[arg-type]


def fit_and_serve(net: Trunk, options: CompileOptions | None = None) -> list[GraphSource]:
    x, y, _ = data()
    return [
        GraphSource("fit", Fit(net), (x, y), options or fitting()),
        GraphSource("serve", Serve(net), (x[:1],)),
    ]


def checked(program: pef.Program) -> pef.Program:
    assert pef.check_program(program) == [] == check_plans(program)
    return program


@pytest.fixture(scope="module", params=["fit first", "serve first"])
def both(request: pytest.FixtureRequest) -> pef.Program:
    sources = fit_and_serve(trunk())
    chosen = sources if request.param == "fit first" else sources[::-1]
    return checked(sambac.compile_graphs(chosen))


def taught(net: Trunk) -> list[float]:
    """Train in torch, and return the losses."""
    x, y, _ = data()
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = functional.cross_entropy(net(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def test_one_graph_trains_what_another_serves(both: pef.Program, tmp_path: Path) -> None:
    both.save(tmp_path / "m.pef")
    executable = sambarun.load(tmp_path / "m.pef")
    net = trunk()
    x, y, _ = data()
    before = executable.run(arrays(x=x[:1]), graph="serve")["output"]
    np.testing.assert_allclose(before, Serve(net)(x[:1]).detach(), rtol=1e-5, atol=1e-6)
    found = [executable.step(arrays(x=x, y=y))["output"] for _ in range(STEPS)]
    np.testing.assert_allclose(found, taught(net), rtol=1e-5)
    after = executable.run(arrays(x=x[:1]), graph="serve")["output"]
    np.testing.assert_allclose(after, Serve(net)(x[:1]).detach(), rtol=1e-4, atol=1e-5)
    judged = executable.run(arrays(x=x, y=y), graph="fit", section_types="FWD")["output"]
    np.testing.assert_allclose(judged, Fit(net)(x, y).detach(), rtol=1e-5)


def test_the_graphs_of_a_model_that_trains_are_two(both: pef.Program) -> None:
    names = [graph.name for graph in both.graphs]
    assert sorted(names) == ["fit/eval", "fit/train", "serve"]
    kinds = {
        graph.name: {
            both.sections[both.schedule[call]].type.name
            for call in range(graph.first_call, graph.first_call + graph.calls)
        }
        for graph in both.graphs
    }
    assert kinds["fit/train"] == {"FWD", "BCKWD", "OPT"}
    assert kinds["serve"] == kinds["fit/eval"] == {"FWD"}
    weights = [s.name for s in both.symbols if s.kind is pef.SymbolKind.WEIGHT and s.data]
    assert len(weights) == 6  # each once, whatever the graphs call it
    facts = report(both)["training"]
    assert facts is not None
    assert {row["kind"]: row["tensors"] for row in facts["memory"]}["parameters"] == 6


def test_a_name_means_a_graph_or_a_model(both: pef.Program) -> None:
    executable = sambarun.load(both)
    x, y, _ = data()
    given = arrays(x=x, y=y)
    whole = executable.run(given, graph="fit")["output"]
    np.testing.assert_allclose(whole, Fit(trunk())(x, y).detach(), rtol=1e-5)
    twice = executable.run(given, graph="fit/train")["output"]
    assert twice < whole  # both were training steps
    alone = executable.run(given, graph="fit/eval")["output"]
    np.testing.assert_array_equal(
        alone, executable.run(given, graph="fit", section_types=["FWD"])["output"]
    )
    np.testing.assert_allclose(
        executable.run(given, section_types=["FWD", "BCKWD"])["output"], alone, rtol=1e-5
    )
    with pytest.raises(sambarun.RunError, match="'serve' has no sections of type BCKWD; it has"):
        executable.run(given, graph="serve", section_types=["FWD", "BCKWD"])
    with pytest.raises(sambarun.RunError, match=r"no graph 'fot' \(did you mean 'fit'\?\)"):
        executable.run(given, graph="fot")
    with pytest.raises(sambarun.RunError, match=r"no model 'serve' that trains.*'fit'"):
        executable.step(given, graph="serve")


def test_sections_one_by_one_belong_to_a_model(both: pef.Program) -> None:
    executable = sambarun.load(both)
    x, y, _ = data()
    train = next(graph for graph in both.graphs if graph.name == "fit/train")
    calls = [*range(train.first_call, train.first_call + train.calls)]
    executable.run(arrays(x=x, y=y), calls=calls, graph="fit")
    with pytest.raises(sambarun.RunError, match="belongs to the graph 'fit/train', not to 'serve'"):
        executable.run(arrays(x=x, y=y), calls=calls, graph="serve")


def test_a_graph_between_forward_and_backward_spoils_nothing(both: pef.Program) -> None:
    """Planned memory is shared: what another graph may have overwritten is refused, not read."""
    executable, other = sambarun.load(both), sambarun.load(both)
    x, y, _ = data()
    given = arrays(x=x, y=y)
    for _ in range(2):
        executable.run(given, graph="fit", section_types=["FWD"], train=True)
        executable.run(arrays(x=x[:1]), graph="serve")
        try:
            executable.run(given, graph="fit", section_types=["BCKWD", "OPT"], train=True)
        except sambarun.RunError:
            executable.run(given, graph="fit", section_types=["FWD", "BCKWD", "OPT"])
        other.step(given)
    for name, value in other.state().items():
        np.testing.assert_allclose(executable.state()[name], value, rtol=1e-6, atol=1e-7)


def test_a_checkpoint_goes_from_a_model_alone_to_several(tmp_path: Path) -> None:
    x, y, _ = data()
    alone = sambarun.load(sambac.compile(Fit(trunk()), fitting(), inputs=(x, y)))
    for _ in range(2):
        alone.step(arrays(x=x, y=y))
    alone.save(tmp_path / "state.safetensors")
    together = sambarun.load(sambac.compile_graphs(fit_and_serve(trunk())))
    with pytest.warns(sambarun.OtherProgramWarning):
        together.load(tmp_path / "state.safetensors")
    given = arrays(x=x, y=y)
    np.testing.assert_array_equal(alone.step(given)["output"], together.step(given)["output"])


def test_two_models_train_one_trunk_by_turns() -> None:
    net, ours = trunk(), trunk()
    x, y, goal = data()
    options = (
        CompileOptions(train=True, optimizers=(AdamW(lr=1e-2),)),
        CompileOptions(train=True, optimizers=(SGD(lr=0.05, momentum=0.9),)),
    )
    program = checked(
        sambac.compile_graphs(
            [
                GraphSource("fit", Fit(ours), (x, y), options[0]),
                GraphSource("match", Match(ours), (x, goal), options[1]),
                GraphSource("serve", Serve(ours), (x,)),
            ]
        )
    )
    executable = sambarun.load(program)
    optimizers = (
        torch.optim.AdamW(net.parameters(), lr=1e-2),
        torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9),
    )
    models = (("fit", Fit(net), {"x": x, "y": y}), ("match", Match(net), {"x": x, "goal": goal}))
    for _ in range(STEPS):
        for (name, model, given), optimizer in zip(models, optimizers, strict=True):
            optimizer.zero_grad()
            loss = model(**given)
            loss.backward()
            optimizer.step()
            found = executable.step(arrays(**given), graph=name)["output"]
            np.testing.assert_allclose(found, loss.detach(), rtol=1e-4)
    found = executable.run(arrays(x=x), graph="serve")["output"]
    np.testing.assert_allclose(found, Serve(net)(x).detach(), rtol=1e-4, atol=1e-5)
    assert {"adamw.lr", "sgd.lr"} <= set(executable.argins)
    facts = report(program)
    assert facts["training"] is not None
    assert facts["training"]["losses"] == ["fit.output", "match.output"]


class Player(nn.Module):
    """The loss of one of two networks that play against each other."""

    def __init__(self, maker: nn.Module, judge: nn.Module, *, makes: bool) -> None:
        super().__init__()
        self.maker, self.judge, self.makes = maker, judge, makes

    def forward(self, noise: Tensor, real: Tensor) -> Tensor:
        made = self.maker(noise)
        if self.makes:
            return functional.softplus(-self.judge(made)).mean() + 0 * real.mean()
        return (
            functional.softplus(-self.judge(real)) + functional.softplus(self.judge(made.detach()))
        ).mean()


def players() -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(2)
    return (
        nn.Sequential(nn.Linear(2, 6), nn.Tanh(), nn.Linear(6, 4)),
        nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 1)),
    )


def test_two_networks_that_play_against_each_other() -> None:
    noise, (real, _, _) = torch.randn(16, 2, generator=torch.Generator().manual_seed(3)), data()
    maker, judge = players()
    sgd = CompileOptions(train=True, optimizers=(SGD(lr=0.1, name="judge"),), freeze=("maker.*",))
    adam = CompileOptions(
        train=True, optimizers=(AdamW(lr=1e-2, name="maker"),), freeze=("judge.*",)
    )
    program = checked(
        sambac.compile_graphs(
            [
                GraphSource("judge", Player(maker, judge, makes=False), (noise, real), sgd),
                GraphSource("make", Player(maker, judge, makes=True), (noise, real), adam),
            ]
        )
    )
    executable = sambarun.load(program)
    maker, judge = players()
    turns = (
        ("judge", Player(maker, judge, makes=False), torch.optim.SGD(judge.parameters(), lr=0.1)),
        ("make", Player(maker, judge, makes=True), torch.optim.AdamW(maker.parameters(), lr=1e-2)),
    )
    for _ in range(STEPS):
        for name, model, optimizer in turns:
            model.zero_grad()
            loss = model(noise, real)
            loss.backward()
            optimizer.step()
            (found,) = executable.step(arrays(noise=noise, real=real), graph=name).values()
            np.testing.assert_allclose(found, loss.detach(), rtol=1e-5)


@pytest.mark.parametrize("level", ["O0", "O1", "O3"])
def test_levels_and_options_of_training_hold_in_one_model_of_several(level: str) -> None:
    program_options = CompileOptions(level=level)  # type: ignore[arg-type]
    options = fitting(
        level=level, max_grad_norm=0.5, accumulate=True, data_parallel=True, recompute=True
    )
    net = trunk()
    program = checked(sambac.compile_graphs(fit_and_serve(net, options), program_options))
    x, y, _ = data()
    alone = sambarun.load(sambac.compile(Fit(trunk()), options, inputs=(x, y)))
    executable = sambarun.load(program)
    for _ in range(STEPS):
        given = arrays(x=x, y=y)
        np.testing.assert_allclose(
            executable.step(given)["output"], alone.step(given)["output"], rtol=1e-6
        )
    types = {section.type.name for section in program.sections}
    assert types == {"FWD", "BCKWD", "OPT", "ZEROGRAD", "GRADNORM", "REDUCE"}


@pytest.mark.parametrize("name", ["fit.net.first.weight", "serve.model.first.weight"])
def test_a_place_may_be_chosen_by_what_any_model_calls_a_weight(name: str) -> None:
    memory = {name: "DDR"}
    program_options = CompileOptions(memory=memory)  # type: ignore[arg-type]
    sources = fit_and_serve(trunk(), fitting(memory=memory))
    program = checked(sambac.compile_graphs(sources, program_options))
    (weight,) = (symbol for symbol in program.symbols if symbol.name == "net.first.weight")
    assert program.allocations[weight.allocation].region is pef.RegionKind.DDR


def test_dropout_counts_the_steps_of_its_own_graph() -> None:
    class Dropping(Fit):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return functional.cross_entropy(functional.dropout(self.net(x), 0.5, self.training), y)

    x, y, _ = data()
    options = CompileOptions(train=True, optimizers=(SGD(lr=0.0),))
    net = trunk()
    program = sambac.compile_graphs(
        [GraphSource("fit", Dropping(net), (x, y), options), GraphSource("serve", Serve(net), (x,))]
    )
    executable = sambarun.load(checked(program))
    given = arrays(x=x, y=y)
    losses = []
    for _ in range(4):
        losses.append(float(executable.step(given)["output"]))
        executable.run(arrays(x=x), graph="serve")
    assert len(set(losses)) == 4  # another mask in each step
    alone = sambarun.load(sambac.compile(Dropping(trunk()), options, inputs=(x, y)))
    assert losses == [float(alone.step(given)["output"]) for _ in range(4)]
