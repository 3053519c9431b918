"""The application of the slides, as a shell runs it: every command, beside plain torch.

Running, and what is refused, are processes of their own. Compiling, testing and measuring run in
this one, which spares them the import of torch.

One thing differs from the slides: `--data-parallel-mode` and the like are not given. They define
neither the arguments of the application nor its weight initialisation nor its training loop; these
are written in the usual way.
"""

from __future__ import annotations

import contextlib
import io
import re
import runpy
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from forked import End, Forks

import sambaflow.samba as samba

APP = Path(__file__).parent / "apps" / "res_ffn_logreg.py"


@pytest.fixture
def run(forks: Forks, folder: Path, tmp_path: Path) -> Callable[..., End]:
    """Run the application in a process of its own."""

    def ended(*words: str) -> End:
        with contextlib.chdir(folder):
            return forks.run([str(APP), *words], tmp_path)

    return ended


def said_here(folder: Path, *words: str) -> str:
    """Return what the application says in this process."""
    main = runpy.run_path(str(APP))["main"]
    try:
        with contextlib.chdir(folder), contextlib.redirect_stdout(io.StringIO()) as said:
            main(list(words))
    finally:
        samba.session.reset()
    return said.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    found = tmp_path_factory.mktemp("app")
    said_here(found, "compile", "-b=32", "-p", "app.pef")
    assert {path.name for path in found.iterdir()} >= {"app.pef", "app.pef.log"}
    assert not (found / "out").exists()
    return found


def test_a_run_trains_like_torch(run):
    done = run("run", "-b=32", "-p", "app.pef")
    assert done.code == 0, done.err
    first, last = (float(found) for found in re.findall(r"step \d+ loss (\S+)", done.out))
    losses, host = losses_of_torch()
    assert (first, last) == pytest.approx((losses[0], losses[-1]), rel=1e-4)
    assert float(re.findall(r"host loss (\S+)", done.out)[0]) == pytest.approx(host, rel=1e-4)
    assert last < first


def losses_of_torch() -> tuple[list[float], float]:
    """Train the same model on the same rows without sambaflow's session."""
    app = runpy.run_path(str(APP))
    args = app["parse_app_args"](["compile", "-b=32"], common_parser_fn=app["add_all_args"])
    app["utils"].set_seed(256)
    torch.randn(32, 20), torch.randint(4, (32,))
    model = app["ResFFNLogReg"](20, 16, 4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=1e-4)
    losses = []
    for rows, labels in app["batches"](args, 60):
        loss = model(rows.torch(), labels.torch())[0]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    rows, labels = next(app["batches"](args, 1))
    return losses, model(rows.torch(), labels.torch())[0].item()


def test_a_pef_for_training_serves_the_test_command(folder):
    assert "test passed" in said_here(folder, "test", "-b=32", "-p", "app.pef")


@pytest.mark.parametrize("command", ["measure-performance", "measure-sections"])
def test_measuring(folder, command):
    said = said_here(folder, command, "-b=32", "-p", "app.pef", "-n", "5")
    wanted = {"measure-performance": "e2e_throughput: ", "measure-sections": "Optimizer"}
    assert wanted[command] in said


def test_another_batch_size_is_refused_with_what_differs(run):
    done = run("run", "-b=16", "-p", "app.pef")
    assert done.code == 1
    assert "input 'image' is float32[16, 20], in the PEF it is float32[32, 20]" in done.err
