"""Results that were stored before."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from typing import ClassVar

import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.optim import Optimizer

from pef.files import replacing
from pef.foreign import reading, why
from sambaflow.logging import samba_logger
from sambaflow.samba.arguments.checked import checked
from sambaflow.samba.arguments.options import listed
from sambaflow.samba.tensors.tensor import SambaParameter, SambaTensor, to_torch
from sambaflow.samba.utils.sections import device_of_session
from sambaflow.samba.utils.steps import MeasuredRun, flat, traced_outputs
from sambahost.arrays import torch_type

from .consistency import same_bits

__all__ = ["TestWithGold"]

_SEED = 256


class TestWithGold:
    """Compares a step of a traced `model`, bit for bit, with what was stored in a gold file.

    The file is `<name>.safetensors` in the folder `args.gold_file_path`, or that path itself if it
    is such a file. A step is the forward part with `args.inference`, else all of training. Without
    `inputs`, values drawn from a fixed seed are used. `optimizer` says that parameters are compared
    too, after the step.
    """

    __test__: ClassVar[bool] = False  # it is no test of pytest's

    @checked(optimizer=None)
    def __init__(
        self,
        args: Namespace,
        name: str,
        model: nn.Module,
        inputs: object = None,
        optimizer: Optimizer | list[Optimizer] | None = None,
    ) -> None:
        self._path = _path(Path(args.gold_file_path), name)
        self._model = model
        self._inputs = inputs
        self._inference = bool(args.inference)
        self._trains = bool(listed(optimizer)) and not self._inference

    def test(self) -> None:
        """Run the step and compare. If there is no file yet, it is written, which is said.

        Raises AssertionError that lists the tensors that differ or are in the file or here alone.
        """
        found = self._run()
        if not self._path.is_file():
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with replacing(self._path) as temporary:
                save_file(found, temporary)
            samba_logger.warning(f"There was no gold file: {self._path} is written, not compared.")
            return

        def refuse(error: Exception) -> ValueError:
            return ValueError(f"{self._path} is no gold file, or a damaged one: {why(error)}")

        with reading(refuse):
            gold = load_file(self._path)
        unlike = [name for name in found if name in gold and not same_bits(found[name], gold[name])]
        problems = [f"{name} differs" for name in unlike]
        problems += [
            f"{name} is in one of both alone" for name in sorted(found.keys() ^ gold.keys())
        ]
        if problems:
            raise AssertionError(f"{self._path}: {'; '.join(problems)}")

    def _run(self) -> dict[str, torch.Tensor]:
        """Return the outputs of a step by name, and the parameters after it if it trains."""
        outputs = traced_outputs(self._model)
        tensors = _drawn() if self._inputs is None else tuple(flat(self._inputs))
        results = MeasuredRun(outputs, self._inference).run(tensors)
        found = {
            output.sn_name: to_torch(result).detach().clone().contiguous()
            for output, result in zip(outputs, results, strict=True)
        }
        if self._trains:
            found |= {
                parameter.sn_name: parameter.sn_data.clone()
                for parameter in self._model.parameters()
                if isinstance(parameter, SambaParameter)
            }
        return found


def _path(given: Path, name: str) -> Path:
    return given if given.suffix == ".safetensors" else given / f"{name}.safetensors"


def _drawn() -> tuple[SambaTensor, ...]:
    """Return values for the inputs of the PEF: normal numbers, zeros where they are whole."""
    device = device_of_session()
    names = {port: name for name, port in device.host.inputs.items()}
    generator = torch.Generator().manual_seed(_SEED)
    drawn = []
    for port in device.program.graphs[0].inputs:
        symbol = device.program.symbols[port.symbol]
        shape = [size for size in symbol.shape or () if isinstance(size, int)]
        dtype = torch_type(symbol.dtype)
        values = torch.randn(shape, generator=generator)
        filled = values.to(dtype) if dtype.is_floating_point else torch.zeros(shape, dtype=dtype)
        drawn.append(SambaTensor(filled, name=names[port.name]))
    return tuple(drawn)
