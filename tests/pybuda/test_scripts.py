"""Scripts as users write them: what they import and configure, and how they read results."""

from __future__ import annotations

import warnings
from pathlib import Path

import onnx
import torch
from near import assert_near, exactly
from pybuda_networks import Encoder, Residual
from pybuda_runs import tanh
from pybuda_training import WAIT

import pybuda
from pybuda._C import DataFormat
from pybuda._C.backend_api import BackendDevice


def test_a_script_for_pictures() -> None:
    torch.manual_seed(0)
    compiler_cfg = pybuda.config._get_global_compiler_config()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        compiler_cfg.balancer_policy = "Ribbon"
        compiler_cfg.enable_auto_fusing = False
        compiler_cfg.enable_t_streaming = True
        compiler_cfg.default_dram_parameters = False
        compiler_cfg.balancer_op_override("conv2d_0.dc.matmul.8", "t_stream_shape", (1, 1))
        compiler_cfg.place_on_new_epoch("block.0")
    assert len(caught) == 5
    assert {each.category for each in caught} == {UserWarning}
    available = pybuda.detect_available_devices()
    wormhole = bool(available) and available[0] == BackendDevice.Wormhole_B0
    compiler_cfg.default_df_override = DataFormat.Float16_b if wormhole else DataFormat.Float16
    model, pixels = Residual().eval(), torch.randn(1, 3, 16, 16)
    tt_model = pybuda.PyTorchModule("pt_residual", model)
    output_q = pybuda.run_inference(tt_model, inputs=([pixels]))
    output = output_q.get(timeout=WAIT)
    assert isinstance(output, list)
    with torch.no_grad():
        expected = exactly(model)(pixels.double())
    assert_near(output[0].value(), expected, 3e-2)
    assert float((output[0].to_pytorch() - expected).abs().max()) > 1e-4  # 8 digits were kept


def test_a_script_for_words() -> None:
    torch.manual_seed(0)
    compiler_cfg = pybuda.config._get_global_compiler_config()
    compiler_cfg.default_df_override = pybuda._C.DataFormat.Float32
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compiler_cfg.cpu_fallback_ops.discard("embedding")
        compiler_cfg.enable_tvm_cpu_fallback = False
    model = Encoder().eval()
    ids, mask = torch.randint(0, 40, (1, 8)), torch.ones(1, 8, dtype=torch.int64)
    sample = (pybuda.Tensor.create_from_torch(ids), pybuda.Tensor.create_from_torch(mask))
    device = pybuda.TTDevice("tt0", arch=BackendDevice.from_string("wormhole_b0"))
    device.place_module(pybuda.PyTorchModule("encoder", model))
    output_q = pybuda.initialize_pipeline(training=False, sample_inputs=sample)
    with torch.no_grad():
        expected, _ = exactly(model)(ids, mask)
    for _ in range(3):
        device.push_to_inputs(*sample)
        pybuda.run_forward(input_count=1)
        rows, _pooled = output_q.get(timeout=WAIT)
        assert_near(rows.value(), expected)


def test_a_script_for_an_onnx_file(tmp_path: Path) -> None:
    path = tmp_path / "tanh.onnx"
    onnx.save(tanh(4), path)
    tt_model = pybuda.OnnxModule("onnx_tanh", onnx.load(path), path)
    x = torch.linspace(-1, 1, 4)[None]
    (output,) = pybuda.run_inference(tt_model, inputs=[(x,)]).get(timeout=WAIT)
    assert_near(output.to_framework("onnx"), x.double().tanh())
