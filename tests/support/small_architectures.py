"""Small random models of published architectures that differ, with what they are called with.

Each makes a module, the keywords to infer with, and those to train with, from which the module
computes its loss; None where it has no loss of its own, and the mean of squares stands for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import torch
import transformers
from torch import Tensor, nn

BATCH, LENGTH, VOCABULARY = 2, 8, 40

_HIDDEN = {
    "vocab_size": VOCABULARY, "hidden_size": 32, "num_hidden_layers": 1,
    "num_attention_heads": 4, "intermediate_size": 64,
}  # fmt: skip
_DECODER = {**_HIDDEN, "num_key_value_heads": 2, "max_position_embeddings": 32}
_GPT = {"vocab_size": VOCABULARY, "n_embd": 32, "n_layer": 1, "n_head": 4, "n_positions": 16}
_PAIR = {
    "vocab_size": VOCABULARY, "d_model": 32, "encoder_layers": 1, "decoder_layers": 1,
    "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64, "max_position_embeddings": 32, "pad_token_id": 0, "bos_token_id": 1,
    "eos_token_id": 2, "decoder_start_token_id": 1, "forced_eos_token_id": None,
}  # fmt: skip
_ENDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
_SIGHT = {**_HIDDEN, "image_size": 32, "patch_size": 8}
_WINDOWS = {
    "image_size": 16, "patch_size": 2, "embed_dim": 16, "depths": [2], "num_heads": [2],
    "window_size": 4, "drop_path_rate": 0.5,
}  # fmt: skip
_WAVES = {
    **_HIDDEN, "conv_dim": (16, 16), "conv_stride": (4, 2), "conv_kernel": (8, 4),
    "num_feat_extract_layers": 2, "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 2, "apply_spec_augment": False, "layerdrop": 0.0,
}  # fmt: skip


@dataclass(frozen=True)
class Architecture:
    """A model of transformers, `kind` of which says what it reads, with a configuration."""

    kind: str
    model: str
    config: str
    settings: Mapping[str, object] = field(default_factory=dict)

    def make(self) -> tuple[nn.Module, dict[str, Tensor], dict[str, Tensor] | None]:
        """Return the module and its two kinds of keywords."""
        config = getattr(transformers, self.config)(**self.settings)
        config.problem_type = "single_label_classification"
        module = getattr(transformers, self.model)(config)
        return module, *_KINDS[self.kind]()


class Squares(nn.Module):
    """The mean of squares of a model's first result, as its loss."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, **inputs: Tensor) -> dict[str, Tensor]:
        """Return the loss alone."""
        return {"loss": self.model(**inputs)[0].square().mean()}


def _ids() -> Tensor:
    return torch.randint(3, VOCABULARY - 1, (BATCH, LENGTH))


def _classified() -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    text = {"input_ids": _ids(), "attention_mask": torch.ones(BATCH, LENGTH, dtype=torch.long)}
    return text, {**text, "labels": torch.tensor([0, 1])}


def _continued() -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    ids = _ids()
    return {"input_ids": ids}, {"input_ids": ids, "labels": ids}


def _translated() -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    text = {"input_ids": _ids(), "decoder_input_ids": _ids()}
    return text, {"input_ids": text["input_ids"], "labels": _ids()}


def _seen(
    size: int, batch: int = BATCH
) -> Callable[[], tuple[dict[str, Tensor], dict[str, Tensor]]]:
    def make() -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        picture = {"pixel_values": torch.randn(batch, 3, size, size)}
        return picture, {**picture, "labels": torch.arange(batch) % 2}

    return make


def _heard() -> tuple[dict[str, Tensor], None]:
    return {"input_values": torch.randn(BATCH, 160)}, None


def _dictated() -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    sound = {"input_features": torch.randn(BATCH, 8, 32)}
    return {**sound, "decoder_input_ids": _ids()}, {**sound, "labels": _ids()}


_KINDS: Mapping[str, Callable[[], tuple[dict[str, Tensor], dict[str, Tensor] | None]]] = {
    "class": _classified,
    "continue": _continued,
    "dictate": _dictated,
    "hear": _heard,
    "see16": _seen(16),
    "see32": _seen(32),
    "see64": _seen(64),
    "see32 in sixteens": _seen(32, 16),
    "see64 in sixteens": _seen(64, 16),
    "translate": _translated,
}


def _classifier(name: str, **settings: object) -> Architecture:
    model, config = f"{name}ForSequenceClassification", f"{name}Config"
    return Architecture("class", model, config, {**_HIDDEN, **settings})


def _decoder(name: str, model: str = "ForCausalLM", **settings: object) -> Architecture:
    return Architecture("continue", f"{name}{model}", f"{name}Config", settings)


def _vision(name: str, size: int, **settings: object) -> Architecture:
    model, config = f"{name}ForImageClassification", f"{name}Config"
    return Architecture(f"see{size}", model, config, settings)


