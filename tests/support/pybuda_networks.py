"""Small networks of the kinds that programs run, with random weights and no dropout."""

from __future__ import annotations

import torch
import transformers
from torch import nn
from torch.nn import functional

import pybuda

WORDS = 40


class Encoder(nn.Module):
    """BERT: of ids [N, T] and their mask [N, T] rows [N, T, 16] and a vector [N, 16]."""

    def __init__(self) -> None:
        super().__init__()
        self.body = transformers.BertModel(
            transformers.BertConfig(
                vocab_size=WORDS, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
                intermediate_size=32, max_position_embeddings=16, hidden_dropout_prob=0.0,
                attention_probs_dropout_prob=0.0,
            )
        )  # fmt: skip

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> object:
        return self.body(input_ids=input_ids, attention_mask=attention_mask).to_tuple()


class EncoderClassifier(nn.Module):
    """Of ids [N, T] logits [N, 4]."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = Encoder()
        self.classify = nn.Linear(16, 4)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        _, pooled = self.encoder(ids, torch.ones_like(ids))
        found: torch.Tensor = self.classify(pooled)
        return found


class Decoder(nn.Module):
    """GPT-2: of ids [N, T] logits [N, T, words]."""

    def __init__(self) -> None:
        super().__init__()
        self.body = transformers.GPT2LMHeadModel(
            transformers.GPT2Config(
                vocab_size=WORDS, n_embd=16, n_layer=2, n_head=2, n_positions=16, bos_token_id=0,
                eos_token_id=0, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False,
            )
        )  # fmt: skip

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.body(ids).logits
        return found


class Residual(nn.Module):
    """Convolutions with running statistics, groups and a residual: [N, 3, 16, 16] to [N, 5]."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.block = nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, groups=2), nn.BatchNorm2d(8))
        self.end = nn.Sequential(
            nn.MaxPool2d(3, 2, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5)
        )
        for norm in (self.stem[1], self.block[1]):
            norm.running_mean.normal_()
            norm.running_var.uniform_(0.5, 2.0)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.stem(x)
        found: torch.Tensor = self.end(functional.relu(x + self.block(x)))
        return found


class Detector(nn.Module):
    """A head: of pictures [N, 3, 16, 16] boxes [N, 64, 4] and the 3 best scores [N, 64, 3]."""

    grid: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Conv2d(3, 8, 3, 2, 1)
        self.side = nn.Conv2d(8, 8, 1)
        self.boxes = nn.Conv2d(8, 4, 1)
        self.classes = nn.Conv2d(8, 6, 1)
        y, x = torch.meshgrid(torch.arange(8.0), torch.arange(8.0), indexing="ij")
        self.register_buffer("grid", torch.stack((x, y)))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = functional.silu(self.body(x))
        larger = functional.interpolate(self.side(x), scale_factor=2, mode="nearest")
        x = x + functional.max_pool2d(larger, 2)
        places = self.boxes(x).sigmoid()
        middle, half = (2 * places[:, :2] - 0.5 + self.grid) * 2, 2 * places[:, 2:] ** 2
        boxes = torch.cat((middle - half, middle + half), 1).flatten(2).transpose(1, 2)
        scores = self.classes(x).flatten(2).transpose(1, 2).sigmoid()
        return boxes, scores.topk(3, dim=-1).values


class Recurrent(nn.Module):
    """Two LSTM layers in both directions: [N, T, 6] to [N, 4]."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.LSTM(6, 8, 2, batch_first=True, bidirectional=True)
        self.classify = nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.classify(self.layers(x)[0][:, -1])
        return found


def convolutions() -> nn.Module:
    """Return what makes [N, 4] of [N, 1, 8, 8]; each picture is normalized by itself."""
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(),
        nn.Conv2d(8, 8, 3, stride=2, groups=2), nn.GELU(),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4),
    )  # fmt: skip


class Layers(pybuda.PyBudaModule):
    """A perceptron in PyBuda's own operators: [N, 8] to shares [N, 4]."""

    def __init__(self) -> None:
        super().__init__("layers")
        self.first = pybuda.Parameter(torch.randn(8, 16))
        self.first_bias = pybuda.Parameter(torch.randn(1, 16))
        self.scale = pybuda.Parameter(torch.rand(16) + 0.5)
        self.shift = pybuda.Parameter(torch.randn(16))
        self.second = pybuda.Parameter(torch.randn(16, 4))

    def forward(self, x: pybuda.Tensor) -> pybuda.Tensor:
        x = pybuda.op.Matmul("first", x, self.first, bias=self.first_bias)
        x = pybuda.op.Layernorm("norm", pybuda.op.Gelu("gelu", x), self.scale, self.shift)
        return pybuda.op.Softmax("shares", pybuda.op.Matmul("second", x, self.second), dim=-1)

    def expected(self, x: torch.Tensor) -> torch.Tensor:
        """Return what `forward` gives, by torch in the type of `x`."""
        w, b, scale, shift, v = (each.value().to(x.dtype) for each in self.get_parameters())
        x = functional.layer_norm(functional.gelu(x @ w + b), (16,), scale, shift)
        return (x @ v).softmax(-1)
