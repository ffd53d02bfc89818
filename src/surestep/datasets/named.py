"""Data sets by name: the paper's, real sets in a folder, scikit-learn's, and a generated one that is always there."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from surestep.datasets._download import download_path, downloaded
from surestep.datasets.generated import make_bag_of_words
from surestep.datasets.subsets import subset, with_ones
from surestep.datasets.svmlight import load_svmlight

LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/"

Task = Literal["binary", "multiclass", "regression"]

_TEN_THOUSAND = (10_000, 10_000)
_FIFTEEN_PERCENT = (0.15, 0.15)


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set.

    Attributes
    ----------
    name : str
        Under which results on it are to be reported.
    X : csr_array or ndarray of shape (n_samples, n_features)
    y : ndarray of shape (n_samples,)
        Labels -1 and +1 of binary tasks, 0, 1, ... of those with more classes; numbers of regression tasks.
    task : "binary", "multiclass" or "regression"
    description : str
        What it is.
    source : str
        Where this copy came from: a file, an address, a generator.
    """

    name: str
    X: Any = field(repr=False)
    y: NDArray[np.float64] = field(repr=False)
    task: Task
    description: str
    source: str


class DatasetInfo(NamedTuple):
    """What is known of a data set before it is loaded; ``available`` says whether that needs no network."""

    name: str
    n_samples: int
    n_features: int
    task: Task
    description: str
    available: bool


class _Entry(NamedTuple):
    n_samples: int
    n_features: int
    task: Task
    description: str
    prime: tuple[float, float] | None = None  # rows and columns of the paper's primed version, if there is one
    load: Callable[[], Any] | None = None  # without a file
    address: str | None = None


def _bundled(name: str) -> Callable[[], Any]:
    def load() -> tuple[Any, Any]:
        import sklearn.datasets

        return getattr(sklearn.datasets, f"load_{name}")(return_X_y=True)  # type: ignore[no-any-return]

    return load


def _from_libsvm(n_samples: int, n_features: int, prime: tuple[float, float], file: str) -> _Entry:
    return _Entry(n_samples, n_features, "binary", "of the paper, from the LIBSVM page", prime, address=LIBSVM + file)


_ENTRIES: dict[str, _Entry] = {
    "bag_of_words": _Entry(
        10_000, 10_000, "binary", "generated: documents of some 30 words by Zipf's law", _TEN_THOUSAND
    ),
    "rcv1_train.binary": _from_libsvm(20_242, 47_236, _TEN_THOUSAND, "rcv1_train.binary.bz2"),
    "real-sim": _from_libsvm(72_309, 20_958, _TEN_THOUSAND, "real-sim.bz2"),
    "news20.binary": _from_libsvm(19_996, 1_355_191, _FIFTEEN_PERCENT, "news20.binary.bz2"),
    "rcv1_subset.binary": _Entry(
        23_749, 47_236, "binary", "Reuters RCV1-v2, other documents than rcv1_train.binary", _TEN_THOUSAND
    ),
    "news20_bigram.binary": _Entry(
        19_997, 1_409_650, "binary", "20 Newsgroups, other words than news20.binary", _FIFTEEN_PERCENT
    ),
    "imdb_counts": _Entry(50_000, 20_488, "binary", "IMDB reviews, counts of words", _TEN_THOUSAND),
    "reuters_money-fx": _Entry(7_770, 8_315, "binary", "Reuters-21578, topic money-fx, tf-idf"),
    "reuters_money-fx.t": _Entry(3_299, 8_315, "binary", "test set of reuters_money-fx"),
    "dorothea": _Entry(800, 88_119, "binary", "NIPS 2003 challenge, columns of zeros left out"),
    "a9a": _Entry(32_561, 123, "binary", "Adult census income"),
    "a9a.t": _Entry(16_281, 123, "binary", "test set of a9a"),
    "w8a": _Entry(49_749, 300, "binary", "web pages"),
    "ijcnn1": _Entry(49_990, 22, "binary", "IJCNN 2001 challenge"),
    "ijcnn1.t": _Entry(91_701, 22, "binary", "test set of ijcnn1"),
    "mushrooms": _Entry(8_124, 112, "binary", "poisonous or not"),
    "phishing": _Entry(11_055, 68, "binary", "web sites, fraudulent or not"),
    "madelon": _Entry(2_000, 500, "binary", "NIPS 2003 challenge, artificial; not scaled"),
    "madelon.t": _Entry(600, 500, "binary", "test set of madelon"),
    "leu": _Entry(38, 7_129, "binary", "leukemia, gene expressions"),
    "leu.t": _Entry(34, 7_129, "binary", "test set of leu"),
    "colon-cancer": _Entry(62, 2_000, "binary", "gene expressions"),
    "duke": _Entry(44, 7_129, "binary", "breast cancer, gene expressions"),
    "riboflavin": _Entry(71, 4_088, "regression", "riboflavin production, gene expressions; not scaled"),
    "cadata": _Entry(20_640, 8, "regression", "California housing; not scaled"),
    "cpusmall": _Entry(8_192, 12, "regression", "processor activity; not scaled"),
    "abalone_scale": _Entry(4_177, 8, "regression", "age of abalone"),
    "breast_cancer": _Entry(569, 30, "binary", "comes with scikit-learn; not scaled", load=_bundled("breast_cancer")),
    "diabetes": _Entry(442, 10, "regression", "comes with scikit-learn", load=_bundled("diabetes")),
    "digits": _Entry(1_797, 64, "multiclass", "comes with scikit-learn", load=_bundled("digits")),
    "iris": _Entry(150, 4, "multiclass", "comes with scikit-learn", load=_bundled("iris")),
    "wine": _Entry(178, 13, "multiclass", "comes with scikit-learn; not scaled", load=_bundled("wine")),
}


