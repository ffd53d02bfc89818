"""Files in svmlight (LIBSVM) format: ``label [qid:id] index:value index:value ... # comment``, a sample a line."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import logging
import lzma
import os
import re
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import ArrayLike, DTypeLike

from surestep.datasets import _parse
from surestep.datasets._cache import cache_folder, file_hash, written_at_once

logger = logging.getLogger("surestep")

Array = np.ndarray[Any, np.dtype[Any]]

BLOCK = 1 << 22  # bytes parsed at a time
CACHE_FORMAT = 1  # to be raised when `_Contents` changes

MAGIC: dict[bytes, Any] = {b"\x1f\x8b": gzip.open, b"BZh": bz2.open, b"\xfd7zXZ\x00": lzma.open}
SUFFIX: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}

_NUMBER = re.compile(rb"[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|nan|inf|infinity)", re.IGNORECASE)
_TOKEN = re.compile(rb"[^\s#]*")
_INDEX = re.compile(rb"(?<=\s)(\d+):")


class MalformedFileError(ValueError):
    """A file that is not in svmlight format.

    Attributes
    ----------
    line, column : int
        Where, counted from 1; columns are bytes.
    """

    def __init__(self, path: os.PathLike[str] | str, line: int, column: int, message: str) -> None:
        super().__init__(f"{os.fspath(path)}, line {line}, column {column}: {message}")
        self.line = line
        self.column = column


class _Contents(NamedTuple):
    """A parsed file, or a part of one, with its indices as they stand there; `queries` is empty if not asked for."""

    labels: Array
    starts: Array
    indices: Array
    values: Array
    queries: Array
    ascending: bool


def load_svmlight(
    path: os.PathLike[str] | str,
    *,
    n_features: int | None = None,
    zero_based: bool | Literal["auto"] = "auto",
    dtype: DTypeLike = np.float64,
    offset: int = 0,
    length: int = -1,
    with_qid: bool = False,
    cache: bool = False,
) -> tuple[Any, ...]:
    """Read a file in svmlight format, or a range of its bytes.

    Parameters
    ----------
    path : path-like
        Plain text, or compressed by gzip, bzip2 or xz (told by its first bytes, whatever its name is). A URL, such as
        hdfs://host/file, is opened by fsspec, where that is installed.
    n_features : int, optional
        Number of columns of X; the largest index in the file decides by default, so the last columns may be lost if
        they are empty.
    zero_based : bool or "auto"
        Whether the first feature has index 0 in the file. "auto" takes it for 1 if no index is 0, as scikit-learn does.
    dtype : float64 or float32
        Type of the values of X; a number is the float nearest to its decimal form, then converted.
    offset, length : int
        Read the lines whose first byte is one of ``length`` bytes from ``offset`` on (-1: to the end), of the text
        without compression. Ranges that adjoin give every line exactly once. A range alone cannot tell how many
        features there are and where they start, so `n_features` and `zero_based` must be said.
    with_qid : bool
        Also return the query ids, which every line must then have; else they are skipped.
    cache : bool
        Keep the parsed file in the user's cache directory, under the hash of its bytes, and look for it there first.

    Returns
    -------
    X : csr_array of shape (n_samples, n_features)
        Indices rise within a row; explicit zeros are kept.
    y : ndarray of shape (n_samples,)
        Labels, float64.
    qid : ndarray of shape (n_samples,)
        Query ids, int64; only if asked for.

    Raises
    ------
    MalformedFileError
        With the line and column of the first error; nothing is returned of a file that has one.
    ValueError
        If the compressed data is damaged, or if an index does not go with `n_features` or `zero_based`.
    """
    partial = offset != 0 or length >= 0
    if partial and (n_features is None or zero_based == "auto"):
        raise ValueError("a part of a file does not tell its features: say n_features, and zero_based=True or False")
    if partial and cache:
        raise ValueError("only whole files are cached; leave cache=False where offset or length is given")
    if offset < 0:
        raise ValueError(f"offset must be 0 or more, but is {offset}")
    if np.dtype(dtype) not in (np.float32, np.float64):
        raise ValueError(f"dtype must be float32 or float64, but is {np.dtype(dtype)}")
    if cache and is_url(path):
        raise ValueError(f"only local files are cached, not {path}; leave cache=False")
    contents = _cached(Path(path), with_qid) if cache else _read(path, offset, length, with_qid)
    X = _matrix(path, contents, n_features, zero_based, np.dtype(dtype))
    return (X, contents.labels, contents.queries) if with_qid else (X, contents.labels)


def save_svmlight(
    X: Any,
    y: ArrayLike,
    path: os.PathLike[str] | str,
    *,
    zero_based: bool = False,
    qid: ArrayLike | None = None,
    comment: str = "",
) -> None:
    """Write a file in svmlight format, from which `load_svmlight` reads the very same numbers.

    Parameters
    ----------
    X : array-like or sparse, shape (n_samples, n_features)
        Stored entries are written, explicit zeros too; of a dense array, the non-zeros.
    y : array-like of shape (n_samples,)
    path : path-like
        A name that ends in .gz, .bz2 or .xz is compressed so. It appears when all is written, and not on an error.
    zero_based : bool
        Whether the first feature has index 0. LIBSVM wants 1; and zero-based indices look one-based to a reader where
        the first column is empty.
    qid : array-like of int, shape (n_samples,), optional
        Query ids.
    comment : str
        Written at the top.
    """
    X = scipy.sparse.csr_array(X)
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    y = np.asarray(y, dtype=np.float64)
    if y.shape != (X.shape[0],):
        raise ValueError(f"y must have one label for each of the {X.shape[0]} rows of X, but has shape {y.shape}")
    queries = None if qid is None else np.asarray(qid)
    if queries is not None and (queries.shape != y.shape or queries.dtype.kind not in "iu"):
        raise ValueError(f"qid must be {X.shape[0]} integers, but has shape {queries.shape} and dtype {queries.dtype}")
    path = Path(path)
    with written_at_once(path) as unfinished, SUFFIX.get(path.suffix, open)(unfinished, "wb") as file:
        for line in comment.splitlines():
            file.write(f"# {line}\n".encode())
        indices = X.indices if zero_based else X.indices.astype(np.int64) + 1
        for row, label in enumerate(y.tolist()):
            entries = slice(X.indptr[row], X.indptr[row + 1])
            pairs = zip(indices[entries].tolist(), X.data[entries].tolist(), strict=True)
            words = [_decimal(label), *(f"{index}:{_decimal(value)}" for index, value in pairs)]
            if queries is not None:
                words.insert(1, f"qid:{queries[row]}")
            file.write((" ".join(words) + "\n").encode())


def _decimal(value: float) -> str:
    """Shortest decimal form that reads back as the same float."""
    return repr(float(value)).removesuffix(".0")


def _cached(path: Path, with_qid: bool) -> _Contents:
    kind = "queries" if with_qid else "plain"
    place = cache_folder() / "parsed" / f"{file_hash(path)}-{kind}-{CACHE_FORMAT}.npz"
    if place.exists():
        try:
            # NumPy leaves a file that it cannot read open.
            with open(place, "rb") as file, np.load(file, allow_pickle=False) as arrays:
                return _Contents(**{name: arrays[name] for name in _Contents._fields})
        except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            logger.warning("%s is damaged (%s) and is made anew", place, error)
    contents = _read(path, 0, -1, with_qid)
    try:
        with written_at_once(place) as unfinished:
            np.savez(unfinished, **contents._asdict())
    except OSError as error:
        logger.warning("%s cannot be written (%s): the file is parsed anew every time", place, error)
    return contents


def _read(path: os.PathLike[str] | str, offset: int, length: int, with_qid: bool) -> _Contents:
    with _opened(path) as stream:
        blocks = [_parsed(text, begin, path, with_qid) for begin, text in _blocks(stream, offset, length)]
    labels, starts, indices, values, queries, ascending = zip(*blocks, strict=True)
    ends = np.cumsum([0, *(start[-1] for start in starts)])
    joined = [np.zeros(1, np.int64), *(start[1:] + end for start, end in zip(starts, ends, strict=False))]
    return _Contents(
        np.concatenate(labels),
        np.concatenate(joined),
        np.concatenate(indices),
        np.concatenate(values),
        np.concatenate(queries),
        all(ascending),
    )


def is_url(path: os.PathLike[str] | str) -> bool:
    """Whether it is for fsspec to open."""
    return "://" in os.fspath(path)


def open_file(path: os.PathLike[str] | str) -> IO[bytes]:
    """Open a file, or what a URL stands for, to read its bytes."""
    if not is_url(path):
        return open(path, "rb")
    try:
        import fsspec
    except ImportError as error:
        raise ImportError(f"{path} needs fsspec: pip install fsspec") from error
    opened: IO[bytes] = fsspec.open(os.fspath(path), "rb").open()
    return opened


@contextlib.contextmanager
def _opened(path: os.PathLike[str] | str) -> Iterator[IO[bytes]]:
    """Open for reading, decompressed; damage that is found while reading becomes an error that names the file."""
    with open_file(path) as file:
        begin = file.read(6)
        file.seek(0)
        opener = next((opener for magic, opener in MAGIC.items() if begin.startswith(magic)), None)
        if opener is None:
            yield file
            return
        with opener(file, "rb") as stream:
            try:
                yield stream
            except (OSError, EOFError, lzma.LZMAError, zlib.error) as error:
                raise ValueError(f"{path}: the compressed data is damaged or cut off: {error}") from error


def _blocks(stream: IO[bytes], offset: int, length: int) -> Iterator[tuple[int, bytes]]:
    """Where it begins, and a block of whole lines that begin in the range, about BLOCK bytes at a time.

    The last one is empty. A newline is added to a last line that has none.
    """
    begin, end = offset, np.inf if length < 0 else offset + length
    if offset > 0:
        # A line begins at `offset` only if the byte before it ends one.
        stream.seek(offset - 1)
        begin = offset - 1 + len(stream.readline())
    text = b"\n"
    while text:
        text = stream.read(int(min(BLOCK, max(end - begin, 0))))
        if text and not text.endswith(b"\n"):
            text += stream.readline()
        yield begin, text if text.endswith(b"\n") or not text else text + b"\n"
        begin += len(text)


def _parsed(text: bytes, begin: int, path: os.PathLike[str] | str, with_qid: bool) -> _Contents:
    """Parse the block of lines that begins at the byte `begin` of the file."""
    view = np.frombuffer(text, np.uint8)
    # At most; bytes.count is many times slower for a byte as frequent as this.
    n_rows, n_entries = (int(np.count_nonzero(view == byte)) for byte in (_parse.NEWLINE, _parse.COLON))
    labels, starts = np.empty(n_rows), np.empty(n_rows + 1, np.int64)
    indices, values = np.empty(n_entries, np.int64), np.empty(n_entries)
    queries = np.empty(n_rows if with_qid else 0, np.int64)
    pending = np.empty((n_rows + n_entries, 2), np.int64)
    found = _parse.Parsed(*_parse.parse(view, labels, starts, indices, values, queries, pending))

    def failed(at: int, message: str) -> MalformedFileError:
        lines = _count_lines(path, begin) + text.count(b"\n", 0, at)
        return MalformedFileError(path, lines + 1, at - text.rfind(b"\n", 0, at), message)

    for at, target in pending[: found.n_pending].tolist():
        token = _TOKEN.match(text, at).group()  # type: ignore[union-attr]  # it matches even nothing
        if not _NUMBER.fullmatch(token):
            what = "the label" if target < 0 else f"the value of feature {indices[target]}"
            raise failed(at, f"{what} is not a number: {_shown(token)}")
        if target < 0:
            labels[-1 - target] = float(token)
        else:
            values[target] = float(token)
    if found.error != _parse.FINE:
        raise failed(*_explained(text, found))
    indices = indices[: found.n_entries]
    if np.max(indices, initial=0) < np.iinfo(np.int32).max:  # one is left for what may come after the largest
        indices = indices.astype(np.int32)
    return _Contents(
        labels[: found.n_rows],
        starts[: found.n_rows + 1],
        indices,
        values[: found.n_entries],
        queries[: found.n_rows],
        bool(found.ascending),
    )


def _explained(text: bytes, found: _parse.Parsed) -> tuple[int, str]:
    """Where the structure of a line breaks, and how."""
    at = int(found.at)
    token = _shown(_TOKEN.match(text, at).group())  # type: ignore[union-attr]
    if found.error == _parse.BAD_INDEX:
        return at, f"expected index:value with an index of at most {_parse.LONGEST_INTEGER} digits, found {token}"
    if found.error == _parse.BAD_QUERY:
        return at, f"expected qid:number with at most {_parse.LONGEST_INTEGER} digits, found {token}"
    if found.error == _parse.NO_QUERY:
        return at, "there is no qid after the label; read the file with with_qid=False"
    # The kernel knows only the line of an index that appears twice.
    begin, end = text.rfind(b"\n", 0, at) + 1, text.index(b"\n", at)
    seen: set[int] = set()
    for match in _INDEX.finditer(text, begin, end):
        index = int(match[1])
        if index in seen:
            return match.start(), f"feature {index} appears twice in this line"
        seen.add(index)
    raise AssertionError("the kernel saw an index twice")


def _shown(token: bytes) -> str:
    text = token.decode("utf-8", errors="backslashreplace")
    return repr(text if len(text) <= 40 else text[:37] + "...")


def _count_lines(path: os.PathLike[str] | str, end: int) -> int:
    """Lines that begin before the byte `end`."""
    with _opened(path) as stream:
        return sum(text.count(b"\n") for _, text in _blocks(stream, 0, end))


def _matrix(
    path: os.PathLike[str] | str,
    contents: _Contents,
    n_features: int | None,
    zero_based: bool | Literal["auto"],
    dtype: np.dtype[Any],
) -> Any:
    indices, starts = contents.indices, contents.starts
    smallest, largest = np.min(indices, initial=1), np.max(indices, initial=0)
    first = int(smallest > 0) if zero_based == "auto" else int(not zero_based)
    if smallest < first:
        raise ValueError(f"{path}: {_sample(contents, 0)} has feature 0, but zero_based=False says that 1 is the first")
    if n_features is None:
        n_features = int(largest) + 1 - first if indices.size else 0
    elif largest >= n_features + first:
        raise ValueError(
            f"{path}: {_sample(contents, largest)} has feature {largest}, but the last of n_features={n_features} is "
            f"{n_features + first - 1}, as the first is {first}"
        )
    if first:
        indices = indices - first
    # Other arrays than those of int32 twice are copied by SciPy.
    kind = np.int32 if max(starts[-1], n_features) <= np.iinfo(np.int32).max else np.int64
    arrays = contents.values.astype(dtype, copy=False), indices.astype(kind, copy=False), starts.astype(kind)
    X = scipy.sparse.csr_array(arrays, shape=(contents.labels.size, n_features))
    if not contents.ascending:
        X.sort_indices()
    return X


def _sample(contents: _Contents, index: int) -> str:
    """The first row with an index, by its number."""
    entry = np.flatnonzero(contents.indices == index)[0]
    return f"row {np.searchsorted(contents.starts, entry, side='right') - 1} of X"
