"""Executables that earlier versions made still run, to the results that they had then.

`runs` holds small PEFs, each made by the compiler of the day from a model of a few operators, and
beside each an `.npz` of what went in and what the runtime of that day made of it. Such a file is
never written again. The files:

    0_1_sections        a multilayer perceptron, a section for each operator
    0_1_origins         a convolution with a normalisation folded into it: weights have origins
    0_1_pictures        a convolutional network
    0_2_training        cross entropy, three steps of SGD with momentum
    0_2_host_variants   a convolutional network that trains, with programs for some hosts
    0_2_recompute       activations that are computed again
    0_2_weight_states   a PyTorch module without weights, which the record has
    0_2_shared_regions  one graph leaves in memory what another reads
    0_2_several_models  a model that trains beside one that does not
    0_2_adamw           three steps of AdamW with a limit for gradients; further names of parameters
    0_3_argin_variants  steps of SGD, some of them with momentum and weight decay
    0_4_stated          three steps of AdamW on packs, beside inference with the same weights:
                        models, roles, durations, packs and gradients are stated
    0_5_groups          two groups of parameters, whose hyperparameters are set by their names
    0_6_estimates       a convolutional network that states how its estimates come about
    0_7_placed          the same where three of eight buffers have no room in HBM, with reasons
    0_8_chips           a network that trains, for two chips: its evaluation says where they begin
    0_9_declared        a network half in bfloat16: types of the model beside those of the host
    0_10_parts          AdamW with a limit for gradients that several processes reduce, and a break

To add one when the format gains something: compile a model of a few kilobytes that uses it, save
the PEF as `runs/X_Y_WHAT.pef`, run it in the way of a function below (or a new one), keep inputs
and results with `numpy.savez` under the keys which that function reads, and add a row to `RUNS` and
above. Commit it together with the change.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

import pef
import sambarun
from pef.reader import KNOWN_FEATURES

FOLDER = Path(__file__).parent / "runs"
STEPS = 3
# Of results in float32, on any processor; losses after steps have gone through more of them.
RELATIVE, ABSOLUTE, OF_LOSSES = 1e-4, 1e-5, 1e-3
LARGEST = 50_000  # bytes of a file

Record = Mapping[str, np.ndarray]
Run = Callable[[sambarun.Executable, Record, Path], None]


def under(record: Record, prefix: str) -> dict[str, np.ndarray]:
    """Return the arrays whose keys begin with `prefix`, by the rest of the key."""
    return {key.removeprefix(prefix): record[key] for key in record if key.startswith(prefix)}


def compare(found: Mapping[str, object], expected: Mapping[str, np.ndarray]) -> None:
    assert set(found) == set(expected)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=RELATIVE, atol=ABSOLUTE, err_msg=name)


def inference(executable: sambarun.Executable, record: Record, _: Path) -> None:
    compare(executable.run(under(record, "in/")), under(record, "out/"))


def with_weights(executable: sambarun.Executable, record: Record, folder: Path) -> None:
    save_file(under(record, "state/"), folder / "weights.safetensors")
    executable.load(folder / "weights.safetensors")
    inference(executable, record, folder)


def training(executable: sambarun.Executable, record: Record, _: Path) -> None:
    learn(executable, under(record, "in/"), record["losses"])


def learn(
    executable: sambarun.Executable,
    inputs: Record,
    losses: np.ndarray,
    tolerance: float = OF_LOSSES,
    **options: object,
) -> None:
    found = [float(executable.step(inputs, **options)["loss"]) for _ in range(STEPS)]
    assert losses[0] - losses[-1] > 10 * tolerance * losses[0], "too little is learned to tell"
    np.testing.assert_allclose(found, losses, rtol=tolerance)


def with_rates(executable: sambarun.Executable, record: Record, _: Path) -> None:
    given = {name: float(value) for name, value in under(record, "hyper/").items()}
    learn(executable, under(record, "in/"), record["losses"], hyperparams=given)


def in_half_precision(executable: sambarun.Executable, record: Record, _: Path) -> None:
    learn(executable, under(record, "in/"), record["losses"], tolerance=5 * OF_LOSSES)


def shared_region(executable: sambarun.Executable, record: Record, _: Path) -> None:
    executable.run(under(record, "in/fill/"), graph="fill")
    compare(executable.run({}, graph="use"), under(record, "out/use/"))


def several_models(executable: sambarun.Executable, record: Record, _: Path) -> None:
    learn(executable, under(record, "in/fit/"), record["losses"], graph="fit")
    compare(executable.run(under(record, "in/small/"), graph="small"), under(record, "out/small/"))


def terms_that_come_and_go(executable: sambarun.Executable, record: Record, _: Path) -> None:
    for number, loss in enumerate(record["losses"]):
        given = {name: float(record[name][number]) for name in ("momentum", "weight_decay")}
        found = executable.step(under(record, "in/"), given)
        np.testing.assert_allclose(found["loss"], loss, rtol=OF_LOSSES)
    np.testing.assert_allclose(executable.state()["w"], record["w"], rtol=OF_LOSSES)


RUNS: Mapping[str, Run] = {
    "0_1_sections": inference,
    "0_1_origins": inference,
    "0_1_pictures": inference,
    "0_2_training": training,
    "0_2_host_variants": training,
    "0_2_recompute": training,
    "0_2_weight_states": with_weights,
    "0_2_shared_regions": shared_region,
    "0_2_several_models": several_models,
    "0_2_adamw": training,
    "0_3_argin_variants": terms_that_come_and_go,
    "0_4_stated": several_models,
    "0_5_groups": with_rates,
    "0_6_estimates": inference,
    "0_7_placed": inference,
    "0_8_chips": training,
    "0_9_declared": in_half_precision,
    "0_10_parts": training,
}


@pytest.mark.parametrize("link", [True, False])
@pytest.mark.parametrize("name", RUNS)
def test_older_executables_give_their_results(name: str, link: bool, tmp_path: Path) -> None:
    path = FOLDER / f"{name}.pef"
    pef.verify(path)
    with np.load(FOLDER / f"{name}.npz") as archive:
        record = dict(archive)
    with sambarun.load(path, threads=1, link=link) as executable:
        RUNS[name](executable, record, tmp_path)


@pytest.mark.parametrize("name", RUNS)
def test_files_are_what_they_are_called(name: str) -> None:
    with pef.open(FOLDER / f"{name}.pef") as file:
        major, minor, what = name.split("_", 2)
        assert file.header.version == (int(major), int(minor))
        program = file.program
        holds = {
            "origins": any(symbol.origins for symbol in program.symbols),
            "host_variants": any(item.requires for item in program.programs),
            "groups": {item.group for item in program.argins} >= {"first", "second"},
            "estimates": any(section.estimate for section in program.sections),
            "placed": any(item.spilled and item.cost for item in program.allocations),
            "chips": any(graph.chip_calls for graph in program.graphs),
            "declared": any(symbol.declared for symbol in program.symbols),
            "parts": any(graph.stage_calls for graph in program.graphs),
        }
        features = KNOWN_FEATURES
        assert holds.get(what, True)
        assert what not in features or what in program.requires.features


def test_every_version_of_the_format_is_run() -> None:
    versions = {tuple(map(int, name.split("_", 2)[:2])) for name in RUNS}
    major, minor = pef.FORMAT_VERSION
    assert versions == {(major, older) for older in range(1, minor + 1)}


def test_every_file_has_its_row_and_is_small() -> None:
    files = sorted(FOLDER.iterdir())
    assert {path.name for path in files} == {
        f"{name}.{kind}" for name in RUNS for kind in ("npz", "pef")
    }
    assert all(path.stat().st_size <= LARGEST for path in files)


def test_every_feature_is_run() -> None:
    found: set[str] = set()
    for name in RUNS:
        with pef.open(FOLDER / f"{name}.pef") as file:
            found.update(file.program.requires.features)
    assert found == KNOWN_FEATURES
