"""Networks for images to train, as users write them; sizes are arguments.

Each maker returns a `Trainee` whose module takes pictures, `[batch, 3, side, side]` float32, and
gives the loss.
"""

from __future__ import annotations

from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.models.training import Batch, Classified, Trainee, images, rng


class _Residual(nn.Module):
    """The basic block of a ResNet."""

    def __init__(self, inner: int, outer: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inner, outer, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outer)
        self.conv2 = nn.Conv2d(outer, outer, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outer)
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inner != outer:
            self.shortcut = nn.Sequential(
                nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer)
            )

    def forward(self, x: Tensor) -> Tensor:
        y = F.relu(self.bn1(self.conv1(x)))
        return F.relu(self.bn2(self.conv2(y)) + self.shortcut(x))


def resnet18(
    batch: int = 16, side: int = 64, widths: tuple[int, ...] = (32, 64, 128, 256)
) -> Trainee:
    """A ResNet-18: a stem with pooling and two basic blocks at each width."""
    stem = widths[0]
    layers: list[nn.Module] = [
        nn.Conv2d(3, stem, 7, 2, 3, bias=False), nn.BatchNorm2d(stem), nn.ReLU(),
        nn.MaxPool2d(3, 2, 1),
    ]  # fmt: skip
    for inner, outer in pairwise((stem, *widths)):
        layers += [_Residual(inner, outer, 1 if inner == outer else 2), _Residual(outer, outer, 1)]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 100)]
    return Trainee(Classified(nn.Sequential(*layers)), images((batch, 3, side, side), 100))


class _InvertedResidual(nn.Module):
    """The block of a MobileNetV2: wide in the middle, where each channel is filtered alone."""

    def __init__(self, inner: int, outer: int, stride: int, expansion: int) -> None:
        super().__init__()
        wide = inner * expansion
        self.added = stride == 1 and inner == outer
        self.layers = nn.Sequential(
            nn.Conv2d(inner, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.ReLU6(),
            nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False),
            nn.BatchNorm2d(wide), nn.ReLU6(),
            nn.Conv2d(wide, outer, 1, bias=False), nn.BatchNorm2d(outer),
        )  # fmt: skip

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.added else self.layers(x)


def mobilenet(
    batch: int = 16, side: int = 64, widths: tuple[int, ...] = (16, 24, 32, 64), expansion: int = 4
) -> Trainee:
    """A small MobileNetV2: two inverted residual blocks at each width."""
    layers: list[nn.Module] = [
        nn.Conv2d(3, widths[0], 3, 2, 1, bias=False), nn.BatchNorm2d(widths[0]), nn.ReLU6()
    ]  # fmt: skip
    for inner, outer in pairwise(widths):
        layers += [
            _InvertedResidual(inner, outer, 2, expansion),
            _InvertedResidual(outer, outer, 1, expansion),
        ]
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], 100)]
    return Trainee(Classified(nn.Sequential(*layers)), images((batch, 3, side, side), 100))


class _ChannelsFirstNorm(nn.LayerNorm):
    """LayerNorm over the channels of pictures."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class _ConvNextBlock(nn.Module):
    """A depthwise convolution, then a perceptron of each pixel's channels."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.scale = nn.Parameter(0.1 * torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        y = self.scale * self.down(F.gelu(self.up(y)))
        return x + y.permute(0, 3, 1, 2)


def convnext(
    batch: int = 8,
    side: int = 64,
    widths: tuple[int, ...] = (40, 80, 160, 320),
    depths: tuple[int, ...] = (2, 2, 4, 2),
) -> Trainee:
    """A ConvNeXt: patches of 4 by 4, then blocks, halving the picture between widths."""
    layers: list[nn.Module] = [nn.Conv2d(3, widths[0], 4, 4), _ChannelsFirstNorm(widths[0])]
    for index, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        if index:
            before = widths[index - 1]
            layers += [_ChannelsFirstNorm(before), nn.Conv2d(before, width, 2, 2)]
        layers += [_ConvNextBlock(width) for _ in range(depth)]
    head = nn.Sequential(nn.LayerNorm(widths[-1]), nn.Linear(widths[-1], 100))
    layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), head]
    return Trainee(Classified(nn.Sequential(*layers)), images((batch, 3, side, side), 100))


