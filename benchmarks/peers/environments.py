"""Environments of the peers, made on first use under .cache/peers; what cannot be installed is reported, not fatal."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FOLDER = ROOT / ".cache" / "peers"

OURS = "surestep"

# Name: (Python, packages). Pins known to work together; more than one environment because they clash.
ENVIRONMENTS = {
    "modern": (
        "python3.11",
        (
            "numpy==1.26.4",
            "scikit-learn==1.9.1",
            "celer==0.7.4",
            "skglm==0.5",
            "liblinear-official==2.50.0",
            "snapml==1.17.2",
            "adelie==1.1.52",
            "cyanure==1.2.2",
        ),
    ),
    "lightning": (
        "python3.10",
        ("numpy==1.23.5", "scipy==1.9.3", "scikit-learn==1.1.3", "sklearn-contrib-lightning==0.6.2.post0"),
    ),
    "glmnet": ("python3.9", ("numpy==1.23.5", "scipy==1.9.3", "scikit-learn==1.1.3", "python-glmnet==2.2.2.post2")),
}

# The one that comes as sources alone: a small C++ library.
_SOURCES = "liblinear-official"

# One thread, whatever a package uses underneath.
ONE_THREAD = {f"{name}_NUM_THREADS": "1" for name in ("OMP", "OPENBLAS", "MKL", "NUMBA", "BLIS", "VECLIB", "NUMEXPR")}


def python_of(package):
    """Interpreter of the environment that has the package, or a sentence that says why there is none."""
    if package == OURS:
        return sys.executable, None
    name = next(name for name, (_, pins) in ENVIRONMENTS.items() if any(pin.split("==")[0] == package for pin in pins))
    folder = FOLDER / "environments" / name
    if name == "modern" and "SURESTEP_PEERS" in os.environ:  # an environment that is there already
        folder = Path(os.environ["SURESTEP_PEERS"])
    python = folder / "bin" / "python"
    if not python.exists():
        _make(name, folder)
    missing = folder / "missing.txt"
    if missing.exists():
        return None, missing.read_text().strip()
    return str(python), None


def _make(name, folder):
    version, pins = ENVIRONMENTS[name]
    folder.mkdir(parents=True, exist_ok=True)
    print(f"Making the environment {name} ({version}: {', '.join(pins)}) in {folder}", flush=True)
    python = str(folder / "bin" / "python")
    for command in (
        [_interpreter(version), "-m", "venv", str(folder)],
        [python, "-m", "pip", "install", "--quiet", "--only-binary", ":all:", "--no-binary", _SOURCES, *pins],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            (folder / "missing.txt").write_text((done.stderr.strip().splitlines() or ["no reason given"])[-1])
            return


def _interpreter(version):
    """A Python of this version: this one, one of pyenv (whose commands may be mere pointers), or the system's."""
    if version == f"python3.{sys.version_info.minor}":
        return sys.executable
    found = sorted(Path.home().glob(f".pyenv/versions/{version.removeprefix('python')}.*/bin/python"))
    return str(found[-1]) if found else shutil.which(version) or version


def variables(package):
    """Environment variables of a worker."""
    found = {**os.environ, **ONE_THREAD, "PYTHONWARNINGS": "ignore"}
    if package == OURS:
        found["NUMBA_CACHE_DIR"] = str(FOLDER / "numba" / _source_hash())
    else:
        found["NUMBA_CACHE_DIR"] = str(FOLDER / "numba" / package)
        found.pop("PYTHONPATH", None)
    return found


def _source_hash():
    """Numba does not notice edits of other files: a cache for each state of our sources."""
    import hashlib
    import importlib.util

    package = Path(importlib.util.find_spec(OURS).origin).parent
    digest = hashlib.sha256()
    for path in sorted(package.rglob("*.py")):
        digest.update(path.relative_to(package).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]
