"""How kernels are compiled: caching, dispatch, and the same numbers without a compiler."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numba
import pytest

from sources import PACKAGE
from surestep._jit import generic, jit

SOLVE = """
import json, logging, sys
logging.basicConfig(level=logging.DEBUG, stream=sys.stderr)
import numpy as np, surestep as ss
rng = np.random.default_rng(0)
lower = rng.pareto(1.0, 700) * (rng.random(700) < 0.5)
upper = np.where(rng.random(700) < 0.2, np.inf, lower + rng.random(700))
s = ss.safe_sampling(lower, upper, rng.uniform(0.1, 10, 700))
print(json.dumps([s.value, s.level, s.competitive_ratio, *s.probabilities]))
"""


def run(environment: dict[str, str], **options) -> tuple[list[float], str]:
    environment = {**os.environ, **environment}
    done = subprocess.run(
        [sys.executable, "-c", SOLVE], env=environment, capture_output=True, text=True, check=True, **options
    )
    return json.loads(done.stdout), done.stderr


def test_plain_python_gives_the_same_numbers():
    compiled, _ = run({})
    plain, _ = run({"NUMBA_DISABLE_JIT": "1"})
    assert plain == pytest.approx(compiled, rel=1e-14)


def test_import_and_results_survive_a_place_where_nothing_can_be_cached(tmp_path: Path):
    # A file where Numba wants a directory: it cannot be created by any user.
    shutil.copytree(PACKAGE, tmp_path / "surestep", ignore=shutil.ignore_patterns("__pycache__"))
    for folder in [tmp_path / "surestep", *(p for p in (tmp_path / "surestep").iterdir() if p.is_dir())]:
        (folder / "__pycache__").write_text("not a directory")
    home = tmp_path / "home"
    home.write_text("not a directory")
    nowhere = {"PYTHONPATH": str(tmp_path), "HOME": str(home), "XDG_CACHE_HOME": str(home), "NUMBA_CACHE_DIR": ""}
    uncached, log = run(nowhere, cwd=tmp_path)
    assert "is compiled in every process" in log
    cached, log = run({})
    assert "is compiled in every process" not in log
    assert uncached == cached


def test_kernels_are_on_disk_after_the_first_call():
    run({})
    cache = Path(os.environ["NUMBA_CACHE_DIR"])
    assert any(path.name.startswith("safe.find_level") for path in cache.rglob("*.nbi"))


OWN_LOSS = """
from typing import NamedTuple
from surestep import losses

class Half(NamedTuple):
    pass

losses.value.register(Half)(lambda loss, z, y: 0.25 * (z - y) ** 2)
losses.derivative.register(Half)(lambda loss, z, y: 0.5 * (z - y))
losses.is_classification.register(Half)(lambda loss: False)
"""
OBJECTIVE = """
import numpy as np, surestep as ss
print(ss.Problem(np.eye(3), [1.0, 2.0, 3.0], loss=LOSS).objective(np.ones(3)))
"""


def test_a_type_of_ones_own_does_not_spoil_the_cache_for_others(tmp_path: Path):
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    scripts = [OWN_LOSS + OBJECTIVE.replace("LOSS", "Half()"), OBJECTIVE.replace("LOSS", "'squared'")]
    printed = []
    for script in scripts:
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        printed.append(float(done.stdout))
    assert printed == pytest.approx([5 / 12, 5 / 6])


class Doubling(NamedTuple):
    factor: float


class Adding(NamedTuple):
    amount: float


class Unregistered(NamedTuple):
    factor: float


@generic
def apply(rule, x):
    """Apply a rule to a number."""


@apply.register(Doubling)
def _(rule, x):
    return 2.0 * rule.factor * x


@apply.register(Adding)
def _(rule, x):
    return rule.amount + x


@jit
def apply_twice(rule, x):
    return apply(rule, apply(rule, x))


@pytest.mark.parametrize(("rule", "expected"), [(Doubling(1.5), 36.0), (Adding(1.5), 7.0)])
def test_generic_functions_dispatch_alike_in_python_and_in_kernels(rule, expected):
    assert apply_twice(rule, 4.0) == expected
    assert apply(rule, apply(rule, 4.0)) == expected
    assert apply.__doc__ == "Apply a rule to a number."


def test_a_type_without_an_implementation_is_named():
    message = r"Unregistered has no `apply`; register one with @apply.register\(Unregistered\)"
    with pytest.raises(TypeError, match=message):
        apply(Unregistered(1.0), 2.0)
    with pytest.raises(numba.TypingError, match=message):
        apply_twice(Unregistered(1.0), 2.0)
