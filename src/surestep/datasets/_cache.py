"""The user's cache directory, and files that are there whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path


def cache_folder() -> Path:
    """Return where downloads and parsed files are kept: ``SURESTEP_CACHE``, or "surestep" in the platform's directory.

    That is ``XDG_CACHE_HOME`` or ~/.cache, ~/Library/Caches on macOS, ``LOCALAPPDATA`` on Windows.
    """
    own = os.environ.get("SURESTEP_CACHE")
    if own:
        return Path(own)
    if sys.platform == "win32":
        root = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        root = Path.home() / "Library" / "Caches"
    else:
        root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "surestep"


@contextlib.contextmanager
def written_at_once(path: Path) -> Iterator[Path]:
    """Give a file to write beside `path`; it takes that name when all is written, and vanishes on an error."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{uuid.uuid4().hex}-{path.name}")  # the suffix stays the last: writers go by it
    try:
        yield unfinished
        os.replace(unfinished, path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def file_hash(path: Path) -> str:
    """SHA-256 of a file, in hexadecimal digits."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
