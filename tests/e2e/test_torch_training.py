"""A PyTorch module trains as a compiled program as it does in PyTorch, step by step."""

from __future__ import annotations

import torch
from near import assert_near, exactly
from torch import nn
from torch.nn import functional

import sambac
import sambarun


class _Network(nn.Module):
    """What recordings lose: batch statistics, no_grad, a padding row, smoothing, a tied weight."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, bias=False)
        self.norm = nn.BatchNorm2d(4)
        self.classes = nn.Embedding(5, 4, padding_idx=0)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.classes.weight
        self.unused = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, torch.Tensor]:
        features = self.norm(self.conv(x)).relu().mean((2, 3)) + self.classes(y)
        with torch.no_grad():
            target = features.softmax(1)
        logits = self.head(features)
        loss = functional.cross_entropy(logits, y, label_smoothing=0.1)
        return {"loss": loss + (features * target).sum() / 100, "logits": logits}


def test_three_steps_and_an_evaluation() -> None:
    torch.manual_seed(0)
    module = _Network()
    reference = exactly(module).train()
    x, y = torch.randn(6, 3, 8, 8), torch.tensor([0, 1, 2, 3, 4, 0])
    feeds = {"x": x.numpy(), "y": y.numpy()}
    options = sambac.CompileOptions(train=True, loss=("loss",), optimizers=(sambac.SGD(lr=0.1),))
    executable = sambarun.load(sambac.compile(module, options, inputs=(x, y)))
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.1)
    for _ in range(3):
        optimizer.zero_grad()
        want = reference(x.double(), y)["loss"]
        want.backward()
        optimizer.step()
        got = executable.step(feeds)["loss"]
        assert_near(got, want, what="loss")
    state = executable.state()
    for name, tensor in reference.named_parameters():
        assert_near(state[name], tensor, what=name)
    for name, tensor in reference.named_buffers():
        assert_near(state[name], tensor, what=name)
    logits = executable.run(feeds, section_types=["FWD"])["logits"]
    assert_near(logits, reference.eval()(x.double(), y)["logits"], what="logits")
