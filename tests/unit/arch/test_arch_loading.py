"""Architectures: the built-in ones, files of users, and the mistakes in them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pef.symbols import RegionKind
from sambac.arch import arch_text, builtin_archs, load_arch, parse_arch
from sambac.arch.loading import _FIELDS
from sambac.errors import CompileError

CONSTANT = '{{value = {}, unit = "{}", origin = "assumed", source = "me"}}'
REQUIRED = {
    "pcus": (8, "units"),
    "pmus": (8, "units"),
    "pmu_bytes": (1024, "B"),
    "peak_flops": (1e9, "FLOP/s"),
    "compute_efficiency": (0.5, "share"),
    "launch": (1e-6, "s"),
    "fill": (1e-6, "s"),
    "ddr_capacity": (1000, "B"),
    "host_capacity": (1000, "B"),
}


def toml(**changes: str | None) -> str:
    """Return a valid description, with some entries replaced or (None) left out."""
    lines = {"name": '"mine"', "title": '"My chip"'}
    lines |= {key: CONSTANT.format(*value) for key, value in REQUIRED.items()}
    lines |= changes
    return "\n".join(f"{key} = {value}" for key, value in lines.items() if value is not None)


@pytest.fixture
def load(tmp_path: Path):
    def load_text(text: str):
        path = tmp_path / "mine.toml"
        path.write_text(text)
        return load_arch(str(path))

    return load_text


def test_the_built_in_architectures():
    assert builtin_archs() == ("sn10", "sn30", "sn40l")
    sn40l = load_arch("sn40l")
    assert (sn40l.pcus.value, sn40l.pmus.value) == (1040, 1040)
    assert sn40l.pmus.value * sn40l.pmu_bytes.value == 520 << 20
    assert sn40l.capacities[RegionKind.HBM] == 64_000_000_000
    assert sn40l.main_memory is RegionKind.HBM


def test_architectures_without_hbm_use_ddr():
    sn10 = load_arch("sn10")
    assert RegionKind.HBM not in sn10.regions
    assert sn10.main_memory is RegionKind.DDR


def test_conflicting_figures_are_carried_and_the_paper_is_the_default():
    bandwidth = load_arch("sn40l").tiers[RegionKind.HBM].bandwidth
    assert bandwidth is not None
    assert (bandwidth.value, bandwidth.origin) == (1.8e12, "specified")
    assert 1.6e12 in [other.value for other in bandwidth.alternatives]


def test_what_nobody_published_is_absent():
    sn30 = load_arch("sn30")
    assert sn30.tiers[RegionKind.DDR].bandwidth is None
    assert sn30.speed(RegionKind.DDR) is None


@pytest.mark.parametrize("name", ["sn10", "sn30", "sn40l"])
def test_every_constant_has_a_source(name: str):
    arch = load_arch(name)
    for constant in (arch.pcus, arch.peak_flops, arch.launch, arch.fill, *arch.regions.values()):
        assert len(constant.source) > 10


@pytest.mark.parametrize("name", builtin_archs())
def test_a_printed_description_tells_of_every_number(name: str):
    text = arch_text(name)
    assert parse_arch(text, name) == load_arch(name)
    there, left_out = (
        set(re.findall(pattern, text, re.MULTILINE)) for pattern in (r"^\[(\w+)\]", r"^# (\w+) +\[")
    )
    assert not there & left_out
    assert there | left_out == set(_FIELDS)


def test_a_users_file(load):
    arch = load(toml(hbm_capacity=CONSTANT.format(64, "B")))
    assert (arch.name, arch.title) == ("mine", "My chip")
    assert arch.capacities == {RegionKind.HBM: 64, RegionKind.DDR: 1000, RegionKind.HOST: 1000}
    assert arch.flops_per_pcu == 1e9 * 0.5 / 8


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pmus": None, "launch": None}, "key 'pmus' is missing; key 'launch' is missing"),
        ({"name": None}, "key 'name' is missing"),
        (
            {"hbm_bandwidth": CONSTANT.format(1e12, "B/s")},
            "key 'hbm_capacity' is missing, without which hbm_bandwidth decides nothing",
        ),
        (
            {"ddr_efficiency": CONSTANT.format(0.5, "share"), "ddr_bandwidth": None},
            "key 'ddr_bandwidth' is missing, without which ddr_efficiency decides nothing",
        ),
        (
            {"fused_streams": CONSTANT.format(2, "streams")},
            "key 'stream_bandwidth' is missing, without which fused_streams decides nothing",
        ),
        ({"title": '""'}, "'title' must be a string that is not empty"),
        (
            {"hbm_bandwith": CONSTANT.format(1, "B/s")},
            "unknown key 'hbm_bandwith' (did you mean 'hbm_bandwidth'?)",
        ),
        ({"pcus": "8"}, "pcus must be a table with value, unit, origin and source"),
        ({"pcus": CONSTANT.format(8, "cores")}, "pcus.unit is 'cores', expected 'units'"),
        ({"pcus": CONSTANT.format(0, "units")}, "pcus.value is 0, expected a number above zero"),
        ({"pcus": CONSTANT.format(1.5, "units")}, "pcus.value is 1.5, expected a whole number"),
        ({"launch": CONSTANT.format('"x"', "s")}, "launch.value is 'x', expected a number"),
        (
            {"compute_efficiency": CONSTANT.format(13, "share")},
            "compute_efficiency.value is 13, expected at most 1",
        ),
        (
            {"fill": '{value = 1, unit = "s", origin = "guessed", source = "me"}'},
            "fill.origin is 'guessed', expected one of specified, calibrated, assumed",
        ),
        ({"fill": '{value = 1, unit = "s", origin = "assumed"}'}, "fill.source is missing"),
        (
            {"fill": '{value = 1, unit = "s", origin = "assumed", source = 3}'},
            "fill.source must be a string",
        ),
        (
            {"fill": '{valu = 1, unit = "s", origin = "assumed", source = "me"}'},
            "fill has an unknown entry 'valu' (did you mean 'value'?)",
        ),
        (
            {
                "fill": '{value = 1, unit = "s", origin = "assumed", source = "me", '
                "alternatives = [3]}"
            },
            "each of fill.alternatives must be a table with value and source",
        ),
        (
            {
                "fill": '{value = 1, unit = "s", origin = "assumed", source = "me", '
                "alternatives = 3}"
            },
            "fill.alternatives must be a list",
        ),
        ({"name": "no string"}, "not a TOML file"),
    ],
)
def test_mistakes_in_a_file_are_named(load, changes, message):
    with pytest.raises(CompileError) as caught:
        load(toml(**changes))
    assert "mine.toml: " in str(caught.value)
    assert message in str(caught.value)


def test_unknown_names_are_explained():
    with pytest.raises(CompileError, match=r"'sn40'.*did you mean 'sn40l'.*sn10, sn30, sn40l"):
        load_arch("sn40")
    with pytest.raises(CompileError, match=r"no architecture file 'there/is\.none'"):
        load_arch("there/is.none")


def test_a_file_that_is_no_text(tmp_path: Path):
    path = tmp_path / "bytes.toml"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(CompileError, match=r"bytes\.toml: cannot read the architecture"):
        load_arch(str(path))


DEEP = "[" * 5000 + "]" * 5000


@pytest.mark.parametrize(
    "value", ["inf", "-inf", "nan", "1e-300", "1e300", "1e400", "1" + "0" * 400, "true", "[]"]
)
@pytest.mark.parametrize("key", REQUIRED)
def test_numbers_that_are_no_devices(load, key: str, value: str):
    unit = REQUIRED[key][1]
    with pytest.raises(CompileError, match=rf"{key}\.value is "):
        load(toml(**{key: CONSTANT.format(value, unit)}))


@pytest.mark.parametrize("text", [f"x = {DEEP}", "x = [", "\x00", "[a]\n[a]"])
def test_text_that_is_no_toml(load, text: str):
    with pytest.raises(CompileError, match=r"mine\.toml: not a TOML file: "):
        load(text)
