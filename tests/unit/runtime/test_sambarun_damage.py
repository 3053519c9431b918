"""Damaged, replaced and incomplete files: refused before the first result."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import numpy as np
import onnxruntime
import pytest

import pef
import sambarun
from sambarun.device.weights import add_weights


def flip(path, offset):
    content = bytearray(path.read_bytes())
    content[offset] ^= 0x40
    path.write_bytes(content)


def offset_of(path, ref):
    with pef.open(path) as file:
        return file.file_offset(ref)


@pytest.mark.parametrize("options", [{}, {"link": False}, {"prepack": False}])
def test_a_damaged_weight_is_named(chain_pef, x, options):
    program = pef.verify(chain_pef)
    weight = next(symbol for symbol in program.symbols if symbol.name == "w")
    flip(chain_pef, offset_of(chain_pef, weight.data) + 1000)
    with sambarun.load(chain_pef, **options) as executable:
        for _ in range(2):
            with pytest.raises(sambarun.RunError, match=r"Weight 'w' is damaged: .*SHA-256"):
                executable.run({"x": x})


def test_closing_waits_for_checks(chain_pef, monkeypatch):
    done = []
    check = pef.PefFile.check

    def slow(self, ref):
        time.sleep(0.2)
        check(self, ref)
        done.append(ref)

    def fail(*_):
        raise sambarun.RunError("no session")

    monkeypatch.setattr(pef.PefFile, "check", slow)
    executable = sambarun.load(chain_pef)
    monkeypatch.setattr("sambarun.device.fitted.create_session", fail)
    with pytest.raises(sambarun.RunError, match="no session"):
        executable.prepare()
    executable.close()
    weights = [symbol for symbol in pef.verify(chain_pef).symbols if symbol.data is not None]
    assert len(done) >= len(weights)


def test_preparing_finds_damage(chain_pef):
    program = pef.verify(chain_pef)
    weight = next(symbol for symbol in program.symbols if symbol.name == "w")
    flip(chain_pef, offset_of(chain_pef, weight.data))
    with sambarun.load(chain_pef) as executable, pytest.raises(sambarun.RunError, match="damaged"):
        executable.prepare()


@pytest.mark.parametrize("link", [True, False])
def test_a_damaged_graph_is_named_before_it_is_read(chain_pef, x, link):
    program = pef.verify(chain_pef)
    flip(chain_pef, offset_of(chain_pef, program.programs[0].graph) + 5)
    message = r"The program of section 0 's0' is damaged: .*SHA-256"
    with (
        sambarun.load(chain_pef, link=link) as executable,
        pytest.raises(sambarun.RunError, match=message),
    ):
        executable.run({"x": x})


def test_a_damaged_default_is_named(spec_type, sec_type, value_type, tmp_path):
    from onnx import helper

    spec = spec_type(
        sections=[sec_type([helper.make_node("Add", ["x", "d"], ["y"])], ["x", "d"], ["y"])],
        values={name: value_type() for name in "xdy"},
        inputs=["x", "d"],
        outputs=["y"],
        defaults={"d": np.full(4, 5, np.float32)},
    )
    path = tmp_path / "default.pef"
    spec.program().save(path)
    symbol = next(s for s in spec.program().symbols if s.name == "d")
    flip(path, offset_of(path, symbol.data))
    one = np.ones(4, np.float32)
    with sambarun.load(path) as executable:
        with pytest.raises(sambarun.RunError, match="content of 'd' is damaged"):
            executable.run({"x": one})
        np.testing.assert_array_equal(executable.run({"x": one, "d": one})["y"], 2 * one)


def test_a_missing_file_is_a_pef_error(tmp_path):
    with pytest.raises(pef.PefError, match=r"none\.pef"):
        sambarun.load(tmp_path / "none.pef")


def test_a_file_replaced_between_check_and_load_is_refused(chain, chain_pef, x):
    with sambarun.load(chain_pef) as executable:
        other = chain_pef.with_name("other.pef")
        chain.program().save(other)
        os.replace(other, chain_pef)
        with pytest.raises(sambarun.RunError, match="was replaced while it was loaded"):
            executable.run({"x": x})


def test_a_file_cut_short_after_it_was_opened_is_refused(chain_pef, x):
    """The process would be ended by SIGBUS where it reads what is mapped and not there."""
    with sambarun.load(chain_pef) as executable, pef.open(chain_pef) as file:
        data = next(each.data for each in file.program.symbols if each.data is not None)
        os.truncate(chain_pef, file.header.segment_base)
        with pytest.raises(sambarun.RunError, match="was cut short while it was"):
            executable.run({"x": x})
        for read in (file.view, file.bytes, file.check):
            with pytest.raises(pef.PefError, match="was cut short while it was open; open it ag"):
                read(data)
        with pytest.raises(pef.PefError, match="was cut short while it was open; open it again"):
            [*file.content_problems()]


def test_a_file_removed_before_its_sessions_exist_is_refused(chain_pef, x):
    with sambarun.load(chain_pef) as executable:
        chain_pef.unlink()
        with pytest.raises(sambarun.RunError, match=r"chain\.pef disappeared while it was loaded"):
            executable.run({"x": x})


def test_a_file_replaced_after_load_does_no_harm(chain, chain_pef, x, reference):
    with sambarun.load(chain_pef) as executable:
        executable.prepare()
        os.replace(chain_pef, chain_pef.with_name("moved.pef"))
        chain_pef.write_bytes(b"something else")
        y = executable.run({"x": x})["y"]
    np.testing.assert_allclose(y, reference(x, chain)[1], rtol=1e-5, atol=1e-5)


def test_a_link_to_a_pef_loads(chain, chain_pef, x, reference, tmp_path):
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    (folder / "link.pef").symlink_to(chain_pef)
    with sambarun.load(folder / "link.pef") as executable:
        y = executable.run({"x": x})["y"]
    np.testing.assert_allclose(y, reference(x, chain)[1], rtol=1e-5, atol=1e-5)


def test_a_weight_without_content_is_refused(chain, chain_pef):
    symbol = next(s for s in chain.program().symbols if s.name == "w")
    with (
        pef.open(chain_pef) as file,
        pytest.raises(sambarun.RunError, match="Weight 'w' has no content of known size"),
    ):
        add_weights(b"", [("w0", replace(symbol, data=None))], file)


def test_a_program_for_another_machine_is_refused(chain, x):
    program = chain.program()
    wide = tuple(replace(p, requires=("block-16",)) for p in program.programs)
    with (
        sambarun.load(replace(program, programs=wide)) as executable,
        pytest.raises(sambarun.RunError, match="Section 0 's0' has no program for this machine"),
    ):
        executable.run({"x": x})


def test_an_operator_without_a_kernel_names_its_section(spec_type, sec_type, value_type):
    from onnx import helper

    node = helper.make_node("Nonsense", ["x"], ["y"])
    spec = spec_type(
        [sec_type([node], ["x"], ["y"])], {n: value_type() for n in "xy"}, ["x"], ["y"]
    )
    with (
        sambarun.load(spec.program()) as executable,
        pytest.raises(sambarun.RunError, match=r"Section 0 's0' cannot be loaded: .*Nonsense"),
    ):
        executable.run({"x": np.ones(4, np.float32)})


@pytest.mark.parametrize(
    ("version", "told"),
    [("1.2.0", False), ("", False), ("9.0.1", True), ("999", True)],
    ids=["older", "unknown", "newer", "short"],
)
def test_what_a_newer_onnxruntime_compiled_names_both(
    version, told, spec_type, sec_type, value_type
):
    from onnx import helper

    node = helper.make_node("Nonsense", ["x"], ["y"])
    spec = spec_type(
        [sec_type([node], ["x"], ["y"])], {n: value_type() for n in "xy"}, ["x"], ["y"]
    )
    program = spec.program()
    producer = replace(program.producer, libraries=(("onnxruntime", version),))
    with (
        sambarun.load(replace(program, producer=producer)) as executable,
        pytest.raises(sambarun.RunError) as raised,
    ):
        executable.run({"x": np.ones(4, np.float32)})
    cure = f"compiled with onnxruntime {version}, and {onnxruntime.__version__} is installed"
    assert (cure in str(raised.value)) is told


def test_damage_in_a_segment_is_told_once(spec_type, sec_type, value_type, tmp_path):
    from onnx import helper

    weights = {f"w{n}": np.full(4096, n, np.float32) for n in range(9)}
    nodes = [
        helper.make_node("Add", ["x" if n == 0 else f"h{n}", f"w{n}"], [f"h{n + 1}"])
        for n in range(9)
    ]
    nodes[-1].output[0] = "y"
    spec = spec_type(
        sections=[sec_type(nodes, ["x"], ["y"], list(weights))],
        values={name: value_type((4096,)) for name in "xy"},
        inputs=["x"],
        outputs=["y"],
        weights=weights,
    )
    path = tmp_path / "chain.pef"
    spec.program().save(path)
    weight = next(symbol for symbol in pef.verify(path).symbols if symbol.name == "w3")
    flip(path, offset_of(path, weight.data))
    with (
        sambarun.load(path) as executable,
        pytest.raises(sambarun.RunError) as caught,
    ):
        executable.run({"x": np.zeros(4096, np.float32)})
    (line,) = str(caught.value).splitlines()
    assert line.startswith("Weight 'w0', Weight 'w1', Weight 'w2', Weight 'w3', Weight 'w4' and 4")
    assert line.count("SHA-256") == 1
