"""Small random configurations of published architectures, each with its own loss."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from transformers import (
    BertConfig,
    BertForMaskedLM,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    ResNetConfig,
    ResNetForImageClassification,
    ViTConfig,
    ViTForImageClassification,
)

from benchmarks.models.training import Batch, Trainee

VOCABULARY, BATCH, LENGTH, CLASSES = 89, 2, 12, 5


class Loss(nn.Module):
    """A model of the library that returns its loss alone."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        """Return the loss of `x` against `labels`."""
        return self.model(x, labels=labels)["loss"]


def _tokens(seed: int) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(0, VOCABULARY, (BATCH, LENGTH), generator=generator)
    return ids, torch.randint(0, VOCABULARY, (BATCH, LENGTH), generator=generator)


def _images(seed: int) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn((4, 3, 32, 32), generator=generator)
    return x, torch.randint(0, CLASSES, (4,), generator=generator)


def bert() -> Trainee:
    """BERT with a masked-language head."""
    config = BertConfig(
        vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=64, max_position_embeddings=32, hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    return Trainee(Loss(BertForMaskedLM(config)), _tokens)


def gpt2() -> Trainee:
    """GPT-2 with its tied head."""
    config = GPT2Config(
        vocab_size=VOCABULARY, n_positions=32, n_embd=32, n_layer=2, n_head=4, embd_pdrop=0.0,
        attn_pdrop=0.0, resid_pdrop=0.0,
    )  # fmt: skip
    return Trainee(Loss(GPT2LMHeadModel(config)), _tokens)


def llama() -> Trainee:
    """Llama with grouped queries and rotary embeddings."""
    config = LlamaConfig(
        vocab_size=VOCABULARY, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=32,
    )  # fmt: skip
    return Trainee(Loss(LlamaForCausalLM(config)), _tokens)


def vit() -> Trainee:
    """A vision transformer."""
    config = ViTConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=64,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, image_size=32, patch_size=8,
        num_labels=CLASSES,
    )  # fmt: skip
    return Trainee(Loss(ViTForImageClassification(config)), _images)


def resnet() -> Trainee:
    """A residual network with BatchNorm."""
    config = ResNetConfig(
        embedding_size=16, hidden_sizes=[16, 32], depths=[1, 1], layer_type="basic",
        num_labels=CLASSES,
    )  # fmt: skip
    return Trainee(Loss(ResNetForImageClassification(config)), _images)


MODELS: dict[str, Callable[[], Trainee]] = {
    "bert": bert,
    "gpt2": gpt2,
    "llama": llama,
    "resnet": resnet,
    "vit": vit,
}
