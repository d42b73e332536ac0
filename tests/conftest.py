"""Settings for every test."""

from __future__ import annotations

from hypothesis import settings

# Deadlines measure the machine, not the code: the first example of a test may compile kernels.
settings.register_profile("octoplan", deadline=None)
settings.load_profile("octoplan")
