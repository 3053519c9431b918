"""Running needs neither the compiler nor its libraries, and says nothing on its own."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import sambac

ABSENT = ("torch", "onnx", "onnx_ir", "onnxscript", "networkx", "yaml", "sambac", "google")


@pytest.fixture
def compiled(tmp_path: Path) -> Path:
    """A small classifier at O0, so that running it takes the linker too."""
    rng = np.random.default_rng(0)
    weights = {
        "w1": rng.normal(size=(16, 32)).astype(np.float32),
        "w2": rng.normal(size=(32, 4)).astype(np.float32),
    }
    nodes = [
        helper.make_node("MatMul", ["x", "w1"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("MatMul", ["b", "w2"], ["c"]),
        helper.make_node("Softmax", ["c"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "classifier",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 16])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    onnx.checker.check_model(model)
    path = tmp_path / "classifier.pef"
    sambac.compile(model, options=sambac.CompileOptions(level="O0")).save(path)
    return path


def run_python(code: str, *arguments: object) -> str:
    """Run `code` in a process of its own; nothing may be printed as an error."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


BLOCK = f"""
    import sys

    class Absent:
        def find_spec(self, name, path=None, target=None):
            if name.partition(".")[0] in {ABSENT!r}:
                raise ModuleNotFoundError(f"No module named '{{name}}'", name=name)

    sys.meta_path.insert(0, Absent())
"""


@pytest.mark.parametrize("link", [True, False])
def test_a_pef_runs_where_only_the_runtime_is_installed(compiled: Path, link: bool) -> None:
    code = (
        BLOCK
        + """
    import numpy as np
    import sambarun

    with sambarun.load(sys.argv[1], own_process=True, link=sys.argv[2] == "True") as executable:
        y = executable.run({"x": np.ones((2, 16), np.float32)}, section_types=["FWD"])["y"]
    print(y.shape, y.dtype, np.allclose(y.sum(axis=1), 1))
    """
    )
    assert run_python(code, compiled, link) == "(2, 4) float32 True\n"


def test_a_pool_of_the_whole_process_is_made_once(compiled: Path) -> None:
    """Later loads share it, whether they ask for it or not."""
    code = """
    import sys
    import numpy as np
    import sambarun

    x = {"x": np.ones((2, 16), np.float32)}
    results = []
    for options in ({"own_process": True, "threads": 1}, {"own_process": True}, {}, {"threads": 2}):
        with sambarun.load(sys.argv[1], **options) as executable:
            results.append(executable.run(x)["y"])
    print(all(np.array_equal(results[0], other) for other in results))
    """
    assert run_python(code, compiled) == "True\n"


def test_a_library_leaves_other_sessions_alone(compiled: Path) -> None:
    """Without `own_process`, other code in the process can still make ordinary sessions."""
    code = """
    import sys
    import numpy as np
    import onnxruntime
    import sambarun

    executable = sambarun.load(sys.argv[1])
    executable.run({"x": np.ones((2, 16), np.float32)})
    options = onnxruntime.SessionOptions()
    print(options.use_per_session_threads)
    import onnx
    from onnx import helper
    info = helper.make_tensor_value_info("v", 1, [1])
    out = helper.make_tensor_value_info("u", 1, [1])
    graph = helper.make_graph([helper.make_node("Neg", ["v"], ["u"])], "g", [info], [out])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    session = onnxruntime.InferenceSession(model.SerializeToString())
    print(session.run(None, {"v": np.ones(1, np.float32)})[0])
    """
    assert run_python(code, compiled) == "True\n[-1.]\n"


def test_an_executable_that_nobody_closes_ends_quietly(compiled: Path) -> None:
    code = """
    import sys
    import numpy as np
    import pef
    import sambarun

    executables = [sambarun.load(sys.argv[1]), sambarun.load(pef.verify(sys.argv[1]))]
    executables.append(executables[0].clone())
    views = [
        executable.run({"x": np.ones((2, 16), np.float32)}, copy=False)["y"]
        for executable in executables
    ]
    del executables
    print(len({float(view.sum()) for view in views}))
    """
    assert run_python(code, compiled) == "1\n"


def test_a_failing_run_prints_nothing_of_its_own(compiled: Path) -> None:
    code = """
    import sys
    import numpy as np
    import sambarun

    executable = sambarun.load(sys.argv[1])
    try:
        executable.run({"x": np.ones((2, 17), np.float32)})
    except sambarun.RunError as error:
        print(error)
    """
    assert run_python(code, compiled) == (
        "Input 'x' has shape [2, 17]; float32[2, 16] was expected.\n"
    )
