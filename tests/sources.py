"""A short name for the present state of the package's sources; the Numba caches of tests are named by it."""

import hashlib
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent / "src" / "surestep"


def source_hash() -> str:
    """Hash of every source file of the package: its relative path and its bytes."""
    digest = hashlib.sha256()
    for path in sorted(PACKAGE.rglob("*.py")):
        digest.update(path.relative_to(PACKAGE).as_posix().encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    print(source_hash())
