"""Large results become the caller's without a copy, and nobody's else."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import sambarun


@pytest.fixture
def large(spec_type, sec_type, value_type):
    """A model with results of 1 MiB, `h` that a section reads and `y`, and a small one."""
    node, value = helper.make_node, value_type((512, 512))
    spec = spec_type(
        sections=[
            sec_type([node("Neg", ["x"], ["h"])], ["x"], ["h"]),
            sec_type([node("Abs", ["h"], ["y"])], ["h"], ["y"]),
            sec_type([node("ReduceMax", ["h"], ["m"], keepdims=0)], ["h"], ["m"]),
        ],
        values={"x": value, "h": value, "y": value, "m": value_type(())},
        inputs=["x"],
        outputs=["y", "h", "m"],
    )
    return spec.program()


@pytest.mark.parametrize("link", [True, False])
def test_large_results_are_handed_over(large, link):
    """Neither of program and caller may change what is the other's, whatever runs in between."""
    ones = np.ones((512, 512), np.float32)
    with sambarun.load(large, link=link) as executable:
        executable.prepare()
        first = executable.run({"x": ones})
        for name, expected in (("y", ones), ("h", -ones), ("m", -1)):
            np.testing.assert_array_equal(first[name], expected)
        with pytest.raises(sambarun.RunError, match=r"'y' has no value now: .*copy=False to keep"):
            executable.read("y")
        first["y"][:], first["h"][:] = 7, 7
        np.testing.assert_array_equal(executable.read("h")["h"], -ones)

        executable.run({"x": 2 * ones}, copy=False)
        np.testing.assert_array_equal(executable.read("y")["y"], 2 * ones)
        second = executable.run({"x": 3 * ones})["y"]
        with pytest.raises(sambarun.RunError, match="'y' has no value now"):
            executable.read("y")
        third = executable.run({"x": 4 * ones})["y"]
        for found, factor in ((first["y"], 7), (second, 3), (third, 4)):
            np.testing.assert_array_equal(found, factor * ones)
        assert second.flags.owndata
        assert second.flags.writeable

        executable.run({"x": 5 * ones}, calls=[0, 1])
        np.testing.assert_array_equal(executable.read("y")["y"], 5 * ones)
        executable.write({"y": ones})
        np.testing.assert_array_equal(executable.read("y")["y"], ones)
        np.testing.assert_array_equal(executable.profile({"x": 6 * ones}).outputs["y"], 6 * ones)
    np.testing.assert_array_equal(third, 4 * ones)
