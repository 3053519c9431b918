"""The processes that train one model together: whether they have met, and are alike since."""

from __future__ import annotations

from collections.abc import Iterable

from pef.program import Program
from pef.warned import warn
from sambaflow.samba.arguments.options import ReductionMode
from sambaflow.samba.profiler import SET_TENSORS_BROADCAST, Profiler
from sambaflow.samba.rewording import in_samba_words, worded
from sambahost.data_parallel import align
from sambahost.errors import HostError
from sambahost.launch import launched_together
from sambahost.leaving import leave_group_at_exit
from sambahost.rendezvous import join
from sambarun import Selection

from .device import SambaDevice


class Replicas:
    """The devices of several processes with the PEF that `device` has."""

    def __init__(self, device: SambaDevice, profiler: Profiler) -> None:
        self._device = device
        self._profiler = profiler
        self.met = False
        """Whether they have met since the PEF was loaded."""
        self._told = False

    def meet(self) -> None:
        """Join the others, and give all of them what process 0 has.

        Raises `SambaError` for a process that was launched alone, if others do not come, if their
        programs do not fit together, and if a process has ended.
        """
        with in_samba_words():
            join()
        try:
            with self._profiler.event(SET_TENSORS_BROADCAST):
                align(self._device.executable)
        except HostError as error:  # in all of them: a meeting is everybody's
            leave_group_at_exit()
            raise worded(error) from error.__cause__
        self.met = True

    def reduction(self, mode: ReductionMode) -> ReductionMode:
        """Return how to reduce gradients in a run; in the first one the processes meet."""
        if not self.met:
            self.meet()
        return mode

    def tell_if_apart(self, chosen: Iterable[Selection]) -> None:
        """Warn, once, of runs that update the replica of one process of several by its own data."""
        others, program = launched_together() - 1, self._device.program
        if self._told or not others or not any(_updates_alone(program, part) for part in chosen):
            return
        self._told = True
        warn(
            f"this process was launched together with {others} more, and trains for itself: the "
            f"run reduces no gradients, though the PEF has REDUCE sections; give session.run "
            f"data_parallel=args.data_parallel, and the command line --data-parallel"
        )


def _updates_alone(program: Program, chosen: Selection) -> bool:
    """Return whether optimizers run, and gradients are not reduced that could be."""
    if chosen.reduction != "none" or all(s.type.name != "REDUCE" for s in program.sections):
        return False
    if chosen.section_types is not None:
        return "OPT" in chosen.section_types
    calls = range(len(program.schedule)) if chosen.calls is None else chosen.calls
    ids = chosen.section_ids or [program.schedule[call] for call in calls]
    return any(program.sections[number].type.name == "OPT" for number in ids)
