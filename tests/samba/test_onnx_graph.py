"""`trace_graph` with an ONNX model, whose PEF `sambac` made from the file."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
import torch

import sambac
import sambaflow.samba as samba
from sambaflow.samba import SambaError, utils

_TEXT = """
<ir_version: 10, opset_import: ["": 21]>
scaled (float[{rows},3] image, float[2] scale) => (float[{rows},2] out, float[{rows}] most)
<float[3,2] weight = {{1, 2, 3, 4, 5, 6}}>
{{
  product = MatMul (image, weight)
  out = Mul (product, scale)
  most = ReduceMax <keepdims = 0> (out, axis)
}}"""


def model(rows="4"):
    found = onnx.parser.parse_model(_TEXT.format(rows=rows))
    found.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1]), "axis"))
    onnx.checker.check_model(found)
    return found


@pytest.fixture(scope="module")
def pef(tmp_path_factory):
    path = tmp_path_factory.mktemp("out") / "scaled.pef"
    sambac.compile(model()).save(path)
    return str(path)


@pytest.fixture(autouse=True)
def _anew():
    yield
    samba.session.reset()


def inputs():
    generator = torch.Generator().manual_seed(0)
    image = samba.randn(4, 3, name="image", generator=generator)
    return image, samba.from_torch_tensor(torch.tensor([2.0, 3.0]), name="scale")


@pytest.mark.parametrize("rows", ["4", "N"], ids=["fixed", "open"])
def test_a_model_is_traced_and_runs(pef, rows):
    image, scale = inputs()
    outputs = utils.trace_graph(model(rows), (image, scale), pef=pef)
    assert [(output.sn_name, *output.shape) for output in outputs] == [("out", 4, 2), ("most", 4)]
    out, most = samba.session.run((image, scale), outputs)
    wanted = image.torch() @ torch.arange(1.0, 7.0).reshape(3, 2) * scale.torch()
    torch.testing.assert_close(out.torch(), wanted)
    torch.testing.assert_close(most.torch(), wanted.amax(1))
    assert samba.session.get_samba_tensor_by_name("image") is image


def test_inputs_go_by_keyword_too(pef):
    image, scale = inputs()
    outputs = utils.trace_graph(model(), {"scale": scale, "image": image}, pef=pef)
    assert len(samba.session.run({"image": image, "scale": scale}, outputs)) == 2


def test_another_shape_or_name_is_told(pef):
    _, scale = inputs()
    with pytest.raises(
        SambaError, match=r"input 'image' is float32\[5, 3\], in the PEF .*\[4, 3\]"
    ):
        utils.trace_graph(model("N"), (samba.zeros(5, 3, name="image"), scale), pef=pef)
    with pytest.raises(SambaError, match="input 'picture' is not in the PEF"):
        utils.trace_graph(model(), (samba.zeros(4, 3, name="picture"), scale), pef=pef)


def test_what_is_no_model_is_told(pef):
    with pytest.raises(SambaError, match=r"model is 'model.onnx'; expected a torch.nn.Module"):
        utils.trace_graph("model.onnx", inputs(), pef=pef)


def test_outputs_of_open_shapes_are_told(pef):
    found = model("N")
    found.graph.input[0].type.tensor_type.ClearField("shape")
    del found.graph.node[:]
    with pytest.raises(SambaError, match="shapes do not follow from those of its inputs"):
        utils.trace_graph(found, inputs(), pef=pef)


def test_an_input_may_have_a_name_that_is_no_word_of_python(tmp_path):
    named = model("N")
    named.graph.input[0].name = named.graph.node[0].input[0] = "x.1"
    path = tmp_path / "named.pef"
    fixed = onnx.ModelProto.FromString(named.SerializeToString())
    fixed.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 4
    sambac.compile(fixed).save(path)
    _, scale = inputs()
    image = samba.ones(4, 3, name="x.1")
    outputs = utils.trace_graph(named, (image, scale), pef=str(path))
    out, _ = samba.session.run((image, scale), outputs)
    assert out[0].tolist() == [18.0, 36.0]


def test_the_host_does_not_run_it():
    from sambaflow.samba.trace.onnx_graph import OnnxStandIn

    with pytest.raises(SambaError, match=r"run it with samba\.session\.run"):
        OnnxStandIn(model())(*inputs())
