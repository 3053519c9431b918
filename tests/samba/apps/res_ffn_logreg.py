"""The application that the slides on modelling build up, with what they leave undefined."""

from __future__ import annotations

import argparse
import sys

import torch
from torch import nn

import sambaflow
import sambaflow.samba as samba
import sambaflow.samba.utils as utils
from sambaflow.samba.utils.argparser import parse_app_args
from sambaflow.samba.utils.common import common_app_driver


def add_common_args(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--num-features", type=int, default=20)
    parser.add_argument("--hidden-size", type=int, default=16)
    parser.add_argument("--num-classes", type=int, default=4)


def add_run_args(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--momentum", type=float, default=0.9)
    parser.add_argument("--weight-decay", type=float, default=1e-4)
    parser.add_argument("--num-steps", type=int, default=60)


def add_all_args(parser: argparse.ArgumentParser) -> None:
    add_common_args(parser)
    add_run_args(parser)


def basic_weight_init(module: nn.Module) -> None:
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        nn.init.zeros_(module.bias)


class ResFFNLogReg(nn.Module):
    """Feed Forward Network with two different activation functions and a residual connection"""

    def __init__(self, num_features: int, hidden_size: int, num_classes: int) -> None:
        super().__init__()
        self.gemm1 = nn.Linear(num_features, hidden_size, bias=True)
        self.gemm2 = nn.Linear(hidden_size, hidden_size, bias=True)
        self.gemm3 = nn.Linear(hidden_size, num_classes, bias=True)

        self.norm1 = nn.LayerNorm(hidden_size)
        self.norm2 = nn.LayerNorm(hidden_size)

        self.tanh1 = nn.Tanh()
        self.sigmoid1 = nn.Sigmoid()

        self.criterion = nn.CrossEntropyLoss()

        self.apply(basic_weight_init)

    def forward(self, inputs: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor]:
        out = self.gemm1(inputs)
        out = self.norm1(out)
        out = self.tanh1(out)
        residual = out
        out = self.gemm2(out)
        out = self.norm2(out)
        out = out + residual
        out = self.sigmoid1(out)
        out = self.gemm3(out)
        loss = self.criterion(out, targets)
        return loss, out


def batches(args: argparse.Namespace, count: int):
    """Rows that a linear function divides into classes."""
    generator = torch.Generator().manual_seed(7)
    teacher = torch.randn(args.num_features, args.num_classes, generator=generator)
    for _ in range(count):
        rows = torch.randn(args.batch_size, args.num_features, generator=generator)
        labels = (rows @ teacher).argmax(1)
        yield (
            samba.from_torch_tensor(rows, name="image"),
            samba.from_torch_tensor(labels, name="label"),
        )


def train(args: argparse.Namespace, model: nn.Module) -> None:
    hyperparam_dict = {"lr": args.lr, "momentum": args.momentum, "weight_decay": args.weight_decay}
    for step, inputs in enumerate(batches(args, args.num_steps)):
        loss, _ = samba.session.run(
            input_tensors=inputs,
            output_tensors=model.output_tensors,
            hyperparam_dict=hyperparam_dict,
            section_types=["fwd", "bckwd", "opt"],
        )
        if step in (0, args.num_steps - 1):
            print(f"step {step} loss {loss.item():.6f}")
    samba.session.to_cpu(model)
    print(f"gradient {model.gemm1.weight.sn_grad.norm():.6f}")
    rows, labels = next(batches(args, 1))
    model.eval()
    print(f"host loss {model(rows.torch(), labels.torch())[0].item():.6f}")


def test(args: argparse.Namespace, model: nn.Module, inputs, optim) -> None:
    outputs = utils.trace_graph(model, inputs, optim, pef=args.pef, mapping=args.mapping)
    found = samba.session.run(input_tensors=inputs, output_tensors=outputs, section_types=["fwd"])
    for name, mine, host in zip(("loss", "out"), found, model(*inputs), strict=True):
        utils.assert_close(mine, host, name, threshold=1e-3, visualize=args.visualize)
    print("test passed")


def main(argv) -> None:
    utils.set_seed(256)
    args = parse_app_args(
        argv=argv,
        common_parser_fn=add_all_args,
        run_parser_fn=add_run_args,
        test_parser_fn=add_run_args,
    )

    # Input definition
    image = samba.randn(args.batch_size, args.num_features, name="image", batch_dim=0)
    label = samba.randint(args.num_classes, (args.batch_size,), name="label", batch_dim=0)
    inputs = (image, label)

    # Model definition
    model = ResFFNLogReg(args.num_features, args.hidden_size, args.num_classes)
    samba.from_torch_model_(model)

    # Optimizer definition
    optim = sambaflow.samba.optim.SGD(
        model.parameters(), lr=args.lr, momentum=args.momentum, weight_decay=args.weight_decay
    )

    # Different run modes
    if args.command == "run":
        utils.trace_graph(model, inputs, optim, pef=args.pef, mapping=args.mapping)
        train(args, model)
    elif args.command == "test":
        test(args, model, inputs, optim)
    else:
        common_app_driver(
            args=args,
            model=model,
            inputs=inputs,
            optim=optim,
            name=model.__class__.__name__,
            init_output_grads=not args.inference,
            app_dir=utils.get_file_dir(__file__),
        )


if __name__ == "__main__":
    main(sys.argv[1:])