def list_datasets(data: os.PathLike[str] | str | None = None) -> list[DatasetInfo]:
    """Return what there is by name; `data` as for `load_dataset`."""
    return [DatasetInfo(name, *entry[:4], _is_here(name, entry, data)) for name, entry in _ENTRIES.items()]


def _is_here(name: str, entry: _Entry, data: os.PathLike[str] | str | None) -> bool:
    if name == "bag_of_words" or entry.load is not None or _find(name, data) is not None:
        return True
    return entry.address is not None and download_path(entry.address).exists()


def load_dataset(
    name: str = "bag_of_words",
    *,
    data: os.PathLike[str] | str | None = None,
    sha256: str | None = None,
    random_state: int = 0,
) -> Dataset:
    """Load a data set by name.

    The default is generated, so that it is there without any file or network. Others are looked for in a folder: a
    file of their name, in svmlight format (plain, .bz2, .gz or .xz) or as a SciPy .npz with labels ``y``. The paper's
    own sets, rcv1_train.binary, real-sim and news20.binary, are downloaded from the LIBSVM page if they are not there.
    Parsed files and downloads are kept in the user's cache directory (``SURESTEP_CACHE``).

    Parameters
    ----------
    name : str
        One of `list_datasets`. With a prime (rcv1_train.binary') it is the paper's version: non-zeros set to 1, and
        10,000 random rows and columns, or 15 % of both of the sets made of 20 Newsgroups.
    data : path-like, optional
        The folder; ``SURESTEP_DATA`` by default.
    sha256 : str, optional
        Checksum that a download must have. None is known for the LIBSVM files: without this argument the first
        download is trusted, and later loads are held to the checksum it had.
    random_state : int
        Decides what is generated, and the rows and columns of a primed version.

    Returns
    -------
    Dataset

    Raises
    ------
    FileNotFoundError
        If the set is not to be had here.

    Examples
    --------
    >>> from surestep.datasets import load_dataset
    >>> load_dataset("diabetes").X.shape
    (442, 10)
    """
    base = name.removesuffix("'")
    entry = _ENTRIES.get(base)
    if entry is None:
        near = difflib.get_close_matches(base, _ENTRIES) or list(_ENTRIES)
        raise ValueError(f"there is no data set {name!r}; do you mean {' or '.join(near)}?")
    if name != base and entry.prime is None:
        primed = ", ".join(other + "'" for other, entry in _ENTRIES.items() if entry.prime is not None)
        raise ValueError(f"the paper has no version {name!r}; there are {primed}")
    X, y, source = _loaded(base, entry, data, sha256, random_state)
    if X.shape != (entry.n_samples, entry.n_features):
        raise ValueError(
            f"{source} has shape {X.shape}, but {base} has ({entry.n_samples}, {entry.n_features}): it is another file"
        )
    description = entry.description
    if name != base:
        X, y = subset(with_ones(X), y, *entry.prime, random_state=random_state)  # type: ignore[misc]  # checked above
        description += f"; {X.shape[0]} random rows and {X.shape[1]} columns, non-zeros set to 1"
    return Dataset(name, X, y, entry.task, description, source)


def _loaded(
    name: str, entry: _Entry, data: os.PathLike[str] | str | None, sha256: str | None, random_state: int
) -> tuple[Any, NDArray[np.float64], str]:
    """X, y and where they came from."""
    if name == "bag_of_words":
        return *make_bag_of_words(random_state=random_state), f"make_bag_of_words(random_state={random_state})"
    if entry.load is not None:
        X, y = entry.load()
        y = y.astype(np.float64)
        return X, 2.0 * y - 1.0 if entry.task == "binary" else y, f"sklearn.datasets.load_{name}"
    path = _find(name, data)
    source = str(path)
    if path is None:
        path, source = _from_network(name, entry, data, sha256)
    if path.suffix == ".npz":
        X = scipy.sparse.csr_array(scipy.sparse.load_npz(path), dtype=np.float64)
        with np.load(path) as arrays:
            return X, arrays["y"].astype(np.float64), source
    X, y = load_svmlight(path, n_features=entry.n_features, zero_based=False, cache=True)
    return X, y, source


def _find(name: str, data: os.PathLike[str] | str | None) -> Path | None:
    folder = data or os.environ.get("SURESTEP_DATA")
    if not folder:
        return None
    paths = (Path(folder) / (name + suffix) for suffix in ("", ".bz2", ".xz", ".gz", ".npz"))
    return next((path for path in paths if path.is_file()), None)


def _from_network(
    name: str, entry: _Entry, data: os.PathLike[str] | str | None, sha256: str | None
) -> tuple[Path, str]:
    folder = data or os.environ.get("SURESTEP_DATA")
    where = f"is not in the folder {os.fspath(folder)}" if folder else "needs a file (no data=, no SURESTEP_DATA)"
    if entry.address is None:
        raise FileNotFoundError(
            f"{name} {where}: name a folder that has the file by data= or SURESTEP_DATA, or take the generated set "
            "'bag_of_words'"
        )
    try:
        return downloaded(entry.address, sha256), entry.address
    except OSError as error:
        raise FileNotFoundError(
            f"{name} {where}, and {error}. Bring {entry.address} into a folder named by data= or SURESTEP_DATA, or "
            "take the generated set 'bag_of_words'"
        ) from error
