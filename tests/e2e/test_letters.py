"""The example of a decoder: trained, exported with an open cache, and run without PyTorch."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import torch

import sambac
import sambarun

_EXAMPLE = Path(__file__).parents[2] / "examples" / "letters"
_TEXTS = ["The section ", "A "]


def test_letters_are_written_as_pytorch_would(tmp_path: Path) -> None:
    model, writer, prepare = (
        runpy.run_path(str(_EXAMPLE / f"{name}.py")) for name in ("model", "write", "prepare")
    )
    prepare["main"](tmp_path, [_EXAMPLE / "model.py"])
    pieces = np.load(tmp_path / "train.npz")
    module, inputs = model["fit"]()
    options = sambac.CompileOptions(train=True, optimizers=(sambac.AdamW(lr=1e-2),))
    with sambarun.load(sambac.compile(module, options, inputs=inputs)) as executable:
        rows = slice(0, model["BATCH"])
        batch = {name: pieces[name][rows] for name in ("letters", "following")}
        losses = [float(executable.step(batch)["loss"]) for _ in range(12)]
        weights = {name: torch.tensor(value) for name, value in executable.state().items()}
    assert losses[-1] < 0.8 * losses[0]
    module.load_state_dict({name: weights[name] for name in module.state_dict()})

    with sambarun.load(model["decoder"](module.state_dict())) as executable:
        found = writer["write"](executable, _TEXTS)
    exact = module.double().writer
    random = np.random.default_rng(writer["SEED"])
    written = [list(text.encode("ascii")) for text in _TEXTS]
    for at in range(writer["LENGTH"]):
        for text in written:
            if len(text) == at + 1:
                with torch.no_grad():
                    scores = exact(torch.tensor([text]))["scores"][0, -1].numpy()
                shares = np.exp((scores - scores.max()) / writer["HEAT"])
                text.append(int(random.choice(len(shares), p=shares / shares.sum())))
    assert found == [bytes(text).decode("ascii") for text in written]
