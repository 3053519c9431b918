"""Examples take as long as they take: no test asserts on time."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("untimed", settings(), deadline=None)
settings.load_profile("untimed")
