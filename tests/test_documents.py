"""What the documents show is what happens."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
import re
from pathlib import Path

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
