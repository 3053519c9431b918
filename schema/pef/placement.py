"""Why what lies where, as files say it."""

from __future__ import annotations

from enum import IntEnum


class PlacementReason(IntEnum):
    """Why an allocation lies in its region.

    `UNSTATED`: files before 0.7 do not say.
    `ROOM`: it is where symbols live by default, with room for all while it is alive.
    `USER`: the user wants it there.
    `COST`: there is no room for all, and of the placements looked at this one takes least time.
    `POLICY`: there is no room for all, and as the speed of a region is not known, what moves the
    fewest bytes leaves first, weights last.
    """

    UNSTATED = 0
    ROOM = 1
    USER = 2
    COST = 3
    POLICY = 4
