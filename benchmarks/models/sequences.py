"""Networks for text, series and tables to train, as users write them; sizes are arguments.

Each maker returns a `Trainee` whose module takes a batch and gives the loss.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.models.training import Batch, Classified, Decoder, Trainee, rng


def _next_words(batch: int, length: int, vocabulary: int, seed: int) -> Batch:
    """Words and those that follow them, `[batch, length]` each."""
    words = torch.randint(0, vocabulary, (batch, length + 1), generator=rng(seed))
    return words[:, :-1].contiguous(), words[:, 1:].contiguous()


def _text(batch: int, length: int, vocabulary: int, classes: int, seed: int) -> Batch:
    """Words `[batch, length]` and a class for each text."""
    generator = rng(seed)
    words = torch.randint(0, vocabulary, (batch, length), generator=generator)
    return words, torch.randint(0, classes, (batch,), generator=generator)


class _LstmModel(nn.Module):
    def __init__(self, vocabulary: int, width: int, hidden: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.lstm = nn.LSTM(width, hidden, num_layers=2, batch_first=True)
        self.head = nn.Linear(hidden, vocabulary)

    def forward(self, words: Tensor, following: Tensor) -> Tensor:
        y, _ = self.lstm(self.embedding(words))
        return F.cross_entropy(self.head(y).flatten(0, 1), following.flatten())


def lstm_language_model(
    batch: int = 16, length: int = 32, width: int = 128, hidden: int = 256, vocabulary: int = 2000
) -> Trainee:
    """A language model of two LSTM layers."""
    return Trainee(
        _LstmModel(vocabulary, width, hidden),
        lambda seed: _next_words(batch, length, vocabulary, seed),
    )


class _GruClassifier(nn.Module):
    def __init__(self, vocabulary: int, width: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.gru = nn.GRU(width, hidden, batch_first=True, bidirectional=True)
        self.head = nn.Linear(2 * hidden, classes)

    def forward(self, words: Tensor) -> Tensor:
        y, _ = self.gru(self.embedding(words))
        return self.head(y.mean(1))


def gru_classifier(
    batch: int = 32, length: int = 48, width: int = 128, hidden: int = 128, vocabulary: int = 4000
) -> Trainee:
    """A classifier of texts with a GRU in both directions."""
    return Trainee(
        Classified(_GruClassifier(vocabulary, width, hidden, 5)),
        lambda seed: _text(batch, length, vocabulary, 5, seed),
    )


def gpt2(
    batch: int = 8,
    length: int = 64,
    width: int = 256,
    layers: int = 4,
    heads: int = 8,
    vocabulary: int = 5000,
) -> Trainee:
    """A GPT-2 with a tied head."""
    return Trainee(
        Decoder(vocabulary, width, layers, heads, length),
        lambda seed: _next_words(batch, length, vocabulary, seed),
    )


class _RmsNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class _LlamaBlock(nn.Module):
    """Attention with rotated positions and shared keys, and a gated perceptron."""

    def __init__(self, width: int, heads: int, shared: int) -> None:
        super().__init__()
        self.heads, self.shared, size = heads, shared, width // heads
        self.norm1, self.norm2 = _RmsNorm(width), _RmsNorm(width)
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(width, shared * size, bias=False)
        self.v = nn.Linear(width, shared * size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        inner = 8 * width // 3
        self.gate = nn.Linear(width, inner, bias=False)
        self.up = nn.Linear(width, inner, bias=False)
        self.down = nn.Linear(inner, width, bias=False)

    @staticmethod
    def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        a, b = x.chunk(2, -1)
        return x * cos + torch.cat([-b, a], -1) * sin

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        b, s, _ = x.shape
        y = self.norm1(x)
        q = self.q(y).view(b, s, self.heads, -1).transpose(1, 2)
        k = self.k(y).view(b, s, self.shared, -1).transpose(1, 2)
        v = self.v(y).view(b, s, self.shared, -1).transpose(1, 2)
        q, k = self._rotated(q, cos, sin), self._rotated(k, cos, sin)
        each = self.heads // self.shared
        k, v = k.repeat_interleave(each, 1), v.repeat_interleave(each, 1)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(a.transpose(1, 2).reshape(b, s, -1))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class _Llama(nn.Module):
    def __init__(self, vocabulary: int, width: int, layers: int, heads: int, length: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(_LlamaBlock(width, heads, heads // 2) for _ in range(layers))
        self.norm, self.head = _RmsNorm(width), nn.Linear(width, vocabulary, bias=False)
        size = width // heads
        rates = 10000.0 ** (-torch.arange(0, size, 2).float() / size)
        angles = torch.outer(torch.arange(length).float(), rates).repeat(1, 2)
        self.register_buffer("cos", angles.cos(), persistent=False)
        self.register_buffer("sin", angles.sin(), persistent=False)

    def forward(self, words: Tensor, following: Tensor) -> Tensor:
        x = self.tokens(words)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return F.cross_entropy(self.head(self.norm(x)).flatten(0, 1), following.flatten())


def llama(
    batch: int = 8,
    length: int = 64,
    width: int = 256,
    layers: int = 4,
    heads: int = 8,
    vocabulary: int = 5000,
) -> Trainee:
    """A Llama with half as many keys as queries."""
    return Trainee(
        _Llama(vocabulary, width, layers, heads, length),
        lambda seed: _next_words(batch, length, vocabulary, seed),
    )


class _Encoder(nn.Module):
    """A BERT over padded texts: normalisation after each part, classified by the first word."""

    def __init__(self, vocabulary: int, length: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.words = nn.Embedding(vocabulary, width, padding_idx=0)
        self.places = nn.Embedding(length, width)
        self.norm = nn.LayerNorm(width)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.pooler, self.head = nn.Linear(width, width), nn.Linear(width, 4)

    def forward(self, words: Tensor) -> Tensor:
        x = self.norm(self.words(words) + self.places(torch.arange(words.shape[1])))
        x = self.encoder(x, src_key_padding_mask=words == 0)
        return self.head(torch.tanh(self.pooler(x[:, 0])))


def bert(
    batch: int = 8,
    length: int = 96,
    width: int = 256,
    layers: int = 4,
    heads: int = 4,
    vocabulary: int = 8000,
) -> Trainee:
    """A BERT that classifies texts of which each other one ends early."""

    def draw(seed: int) -> Batch:
        words, labels = _text(batch, length, vocabulary - 1, 4, seed)
        words = words + 1
        words[::2, 2 * length // 3 :] = 0
        return words, labels

    return Trainee(Classified(_Encoder(vocabulary, length, width, layers, heads)), draw)


class _Causal(nn.Module):
    """Two causal convolutions, each twice as wide as the layer before, beside a shortcut."""

    def __init__(self, inner: int, outer: int, dilation: int) -> None:
        super().__init__()
        self.past = 2 * dilation
        self.conv1 = nn.Conv1d(inner, outer, 3, dilation=dilation)
        self.conv2 = nn.Conv1d(outer, outer, 3, dilation=dilation)
        self.shortcut = nn.Conv1d(inner, outer, 1) if inner != outer else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.conv1(F.pad(x, (self.past, 0))))
        y = F.relu(self.conv2(F.pad(y, (self.past, 0))))
        return F.relu(y + self.shortcut(x))


class _TemporalNet(nn.Module):
    def __init__(self, inputs: int, width: int, layers: int) -> None:
        super().__init__()
        sizes = (inputs, *(width,) * layers)
        self.layers = nn.Sequential(*(_Causal(sizes[i], sizes[i + 1], 2**i) for i in range(layers)))
        self.head = nn.Conv1d(width, inputs, 1)

    def forward(self, x: Tensor, following: Tensor) -> Tensor:
        return F.mse_loss(self.head(self.layers(x)), following)


def temporal_net(
    batch: int = 16, length: int = 128, inputs: int = 8, width: int = 64, layers: int = 5
) -> Trainee:
    """A temporal convolution net that predicts the next values of a series."""

    def draw(seed: int) -> Batch:
        series = torch.randn((batch, inputs, length + 1), generator=rng(seed)).cumsum(2) / 10
        return series[:, :, :-1].contiguous(), series[:, :, 1:].contiguous()

    return Trainee(_TemporalNet(inputs, width, layers), draw)


class _Tabular(nn.Module):
    """Numbers and embedded categories through a perceptron with BatchNorm."""

    def __init__(self, numbers: int, categories: tuple[int, ...], width: int) -> None:
        super().__init__()
        self.embeddings = nn.ModuleList(nn.Embedding(count, 16) for count in categories)
        self.norm = nn.BatchNorm1d(numbers)
        inputs = numbers + 16 * len(categories)
        self.layers = nn.Sequential(
            nn.Linear(inputs, width), nn.ReLU(), nn.BatchNorm1d(width),
            nn.Linear(width, width), nn.ReLU(), nn.BatchNorm1d(width),
            nn.Linear(width, width // 2), nn.ReLU(), nn.Linear(width // 2, 1),
        )  # fmt: skip

    def forward(self, numbers: Tensor, categories: Tensor, target: Tensor) -> Tensor:
        embedded = [table(categories[:, i]) for i, table in enumerate(self.embeddings)]
        logits = self.layers(torch.cat([self.norm(numbers), *embedded], 1))
        return F.binary_cross_entropy_with_logits(logits.squeeze(1), target)


def tabular(
    batch: int = 512,
    numbers: int = 16,
    categories: tuple[int, ...] = (12, 31, 50, 400, 1000, 7),
    width: int = 256,
) -> Trainee:
    """A network for tables: yes or no of a row of numbers and categories."""

    def draw(seed: int) -> Batch:
        generator = rng(seed)
        columns = [torch.randint(0, n, (batch,), generator=generator) for n in categories]
        values = torch.randn((batch, numbers), generator=generator)
        return values, torch.stack(columns, 1), (values[:, 0] > 0).float()

    return Trainee(_Tabular(numbers, categories, width), draw)
