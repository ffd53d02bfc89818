"""Files that the workers read, each some of their bytes."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Literal

import numpy as np
import scipy.sparse
from numpy.typing import DTypeLike

from surestep.datasets import svmlight
from surestep.distributed._clients import active_client

# Chunks for each worker, at least, but not below so many bytes each; and bytes of a chunk, at most.
_CHUNKS, _LEAST, _MOST = 4, 1 << 16, 1 << 26

Paths = os.PathLike[str] | str | Iterable[os.PathLike[str] | str]


def read_svmlight(
    paths: Paths,
    *,
    n_features: int | None = None,
    zero_based: bool | Literal["auto"] = "auto",
    dtype: DTypeLike = np.float64,
    blocksize: int | None = None,
    client: Any = None,
) -> tuple[Any, Any]:
    """Read files in svmlight format in byte-range chunks, each by the worker that needs it.

    Parameters
    ----------
    paths : path-like, pattern such as "folder/*.svm", folder, or several of them
        Every worker must see the files under these paths. URLs such as "hdfs://host/folder/*.svm" are left to fsspec,
        with the package that it needs for their kind.
    n_features, zero_based
        See :func:`surestep.datasets.load_svmlight`. What is not said is found out first, by the workers, in a pass over
        all files.
    dtype : float64 or float32
    blocksize : int, optional
        Bytes of a chunk: by default 64 MB, or fewer, so that there are some for every worker. A compressed file is one
        chunk, because it can only be read from its beginning.
    client : distributed.Client, optional
        By default the active one.

    Returns
    -------
    X : dask array of shape (n_samples, n_features), of csr_array chunks
    y : dask array of shape (n_samples,)
        Both with chunks of lengths that are not known yet. ``surestep.Problem(X, y, ...)`` and the estimators take
        them as they are, and nothing is read before.
    """
    client = active_client(client)
    import dask.array
    from dask import delayed

    files = _found(paths)
    if blocksize is None:
        blocksize = min(max(sum(files.values()) // (_CHUNKS * max(len(client.nthreads()), 1)), _LEAST), _MOST)
    if blocksize < 1:
        raise ValueError(f"blocksize must be a positive number of bytes, got {blocksize}")
    chunks = [chunk for path, size in files.items() for chunk in _chunks(path, size, blocksize)]
    if n_features is None or zero_based == "auto":
        extents = client.gather([client.submit(_extent, *chunk) for chunk in chunks])
        smallest, largest = (
            extreme(extent) for extreme, extent in zip((min, max), zip(*extents, strict=True), strict=True)
        )
        zero_based = smallest == 0 if zero_based == "auto" else zero_based
        n_features = largest + int(zero_based) if n_features is None else n_features
    loaded = [delayed(_load, pure=True)(*chunk, n_features, zero_based, np.dtype(dtype)) for chunk in chunks]
    empty = scipy.sparse.csr_array((0, n_features), dtype=dtype)
    unknown = float("nan")
    X = [dask.array.from_delayed(part[0], (unknown, n_features), meta=empty) for part in loaded]
    y = [dask.array.from_delayed(part[1], (unknown,), meta=np.empty(0)) for part in loaded]
    return dask.array.concatenate(X, allow_unknown_chunksizes=True), dask.array.concatenate(y)


def _found(paths: Paths) -> dict[str, int]:
    """All files, in order, and their sizes in bytes."""
    from fsspec.core import url_to_fs

    found: dict[str, int] = {}
    for path in [paths] if isinstance(paths, str | os.PathLike) else paths:
        system, pattern = url_to_fs(os.fspath(path))
        names = system.ls(pattern, detail=False) if system.isdir(pattern) else system.glob(pattern)
        files = [name for name in sorted(names) if system.isfile(name)]
        if not files:
            raise FileNotFoundError(f"there is no file {os.fspath(path)!r}")
        is_url = svmlight.is_url(path)
        found |= {system.unstrip_protocol(name) if is_url else name: int(system.size(name)) for name in files}
    if not found:
        raise ValueError("there are no files to read")
    return found


def _chunks(path: str, size: int, blocksize: int) -> list[tuple[str, int, int]]:
    """Ranges of bytes as (path, offset, length)."""
    with svmlight.open_file(path) as file:
        compressed = file.read(6).startswith(tuple(svmlight.MAGIC))
    if compressed:
        return [(path, 0, -1)]
    return [(path, begin, blocksize) for begin in range(0, max(size, 1), blocksize)]


def _extent(path: str, offset: int, length: int) -> tuple[int, int]:
    """Smallest and largest index; 1 and 0 where there is none."""
    X, _ = svmlight.load_svmlight(path, n_features=_MANY, zero_based=True, offset=offset, length=length)
    return int(np.min(X.indices, initial=1)), int(np.max(X.indices, initial=0))


_MANY = int(np.iinfo(np.int64).max)


def _load(
    path: str, offset: int, length: int, n_features: int, zero_based: bool, dtype: np.dtype[Any]
) -> tuple[Any, Any]:
    X, y = svmlight.load_svmlight(
        path, n_features=n_features, zero_based=zero_based, dtype=dtype, offset=offset, length=length
    )
    return X, y
