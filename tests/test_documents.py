"""What the documents show is what happens."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import surestep

ROOT = Path(__file__).resolve().parent.parent


@pytest.mark.parametrize("name", [m.name for m in pkgutil.walk_packages(surestep.__path__, "surestep.")])
def test_examples_in_docstrings(name):
    if name.startswith("surestep.cli."):
        pytest.importorskip("click")
        pytest.importorskip("rich")
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_example_of_the_readme():
    """Every line `>>>` of the README gives the output shown under it."""
    text = (ROOT / "README.md").read_text()
    blocks = re.findall(r"```python\n(>>>.*?)```", text, re.DOTALL)
    assert blocks
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    scope = {}
    for number, block in enumerate(blocks):
        test = doctest.DocTestParser().get_doctest(block, scope, f"README block {number}", "README.md", 0)
        runner.run(test, clear_globs=False)
        scope = test.globs
    assert runner.summarize(verbose=False).failed == 0


def test_demo_runs_and_shows_the_example_of_the_paper():
    done = subprocess.run([sys.executable, ROOT / "examples" / "demo.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "2.25" in done.stdout  # V for sampling by the lower bounds, over ||c||^2
    gains = [float(x) for x in re.findall(r"(\d+\.\d\d)x", done.stdout)]
    assert len(gains) >= 4
    assert np.all(np.diff(gains) >= 0)  # the more is known, the larger the gain
