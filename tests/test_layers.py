"""The shape of the house: who may import whom, and what is public."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

import surestep
from sources import PACKAGE

# A module imports only from rooms to the left of its own (and from its own room).
ORDER = [
    "_jit",
    "_elementary",
    "sampling",
    "lines",
    "design",
    "losses",
    "regularizers",
    "_inputs",
    "_intercept",
    "problem",
    "bounds",
    "trace",
    "solvers",
    "path",
    "models",
    "datasets",
    "distributed",
    "estimators",
    "displays",
    "__init__",
    "experiments",
    "cli",
]
ENGINE = "surestep.distributed"
FILES = sorted(PACKAGE.rglob("*.py"))


def room(module: str) -> str:
    """The room of a dotted module name below surestep; the package itself is the last."""
    return module.split(".")[0] if module else "__init__"


def imported(path: Path) -> set[str]:
    """Rooms of surestep that a file imports from; an optional engine may be looked for where it is asked for."""
    modules = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.col_offset > 0 and str(node.module).startswith(ENGINE):
            continue
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            modules += names if node.module == "surestep" else [str(node.module)]
        elif isinstance(node, ast.Import):
            modules += [alias.name for alias in node.names]
    return {
        room(module.removeprefix("surestep").removeprefix(".")) for module in modules if module.startswith("surestep")
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_imports_point_to_the_left(path: Path):
    own = path.relative_to(PACKAGE).with_suffix("").parts[0]
    assert own in ORDER, f"a new room: say in ORDER where {own} stands"
    for other in imported(path):
        assert ORDER.index(other) <= ORDER.index(own), f"{own} must not import {other}"


@pytest.mark.parametrize("own", ["experiments", "cli"])
def test_experiments_and_command_line_use_public_names_only(own: str):
    for path in (PACKAGE / own).rglob("*.py"):
        assert imported(path) <= {"__init__", "datasets", "experiments", own}
        assert not re.search(r"\b(ss|datasets)\.(\w+\.)*_[a-z]", path.read_text()), path


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_no_file_outgrows_one_room(path: Path):
    assert len(path.read_text().splitlines()) <= 500


def test_sampling_knows_no_matrices_and_solvers_no_estimators():
    for path in FILES:
        text = path.read_text()
        own = path.relative_to(PACKAGE).parts[0]
        if own == "sampling":
            assert "scipy.sparse" not in text
        if own not in ("estimators", "datasets", "experiments", "cli"):
            assert not re.search(r"^\s*(import|from) sklearn", text, re.MULTILINE), path


def test_dask_is_imported_where_it_is_needed_only():
    """It is an extra: no module imports it when it is imported itself."""
    for path in FILES:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [str(node.module)]
                assert not {name.split(".")[0] for name in names} & {"dask", "distributed"}, path


def test_every_public_name_is_documented():
    names = [name for name in vars(surestep) if not name.startswith("_")]
    objects = [getattr(surestep, name) for name in names]
    public = [o for o in objects if callable(o)]
    assert len(public) >= 7
    for o in public:
        assert o.__doc__, o
        assert o.__module__.startswith("surestep."), o
