"""What chips that share the work of each operator have to tell each other."""

from __future__ import annotations

import re
from dataclasses import replace

import onnx
import pytest

import sambac
from sambac.arch import Constant, arch_text, load_device
from sambac.errors import CompileError
from sambac.planning.collectives import collectives_of, link_time

# A block: two products side by side, then one that adds up; the third stands behind a norm.
BLOCK = """
    turn*: Transpose(w1) -> t1
    up: MatMul(x, t1) -> a
    gate: MatMul(x, w2) -> b
    join: Mul(a, b) -> c
    down: MatMul(c, w3) -> d
    rest: Add(d, x) -> e
    norm: LayerNormalization(e) -> f
    head: MatMul(f, w4) -> g
    last: RMSNormalization(g) -> h
"""


def shaped(make_view, text, sizes=None):
    """Return a view whose values are matrices."""
    view = make_view(text, sizes=sizes)
    return replace(view, values={n: replace(v, shape=(4, 4)) for n, v in view.values.items()})


def test_parts_are_added_up_behind_every_second_product(make_view):
    view = shaped(make_view, BLOCK, {"d": 100, "g": 7})
    assert collectives_of(view, ()) == {"down": 100, "last": 7}


def test_states_are_weights_too(make_view):
    view = shaped(make_view, re.sub(r"w(\d)", r"p\1", BLOCK))
    assert collectives_of(view, ()) == {}
    assert list(collectives_of(view, ("p1", "p2", "p3", "p4"))) == ["down", "last"]


def test_products_of_what_flows_stay_in_parts(make_view):
    text = "q: MatMul(x, w1) -> a\ns: MatMul(a, a) -> b\no: MatMul(b, w2) -> c"
    assert list(collectives_of(shaped(make_view, text), ())) == ["o"]


def test_a_link_costs_its_latency_and_the_bytes_of_a_ring():
    arch = load_device("sn40l", chips=4)
    assert arch.link_bandwidth is None
    assert link_time(arch, [10**9, 5]) == pytest.approx(2 * arch.link_latency.value)
    known = replace(arch, link_bandwidth=Constant(1e9, "B/s", "assumed", "this test"))
    seconds = 2 * arch.link_latency.value + 1.5 * (10**9 + 5) / 1e9
    assert link_time(known, [10**9, 5]) == pytest.approx(seconds)


def test_what_is_not_known_of_links_is_said(tmp_path):
    """As long as chips tell each other something."""
    weight = ",".join(["1"] * 16)

    def told(body: str, arch: str, chips: int) -> list[str]:
        model = onnx.parser.parse_model(
            f"""<ir_version: 8, opset_import: ["": 17]>
            net (float[4,4] x) => (float[4,4] y) <float[4,4] w = {{{weight}}}> {{ {body} }}"""
        )
        options = sambac.CompileOptions(arch=arch, n_chips=chips)
        return [each for each in sambac.compile(model, options).warnings if "links" in each]

    twice = "a = MatMul(x, w) y = MatMul(a, w)"
    rest = "of links between chips is published, so the modelled latencies leave that out of"
    assert told(twice, "sn40l", 2) == [f"sn40l: no bandwidth {rest} 1 collective of 2 chips"]
    assert told(twice, "sn10", 4) == [
        f"sn10: no latency and no bandwidth {rest} 1 collective of 4 chips"
    ]
    assert told(twice, "sn10", 1) == told("y = Relu(x)", "sn10", 4) == []
    text = "[link_bandwidth]\nvalue = 1e9\nunit = 'B/s'\norigin = 'assumed'\nsource = 'this test'"
    (tmp_path / "linked.toml").write_text(f"{arch_text('sn40l')}\n{text}")
    assert told(twice, str(tmp_path / "linked.toml"), 2) == []


def test_chips_have_units_memory_and_channels_together():
    one, four = load_device("sn40l"), load_device("sn40l", chips=4)
    assert four.pcus.value == 4 * one.pcus.value
    assert four.flops_per_pcu == one.flops_per_pcu
    for kind, capacity in one.capacities.items():
        share = 1 if kind.name == "HOST" else 4
        assert four.capacities[kind] == share * capacity
        assert four.speed(kind) == share * one.speed(kind)


def test_tiles_are_a_share_of_the_chip():
    half = load_device("sn30", tiles=4)
    assert (half.pcus.value, half.pmus.value, half.peak_flops.value) == (640, 640, 344e12)
    assert half.capacities == load_device("sn30").capacities


@pytest.mark.parametrize(
    ("name", "tiles", "message"),
    [("sn30", 9, "9, but sn30 has 8 tiles"), ("sn40l", 2, "not published")],
)
def test_tiles_that_a_chip_does_not_have_are_refused(name, tiles, message):
    with pytest.raises(CompileError, match=message):
        load_device(name, tiles=tiles)
