"""Published architectures of the transformers package with random weights, as ONNX for inference.

Sizes are those of small models that people run; the batch is 1. What PyTorch's own exporter writes
is what both engines load.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnx
import torch
import transformers
from torch import Tensor, nn

Inputs = Mapping[str, Tensor]
Made = tuple[nn.Module, Inputs]
_PLAIN = "eager"
"""Attention in single operators, where PyTorch cannot export its own with a bias."""


class _Main(nn.Module):
    """A model of the package, called by names, that gives its main result alone."""

    def __init__(self, model: nn.Module, names: tuple[str, ...]) -> None:
        super().__init__()
        self.model, self.names = model, names

    def forward(self, *values: Tensor) -> Tensor:
        return self.model(**dict(zip(self.names, values, strict=True)), return_dict=True)[0]


def _words(vocabulary: int) -> Inputs:
    generator = torch.Generator().manual_seed(0)
    return {"input_ids": torch.randint(0, vocabulary, (1, 128), generator=generator)}


def _pixels(side: int) -> Inputs:
    generator = torch.Generator().manual_seed(0)
    return {"pixel_values": torch.randn((1, 3, side, side), generator=generator)}


def _sound(name: str, shape: tuple[int, ...]) -> Inputs:
    return {name: torch.randn(shape, generator=torch.Generator().manual_seed(0))}


def _distilbert() -> Made:
    return transformers.DistilBertModel(transformers.DistilBertConfig()), _words(30522)


def _gpt2() -> Made:
    config = transformers.GPT2Config(n_embd=512, n_layer=4, n_head=8, use_cache=False)
    return transformers.GPT2LMHeadModel(config), _words(50257)


def _llama() -> Made:
    config = transformers.LlamaConfig(
        vocab_size=8000, hidden_size=512, intermediate_size=1376, num_hidden_layers=4,
        num_attention_heads=8, num_key_value_heads=4, use_cache=False,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config), _words(8000)


def _t5() -> Made:
    config = transformers.T5Config(attn_implementation=_PLAIN)
    return transformers.T5EncoderModel(config), _words(32128)


def _vit() -> Made:
    config = transformers.ViTConfig(
        hidden_size=384, num_hidden_layers=6, num_attention_heads=6, intermediate_size=1536
    )
    return transformers.ViTForImageClassification(config), _pixels(224)


def _swin() -> Made:
    config = transformers.SwinConfig(attn_implementation=_PLAIN)
    return transformers.SwinForImageClassification(config), _pixels(224)


def _segformer() -> Made:
    config = transformers.SegformerConfig(num_labels=150)
    return transformers.SegformerForSemanticSegmentation(config), _pixels(256)


def _resnet50() -> Made:
    return transformers.ResNetForImageClassification(transformers.ResNetConfig()), _pixels(224)


def _mobilenet() -> Made:
    config = transformers.MobileNetV2Config()
    return transformers.MobileNetV2ForImageClassification(config), _pixels(224)


def _efficientnet() -> Made:
    config = transformers.EfficientNetConfig(
        width_coefficient=1.0, depth_coefficient=1.0, image_size=224, hidden_dim=1280
    )
    return transformers.EfficientNetForImageClassification(config), _pixels(224)


def _convnext() -> Made:
    return transformers.ConvNextForImageClassification(transformers.ConvNextConfig()), _pixels(224)


def _whisper() -> Made:
    config = transformers.WhisperConfig(max_source_positions=500)  # ten seconds of sound
    encoder = transformers.WhisperModel(config).encoder
    return encoder, _sound("input_features", (1, 80, 1000))


def _wav2vec2() -> Made:
    config = transformers.Wav2Vec2Config(
        hidden_size=384, num_hidden_layers=6, num_attention_heads=6, intermediate_size=1536
    )
    return transformers.Wav2Vec2Model(config), _sound("input_values", (1, 16000))


def _settle(module: nn.Module, inputs: Inputs) -> None:
    """Draw weights for BatchNorm's sake, and give it the statistics of `inputs`.

    With those that the package draws numbers vanish from layer to layer.
    """
    module.eval()
    norms = [part for part in module.modules() if isinstance(part, nn.BatchNorm2d)]
    if not norms:
        return
    for part in module.modules():
        if isinstance(part, nn.Conv2d):
            nn.init.kaiming_normal_(part.weight)
    for norm in norms:
        norm.reset_parameters()
        norm.momentum = 1.0
        norm.train()
    with torch.no_grad():
        module(**inputs)
    module.eval()


MODELS: Mapping[str, Callable[[], Made]] = {
    "distilbert": _distilbert,
    "gpt2 4x512": _gpt2,
    "llama 4x512": _llama,
    "t5 encoder": _t5,
    "vit 6x384": _vit,
    "swin": _swin,
    "segformer": _segformer,
    "resnet50": _resnet50,
    "mobilenet_v2": _mobilenet,
    "efficientnet_b0": _efficientnet,
    "convnext": _convnext,
    "whisper encoder": _whisper,
    "wav2vec2 6x384": _wav2vec2,
}


def exported(name: str) -> onnx.ModelProto:
    """A model as `torch.onnx.export` writes it; its inputs keep their names."""
    torch.manual_seed(0)
    module, inputs = MODELS[name]()
    _settle(module, inputs)
    wrapped = _Main(module, tuple(inputs))
    program = torch.onnx.export(
        wrapped, tuple(inputs.values()), input_names=list(inputs), dynamo=True, verbose=False
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        program.save(path)
        return onnx.load(path)


def feeds(name: str) -> Mapping[str, np.ndarray]:
    """Random values for the inputs of a model, the same each time."""
    _, inputs = MODELS[name]()
    return {key: value.numpy() for key, value in inputs.items()}
