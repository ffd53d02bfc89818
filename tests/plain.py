"""The solver's kernels as plain Python, from the same source: no combination of types has to be compiled."""

from __future__ import annotations

import contextlib

import pytest

from surestep.bounds import snapshot
from surestep.solvers import _descent, coordinate

KERNELS = (
    (coordinate, "descend"),
    (_descent, "_move_by_entries"),
    (_descent, "_shift"),
    (_descent, "_shift_away"),
    (snapshot, "_arrive"),
)


@contextlib.contextmanager
def uncompiled():
    with pytest.MonkeyPatch.context() as patch:
        for module, name in KERNELS:
            kernel = getattr(module, name)
            patch.setattr(module, name, getattr(kernel, "py_func", kernel))
        yield
