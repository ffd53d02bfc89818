"""Set-up shared by all tests; it runs before numba is imported."""

import os
from pathlib import Path

from sources import source_hash

os.environ.setdefault(
    "NUMBA_CACHE_DIR", str(Path(__file__).resolve().parent.parent / ".cache" / "numba" / source_hash())
)

from hypothesis import HealthCheck, settings

# The first example of a test may compile a kernel, so an example has no time limit; CI must not fail by luck, so
# examples are the same in every run (hypothesis derives them from the test's code).
settings.register_profile(
    "surestep", deadline=None, derandomize=True, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("surestep")
