"""The loader takes the programs made for its host, and the portable ones elsewhere."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from training_run import feeds

import pef
import sambac
import sambarun
from benchmarks.models.training import cnn, depthwise, plain_cnn
from sambac.reconstruct.programs import portable_program
from sambarun.device import image
from sambarun.device.fitted import Fitted
from sambarun.sessions.host_features import host_features
from sambarun.sessions.opening import Tuning
from sambarun.sessions.threads import Threads

HOST = host_features(Tuning(Threads(1)))
MODELS = {
    "pooling": lambda: plain_cnn(batch=4),
    "normalised": lambda: cnn(batch=4, side=8, channels=16),
    "depthwise": lambda: depthwise(batch=2, side=8, channels=16),
}


def compiled(name: str):
    torch.manual_seed(0)
    trainee = MODELS[name]()
    options = sambac.CompileOptions(train=True, optimizers=(sambac.SGD(lr=0.1, momentum=0.9),))
    batch = trainee.batch(0)
    program = sambac.compile(trainee.module, options, inputs=batch)
    return program, feeds(program, batch)


def trained(program: pef.Program, batch) -> dict[str, np.ndarray]:
    with sambarun.load(program, threads=1) as executable:
        losses = [executable.step(batch) for _ in range(3)]
        assert all(np.isfinite(value) for loss in losses for value in loss.values())
        return {name: np.array(value) for name, value in executable.state().items()}


def chosen(program: pef.Program) -> set[tuple[str, ...]]:
    """Return what the programs require that this host would run."""
    with sambarun.load(program, threads=1) as executable:
        fitted = Fitted(executable._image, frozenset())
        used = (fitted.program_of(at) for at in range(len(program.sections)))
        return {stored.requires for stored in used}


@pytest.mark.parametrize("name", MODELS)
def test_both_programs_train_alike(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    program, batch = compiled(name)
    here = trained(program, batch)
    monkeypatch.setattr(image, "host_features", lambda tuning: frozenset())
    portable = trained(program, batch)
    for key, value in here.items():
        if value.dtype.kind == "f":
            largest = np.abs(portable[key]).max()
            np.testing.assert_allclose(value, portable[key], rtol=1e-3, atol=1e-4 * largest + 1e-6)


def test_the_host_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    program, _ = compiled("pooling")
    monkeypatch.setattr(image, "host_features", lambda tuning: frozenset())
    assert chosen(program) == {()}
    monkeypatch.setattr(image, "host_features", lambda tuning: frozenset({"nchwc8"}))
    assert chosen(program) == {(), ("nchwc8",)}
    monkeypatch.setattr(image, "host_features", lambda tuning: frozenset({"nchwc16"}))
    assert chosen(program) == {(), ("nchwc16",)}


def test_every_section_has_a_portable_program() -> None:
    program, _ = compiled("pooling")
    for section in program.sections:
        assert portable_program(program, section) == section.variants[-1].program


def test_inference_has_one_program() -> None:
    model = plain_cnn().module.network.eval()
    exported = torch.export.export(model, (torch.zeros(2, 1, 28, 28),))
    program = sambac.compile(exported)
    assert all(len(section.variants) == 1 for section in program.sections)


def test_a_host_without_the_operators_has_no_features(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: object) -> None:
        raise sambarun.RunError("No op registered for ReorderInput.")

    monkeypatch.setattr("sambarun.sessions.host_features.create_session", refuse)
    assert host_features(Tuning(Threads(1))) == {"processor"}


@pytest.mark.skipif(
    not HOST & {"nchwc8", "nchwc16"}, reason="this host has no blocked convolutions"
)
def test_this_host_has_blocks_of_a_known_size() -> None:
    assert HOST.issubset({"processor", "nchwc8", "nchwc16", "u8s8"})


@pytest.mark.parametrize(("content", "exact"), [(64 * 255 * 127, True), (32 * 32767, False)])
def test_products_that_saturate_are_no_feature(
    content: int, exact: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def product(probe: bytes, tuning: Tuning, feeds: dict[str, np.ndarray]) -> np.ndarray | None:
        return np.full((1, 1), content, np.int32) if "a" in feeds else None

    monkeypatch.setattr("sambarun.sessions.host_features._run", product)
    assert host_features(Tuning(Threads(1))) == {"processor", *({"u8s8"} if exact else ())}
