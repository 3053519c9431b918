"""Examples take as long as they take: no test asserts on time.

The short run tries fewer examples, the long run as many as hypothesis does.
"""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("whole", settings(), deadline=None)
settings.register_profile("short", settings(), deadline=None, max_examples=40)
if settings.get_current_profile_name() in ("default", "ci"):  # none was asked for
    settings.load_profile("short")
