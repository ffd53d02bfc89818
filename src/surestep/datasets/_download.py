"""Downloads that go on where they broke off, and files in the cache that are what they were when they came."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from surestep.datasets._cache import cache_folder, file_hash, written_at_once

logger = logging.getLogger("surestep")

ATTEMPTS = 3
TIMEOUT = 30.0  # seconds without an answer
BLOCK = 1 << 18


def downloaded(url: str, sha256: str | None = None) -> Path:
    """Return the file of that address in the cache, after a download if it is not there or is damaged.

    Parameters
    ----------
    url : str
    sha256 : str, optional
        Checksum of the file, in hexadecimal digits. Without one the checksum of the first download is written beside
        the file, and the file is held to it from then on: this notices later damage, not a wrong first download.

    Raises
    ------
    OSError
        If the file cannot be had; what has come so far is kept, and the next call goes on from there.
    ValueError
        If it has not the given checksum.
    """
    path = download_path(url)
    record = path.with_name(path.name + ".sha256")
    if path.exists():
        recorded = record.read_text().split(maxsplit=1)[:1] if record.exists() else []
        if [file_hash(path)] == ([sha256.lower()] if sha256 else recorded):
            return path
        logger.warning("%s has not the checksum it should have and is downloaded anew", path)
        path.unlink()
    part = _fetched(url, path)
    found = file_hash(part)
    if sha256 is not None and found != sha256.lower():
        part.unlink()
        raise ValueError(f"{url} has the SHA-256 {found}, not {sha256} as it should")
    with written_at_once(record) as unfinished:  # first: a file in the cache always has one
        unfinished.write_text(f"{found}  {path.name}\n")
    os.replace(part, path)
    return path


def download_path(url: str) -> Path:
    """Where in the cache the file of an address belongs."""
    return cache_folder() / "downloads" / url.rsplit("/", 1)[-1]


def _fetched(url: str, path: Path) -> Path:
    """Bring the whole file to `path`.part, in several attempts that each go on where the last one broke off."""
    from http.client import HTTPException
    from urllib.error import HTTPError

    part = path.with_name(path.name + ".part")
    part.parent.mkdir(parents=True, exist_ok=True)
    failure: Exception | None = None
    for _ in range(ATTEMPTS):
        try:
            if _go_on(url, part):
                return part
            failure = OSError("the connection was closed too early")
        except HTTPError as error:
            error.close()
            failure = error
            if error.code == 416:  # there is no rest of what we have: it is another version's
                part.unlink()
            elif 400 <= error.code < 500:  # asking again would not help
                break
        except (OSError, HTTPException) as error:
            failure = error
        logger.info("download of %s broke off: %s", url, failure)
    raise OSError(f"{url} could not be downloaded: {failure}") from failure


def _go_on(url: str, part: Path) -> bool:
    """Append what is missing; return whether the file is whole."""
    import urllib.request

    # What tells this version of the file from others: only if it is still the same, a server sends but the rest.
    version = part.with_name(part.name + ".version")
    have = part.stat().st_size if part.exists() and version.exists() else 0
    request = urllib.request.Request(url, headers={"User-Agent": "surestep"})
    if have:
        request.add_header("Range", f"bytes={have}-")
        request.add_header("If-Range", version.read_text())
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        if answer.status == 206:
            if not answer.headers.get("Content-Range", "").startswith(f"bytes {have}-"):
                part.unlink()
                raise OSError("the server sent another part than it was asked for")
        else:
            have = 0
            validator = _validator(answer.headers)
            if validator is None:
                version.unlink(missing_ok=True)
            else:
                version.write_text(validator)
        length = answer.headers.get("Content-Length")
        with open(part, "ab" if have else "wb") as file:
            while block := answer.read(BLOCK):
                file.write(block)
    whole = length is None or part.stat().st_size == have + int(length)
    if whole:
        version.unlink(missing_ok=True)
    return whole


def _validator(headers: Any) -> str | None:
    """The version's ETag, if it is a strong one, or its date."""
    etag: str | None = headers.get("ETag")
    return etag if etag and not etag.startswith("W/") else headers.get("Last-Modified")
