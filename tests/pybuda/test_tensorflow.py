"""Models of Keras run and train on a `CPUDevice`, where TensorFlow is installed."""

from __future__ import annotations

import sys

import pytest
import torch
from pybuda_training import l1, sgd, taken
from torch import nn

import pybuda

X = torch.linspace(-1, 1, 24).reshape(3, 8)


def test_without_tensorflow(monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(pybuda.PyBudaError, match="TFModule 'model': TensorFlow is not installed"):
        pybuda.TFModule("model", object())


@pytest.fixture
def module() -> pybuda.TFModule:
    tf = pytest.importorskip("tensorflow")
    layers = [tf.keras.layers.Dense(6, activation="tanh"), tf.keras.layers.Dense(4)]
    model = tf.keras.Sequential([tf.keras.layers.Input((8,)), *layers])
    return pybuda.TFModule("model", model)


def peer_of(module: pybuda.TFModule) -> nn.Sequential:
    """The same model in torch."""
    peer = nn.Sequential(nn.Linear(8, 6), nn.Tanh(), nn.Linear(6, 4))
    kernel, bias, second, second_bias = (p.value() for p in module.get_parameters())
    with torch.no_grad():
        for own, theirs in zip(
            peer.parameters(), (kernel.T, bias, second.T, second_bias), strict=True
        ):
            own.copy_(theirs)
    return peer


def test_a_model_of_keras(module: pybuda.TFModule) -> None:
    device = pybuda.CPUDevice("cpu0", module=module)
    device.push_to_inputs(X)
    (found,) = pybuda.run_inference().get(timeout=60)
    assert torch.allclose(found.value(), peer_of(module)(X), atol=1e-6)
    (called,) = module.call(X)
    assert torch.equal(called, found.value())
    (named,) = module.forward(inputs=X)
    assert torch.equal(named, called)
    pybuda.shutdown()
    pybuda.TTDevice("tt0", module=module)
    with pytest.raises(pybuda.PyBudaError, match="'model' is a model of TensorFlow; place it on a"):
        pybuda.run_inference(inputs=[X])
    with pytest.raises(pybuda.PyBudaError, match=r"a Linear came; a tf\.keras\.Model was"):
        pybuda.TFModule("model", nn.Linear(1, 1))


def test_gradients_flow_back_through_forward(module: pybuda.TFModule) -> None:
    x, expected = (X.clone().requires_grad_() for _ in range(2))
    (result,) = module.forward(inputs=x)
    module.backward((result, torch.ones_like(result)))
    peer = peer_of(module)
    peer(expected).sum().backward()
    assert torch.allclose(x.grad, expected.grad, atol=1e-6)
    kernel = module.module.get_parameter(module.get_parameters()[0].get_name())
    assert torch.allclose(kernel.grad.T, peer[0].weight.grad, atol=1e-6)


def test_it_trains_in_front_of_a_device(module: pybuda.TFModule) -> None:
    peer, head = peer_of(module), nn.Linear(4, 2)
    both = nn.Sequential(peer, nn.Linear(4, 2))
    both[1].load_state_dict(head.state_dict())
    first = pybuda.CPUDevice("cpu0", lambda m: torch.optim.SGD(m.parameters(), 0.1), module=module)
    last = pybuda.TTDevice("tt0", module=pybuda.PyTorchModule("head", head), optimizer=sgd(0.1))
    last.place_loss_module(pybuda.op.loss.L1Loss("l1"))
    target = torch.ones(3, 2)
    for _ in range(4):
        first.push_to_inputs(X)
        last.push_to_target_inputs(target)
    pybuda.run_training(steps=4)
    optimizer = torch.optim.SGD(both.parameters(), 0.1)
    for _ in range(4):
        optimizer.zero_grad()
        rows = range(3)
        losses = torch.stack([l1(both(X[i : i + 1]), target[i : i + 1]) for i in rows])
        assert torch.allclose(taken(pybuda.get_loss_queue()), losses, rtol=1e-5)
        losses.sum().backward()
        optimizer.step()
    pybuda.sync()
    kernel = torch.from_numpy(module.module._model.trainable_variables[0].numpy())
    assert torch.allclose(kernel.T, peer[0].weight, atol=1e-6)