def _normalized(name: str, size: int, **settings: object) -> Architecture:
    """Return a model of many batch normalisations one after another.

    Of two examples each of them makes the rounding errors of a step so large that PyTorch itself,
    in float32, is nowhere near what it computes in float64.
    """
    return replace(_vision(name, size, **settings), kind=f"see{size} in sixteens")


_POSITIONS = {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]}

ARCHITECTURES: Mapping[str, Architecture] = {
    "albert": _classifier("Albert", embedding_size=16),
    "bart": Architecture("translate", "BartForConditionalGeneration", "BartConfig", _PAIR),
    "beit": _vision("Beit", 32, **_SIGHT, use_relative_position_bias=True),
    "convnext": _vision(
        "ConvNext", 32, hidden_sizes=[8, 16], depths=[1, 1], num_stages=2, drop_path_rate=0.5,
        layer_scale_init_value=0.1,
    ),
    "deberta": _classifier("DebertaV2", **_POSITIONS, position_buckets=8),
    "funnel": Architecture(
        "class", "FunnelForSequenceClassification", "FunnelConfig",
        {"vocab_size": VOCABULARY, "block_sizes": [1, 1], "num_decoder_layers": 1, "d_model": 32,
         "n_head": 4, "d_head": 8, "d_inner": 64},
    ),
    "gpt_oss": _decoder(
        "GptOss", **_DECODER, **_ENDS, head_dim=8, num_local_experts=4, num_experts_per_tok=2,
        sliding_window=4,
    ),
    "gptj": _decoder("GPTJ", **_GPT, rotary_dim=4),
    "hiera": _vision(
        "Hiera", 32, image_size=[32, 32], embed_dim=16, depths=[1, 1], num_heads=[1, 2],
        num_query_pool=1, masked_unit_size=[4, 4], masked_unit_attention=[True, False],
    ),
    "levit": _normalized(
        "Levit", 32, image_size=32, patch_size=16, hidden_sizes=[16] * 3, depths=[1] * 3,
        num_attention_heads=[2] * 3, key_dim=[8] * 3,
        down_ops=[["Subsample", 8, 2, 4, 2, 2], ["Subsample", 8, 2, 4, 2, 2]],
    ),
    "mamba2": _decoder(
        "Mamba2", **_ENDS, vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=1,
        state_size=4, num_heads=8, head_dim=8, n_groups=2, chunk_size=4,
    ),
    "mistral": _decoder("Mistral", **_DECODER, sliding_window=4),
    "mixtral": _decoder("Mixtral", **_DECODER, num_local_experts=4, num_experts_per_tok=2),
    # Without the kinks of ReLU6, which numbers that are rounded otherwise pass on the other side.
    "mobilenet": _normalized(
        "MobileNetV2", 32, image_size=32, depth_multiplier=0.25, min_depth=8, output_stride=8,
        depth_divisible_by=8, finegrained_output=False, hidden_act="silu",
    ),
    "mobilevit": _normalized(
        "MobileViT", 64, image_size=64, hidden_sizes=[16] * 3, num_attention_heads=2,
        neck_hidden_sizes=[8, 8, 8, 16, 16, 16, 32], expand_ratio=2.0,
    ),
    "mpt": _decoder(
        "Mpt", vocab_size=VOCABULARY, d_model=32, n_layers=1, n_heads=4, max_seq_len=32
    ),
    "poolformer": _vision("PoolFormer", 64, hidden_sizes=[8, 16, 16, 16], depths=[1, 1, 1, 1]),
    "resnet": _vision("ResNet", 32, embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1]),
    "roformer": _classifier("RoFormer"),
    "segformer": _vision(
        "Segformer", 64, depths=[1, 1, 1, 1], hidden_sizes=[8, 8, 16, 16],
        num_attention_heads=[1, 1, 2, 2], decoder_hidden_size=16, drop_path_rate=0.5,
    ),
    "swin": _vision("Swin", 16, **_WINDOWS),
    "swinv2": _vision("Swinv2", 16, **_WINDOWS),
    "t5": Architecture(
        "translate", "T5ForConditionalGeneration", "T5Config",
        {"vocab_size": VOCABULARY, "d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 1,
         "num_heads": 4, "decoder_start_token_id": 0},
    ),
    "wav2vec2": Architecture("hear", "Wav2Vec2Model", "Wav2Vec2Config", _WAVES),
    "wavlm": Architecture(
        "hear", "WavLMModel", "WavLMConfig", {**_WAVES, "num_buckets": 8, "max_bucket_distance": 16}
    ),
    "whisper": Architecture(
        "dictate", "WhisperForConditionalGeneration", "WhisperConfig",
        {**_PAIR, "num_mel_bins": 8, "max_source_positions": 16, "max_target_positions": 16,
         "suppress_tokens": None, "begin_suppress_tokens": None},
    ),
    "xlnet": _classifier("XLNet", d_model=32, n_layer=1, n_head=4, d_inner=64),
}  # fmt: skip