class _UNet(nn.Module):
    """Down by strided pooling, up by transposed convolutions, joined by concatenation."""

    def __init__(self, widths: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.down = nn.ModuleList(self._double(a, b) for a, b in pairwise((3, *widths)))
        backwards = widths[::-1]
        self.up = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, 2) for a, b in pairwise(backwards))
        self.join = nn.ModuleList(self._double(2 * b, b) for b in backwards[1:])
        self.head = nn.Conv2d(widths[0], classes, 1)

    @staticmethod
    def _double(inner: int, outer: int) -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(inner, outer, 3, padding=1), nn.GroupNorm(8, outer), nn.SiLU(),
            nn.Conv2d(outer, outer, 3, padding=1), nn.GroupNorm(8, outer), nn.SiLU(),
        )  # fmt: skip

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        kept: list[Tensor] = []
        for index, layer in enumerate(self.down):
            x = layer(F.max_pool2d(x, 2) if index else x)
            kept.append(x)
        for up, join, other in zip(self.up, self.join, kept[-2::-1], strict=True):
            x = join(torch.cat([up(x), other], 1))
        return F.cross_entropy(self.head(x), labels)


def unet(batch: int = 4, side: int = 64, widths: tuple[int, ...] = (32, 64, 128)) -> Trainee:
    """A U-Net with GroupNorm and SiLU that names the class of each pixel."""

    def draw(seed: int) -> Batch:
        generator = rng(seed)
        x = torch.randn((batch, 3, side, side), generator=generator)
        return x, torch.randint(0, 8, (batch, side, side), generator=generator)

    return Trainee(_UNet(widths, 8), draw)


class _Autoencoder(nn.Module):
    """Strided convolutions down to a code, and transposed ones back to the picture."""

    def __init__(self, widths: tuple[int, ...]) -> None:
        super().__init__()
        down: list[nn.Module] = []
        for inner, outer in pairwise((3, *widths)):
            down += [nn.Conv2d(inner, outer, 3, 2, 1), nn.ReLU()]
        up: list[nn.Module] = []
        for inner, outer in pairwise((*widths[::-1], 3)):
            up += [nn.ConvTranspose2d(inner, outer, 4, 2, 1), nn.ReLU()]
        self.encoder, self.decoder = nn.Sequential(*down), nn.Sequential(*up[:-1], nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        return F.mse_loss(self.decoder(self.encoder(x)), x)


def autoencoder(
    batch: int = 32, side: int = 32, widths: tuple[int, ...] = (32, 64, 128)
) -> Trainee:
    """A convolutional autoencoder of pictures in [0, 1)."""

    def draw(seed: int) -> Batch:
        return (torch.rand((batch, 3, side, side), generator=rng(seed)),)

    return Trainee(_Autoencoder(widths), draw)


class _Patches(nn.Module):
    """Tokens of a picture, `[batch, tokens, width]`, one for each square patch."""

    def __init__(self, width: int, patch: int) -> None:
        super().__init__()
        self.project = nn.Conv2d(3, width, patch, patch)

    def forward(self, x: Tensor) -> Tensor:
        return self.project(x).flatten(2).transpose(1, 2)


class _Vit(nn.Module):
    """A vision transformer with a class token, made of PyTorch's own encoder layers."""

    def __init__(self, side: int, patch: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.patches = _Patches(width, patch)
        self.first = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(0.02 * torch.randn(1, (side // patch) ** 2 + 1, width))
        layer = nn.TransformerEncoderLayer(
            width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 100)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x)
        x = torch.cat([self.first.expand(x.shape[0], -1, -1), x], 1) + self.places
        return self.head(self.norm(self.encoder(x)[:, 0]))


def vit(
    batch: int = 16, side: int = 64, width: int = 192, layers: int = 4, heads: int = 3
) -> Trainee:
    """A ViT over patches of 8 by 8."""
    network = _Vit(side, 8, width, layers, heads)
    return Trainee(Classified(network), images((batch, 3, side, side), 100))


class _MixerBlock(nn.Module):
    """A perceptron across tokens, then one across channels."""

    def __init__(self, tokens: int, width: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.across = nn.Sequential(
            nn.Linear(tokens, width // 2), nn.GELU(), nn.Linear(width // 2, tokens)
        )
        self.within = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.across(self.norm1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.within(self.norm2(x))


class _Mixer(nn.Module):
    def __init__(self, side: int, patch: int, width: int, layers: int) -> None:
        super().__init__()
        tokens = (side // patch) ** 2
        self.patches = _Patches(width, patch)
        self.blocks = nn.Sequential(*(_MixerBlock(tokens, width) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 100)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.patches(x))).mean(1))


def mixer(batch: int = 16, side: int = 64, width: int = 192, layers: int = 4) -> Trainee:
    """An MLP-Mixer over patches of 8 by 8."""
    network = _Mixer(side, 8, width, layers)
    return Trainee(Classified(network), images((batch, 3, side, side), 100))
