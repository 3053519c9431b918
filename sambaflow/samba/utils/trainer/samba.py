"""A training loop on the device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from torch import nn

from sambaflow.samba.arguments.checked import checked
from sambaflow.samba.arguments.kinds import MAPPING, instance
from sambaflow.samba.session import session
from sambaflow.samba.tensors.tensor import SambaTensor, to_torch
from sambaflow.samba.utils.steps import flat, traced_outputs

__all__ = ["train"]


@checked(loader=instance(Iterable, "a SambaLoader"), hyperparam_dict=MAPPING.or_none())
def train(
    model: nn.Module,
    loader: Iterable[Sequence[SambaTensor | None]],
    hyperparam_dict: Mapping[str, float] | None = None,
    num_epochs: int = 1,
    data_parallel: bool = False,
    reduce_on_rdu: bool = False,
) -> list[float]:
    """Train a traced `model` on `loader`, a SambaLoader, and return each epoch's mean loss.

    The loss is the mean of the model's first output. Raises ValueError for an epoch without
    batches, SambaError for a model that is not traced.
    """
    outputs = traced_outputs(model)
    means = []
    for _ in range(num_epochs):
        losses = []
        for batch in loader:
            found = session.run(
                input_tensors=tuple(flat(batch)),
                output_tensors=outputs[:1],
                hyperparam_dict=dict(hyperparam_dict or {}),
                data_parallel=data_parallel,
                reduce_on_rdu=reduce_on_rdu,
            )
            losses.append(float(to_torch(found[0]).float().mean()))
        if not losses:
            raise ValueError("the loader gave no batch; an epoch needs one at least")
        means.append(sum(losses) / len(losses))
    return means
