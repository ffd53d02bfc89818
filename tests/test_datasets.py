"""Data sets by name, downloads, subsets, the generator."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import logging
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse

from surestep.datasets import (
    _cache,
    _download,
    list_datasets,
    load_dataset,
    make_bag_of_words,
    named,
    save_svmlight,
    subset,
    with_ones,
)

BESIDE = Path(__file__).resolve().parent.parent.parent / "shared" / "data"
REAL = Path(os.environ.get("SURESTEP_DATA", BESIDE))


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SURESTEP_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("SURESTEP_DATA", raising=False)
    return tmp_path / "cache"


# Where the cache is


def test_the_cache_is_where_the_platform_keeps_caches(monkeypatch, tmp_path):
    assert _cache.cache_folder() == tmp_path / "cache"
    monkeypatch.delenv("SURESTEP_CACHE")
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    expected = {
        ("linux", "XDG_CACHE_HOME", ""): tmp_path / ".cache",
        ("linux", "XDG_CACHE_HOME", "/x"): Path("/x"),
        ("darwin", "XDG_CACHE_HOME", "/x"): tmp_path / "Library" / "Caches",
        ("win32", "LOCALAPPDATA", "/y"): Path("/y"),
        ("win32", "LOCALAPPDATA", ""): tmp_path / "AppData" / "Local",
    }
    for (platform, variable, value), folder in expected.items():
        monkeypatch.setattr(sys, "platform", platform)
        monkeypatch.setenv(variable, value)
        assert _cache.cache_folder() == folder / "surestep"


def test_a_file_is_there_whole_or_not_at_all(tmp_path):
    path = tmp_path / "new" / "file.txt"
    with _cache.written_at_once(path) as unfinished:
        unfinished.write_text("all")
        assert not path.exists()
    assert path.read_text() == "all"
    with contextlib.suppress(KeyboardInterrupt), _cache.written_at_once(path) as unfinished:
        unfinished.write_text("ha")
        raise KeyboardInterrupt
    assert [p.name for p in path.parent.iterdir()] == ["file.txt"]
    assert path.read_text() == "all"


# The generator and the subsets


def test_bag_of_words_is_the_same_for_the_same_seed():
    X, y = make_bag_of_words(500, 300, random_state=3)
    again, _ = make_bag_of_words(500, 300, random_state=3)
    other, _ = make_bag_of_words(500, 300, random_state=4)
    assert (again != X).nnz == 0
    assert (other != X).nnz > 0
    assert X.shape == (500, 300)
    assert X.has_canonical_format
    assert set(np.unique(y)) == {-1.0, 1.0}
    assert abs(y.mean()) < 0.2
    assert np.diff(X.indptr).min() >= 1
    assert X.sum() / 500 == pytest.approx(31, abs=1)
    frequency = X.sum(axis=0)
    assert frequency[:10].mean() > 5 * frequency[-100:].mean()
    np.testing.assert_array_equal(X.data, np.round(X.data))
    _, clear = make_bag_of_words(500, 300, noise=0.0, n_words=5, random_state=3)
    assert set(np.unique(clear)) == {-1.0, 1.0}


def test_a_linear_model_learns_the_generated_labels():
    X, y = make_bag_of_words(1000, 100)
    coef = np.linalg.lstsq(X[:500].toarray(), y[:500])[0]
    assert np.mean(np.sign(X[500:] @ coef) == y[500:]) > 0.65


@pytest.mark.parametrize("kind", [scipy.sparse.csr_array, scipy.sparse.csc_matrix, np.asarray])
def test_subsets_are_rows_and_columns_of_the_whole(kind):
    whole = np.arange(1.0, 41.0).reshape(8, 5)
    y = np.arange(8.0)
    X, labels = subset(kind(whole), y, 3, 0.4, random_state=1)
    assert scipy.sparse.issparse(X) == (kind is not np.asarray)
    X = X.toarray() if scipy.sparse.issparse(X) else X
    assert X.shape == (3, 2)
    columns = [int(value - 1) % 5 for value in X[0]]
    assert len(set(columns)) == 2
    assert len(set(labels)) == 3
    np.testing.assert_array_equal(X, whole[labels.astype(int)][:, columns])
    same, _ = subset(kind(whole), y, 3, 0.4, random_state=1)
    np.testing.assert_array_equal(same.toarray() if scipy.sparse.issparse(same) else same, X)
    seeds = [tuple(subset(kind(whole), y, 3, 0.4, random_state=seed)[1]) for seed in range(5)]
    assert len(set(seeds)) > 1
    assert subset(kind(whole), y)[0].shape == (8, 5)


@pytest.mark.parametrize("wrong", [0, -3, 0.0, 1.5, float("nan")])
def test_subsets_refuse_what_is_no_count_and_no_part(wrong):
    with pytest.raises(ValueError, match="n_features must be"):
        subset(np.eye(3), np.ones(3), 2, wrong)


def test_ones_for_non_zeros():
    X = scipy.sparse.csr_array((np.array([2.0, 0.0, -1.0, 1.0]), np.array([0, 1, 2, 2]), np.array([0, 2, 4])))
    found = with_ones(X)
    np.testing.assert_array_equal(found.toarray(), [[1, 0, 0], [0, 0, 0]])
    assert found.nnz == 1
    np.testing.assert_array_equal(with_ones(np.array([[2, 0], [-1, 0.5]])), [[1, 0], [1, 1]])
    assert X.data.tolist() == [2.0, 0.0, -1.0, 1.0]


# Sets by name


def test_every_command_has_data_without_files_and_network(monkeypatch):
    monkeypatch.setattr(named, "downloaded", None)
    monkeypatch.setattr(named, "make_bag_of_words", lambda random_state: make_bag_of_words(random_state=random_state))
    data = load_dataset()
    assert data.name == "bag_of_words"
    assert data.X.shape == (10_000, 10_000)
    assert data.source == "make_bag_of_words(random_state=0)"
    assert "X=" not in repr(data)
    primed = load_dataset("bag_of_words'", random_state=5)
    assert primed.name == "bag_of_words'"
    assert set(primed.X.data) == {1.0}


@pytest.mark.parametrize("name", ["breast_cancer", "diabetes", "digits", "iris", "wine"])
def test_sets_that_come_with_scikit_learn(name):
    info = {info.name: info for info in list_datasets()}[name]
    data = load_dataset(name)
    assert info.available
    assert data.X.shape == (info.n_samples, info.n_features)
    assert data.y.dtype == np.float64
    assert data.y.shape == data.X.shape[:1]
    assert data.task == info.task
    labels = np.unique(data.y)
    if data.task == "binary":
        assert labels.tolist() == [-1.0, 1.0]
    elif data.task == "multiclass":
        assert labels.tolist() == list(range(len(labels)))
        assert len(labels) > 2
    else:
        assert len(labels) > 100


def test_names_are_checked():
    with pytest.raises(ValueError, match=r"no data set 'rcv1_train'; do you mean rcv1_train.binary"):
        load_dataset("rcv1_train")
    with pytest.raises(ValueError, match=r"no data set '\?'; do you mean bag_of_words or"):
        load_dataset("?")
    with pytest.raises(ValueError, match=r"the paper has no version \"iris'\"; there are bag_of_words', rcv1_train"):
        load_dataset("iris'")


def test_a_set_that_is_not_here_says_what_to_do(tmp_path, monkeypatch):
    with pytest.raises(
        FileNotFoundError, match=r"a9a needs a file .* name a folder that has the file by data= or SURESTEP"
    ):
        load_dataset("a9a")
    monkeypatch.setenv("SURESTEP_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=rf"a9a is not in the folder {tmp_path}: name a folder"):
        load_dataset("a9a")
    assert not {info.name: info.available for info in list_datasets()}["a9a"]


@pytest.mark.parametrize("suffix", ["", ".bz2", ".gz", ".xz", ".npz"])
def test_sets_from_a_folder(tmp_path, monkeypatch, suffix):
    rng = np.random.default_rng(0)
    X, y = scipy.sparse.csr_array(rng.normal(size=(62, 2000)) * (rng.random((62, 2000)) < 0.01)), np.ones(62)
    path = tmp_path / f"colon-cancer{suffix}"
    if suffix == ".npz":
        fields = {"data": X.data, "indices": X.indices, "indptr": X.indptr, "shape": X.shape, "format": b"csr"}
        np.savez(path, y=y, **fields)
    else:
        save_svmlight(X, y, path)
    found = load_dataset("colon-cancer", data=tmp_path)
    assert (found.X != X).nnz == 0
    assert found.y.tolist() == y.tolist()
    assert found.source == str(path)
    monkeypatch.setenv("SURESTEP_DATA", str(tmp_path))
    assert {info.name: info.available for info in list_datasets()}["colon-cancer"]
    assert (load_dataset("colon-cancer").X != X).nnz == 0


def test_another_file_of_that_name_is_refused(tmp_path):
    save_svmlight(np.eye(3), np.ones(3), tmp_path / "duke")
    with pytest.raises(ValueError, match=r"has shape \(3, 7129\), but duke has \(44, 7129\): it is another file"):
        load_dataset("duke", data=tmp_path)


SMALL = ["rcv1_subset.binary", "leu", "a9a.t", "abalone_scale", "riboflavin", "reuters_money-fx.t", "mushrooms"]


@pytest.mark.skipif(not REAL.is_dir(), reason=f"no data in {REAL} (set SURESTEP_DATA)")
@pytest.mark.parametrize("name", SMALL)
def test_real_sets_are_what_the_list_says(name):
    if named._find(name, REAL) is None:
        pytest.skip(f"no {name} in {REAL}")
    data = load_dataset(name, data=REAL)
    labels = np.unique(data.y)
    assert labels.tolist() == [-1.0, 1.0] if data.task == "binary" else len(labels) > 2
    assert np.isfinite(data.X.data).all()


@pytest.mark.skipif(named._find("news20_bigram.binary", REAL) is None, reason=f"not in {REAL} (set SURESTEP_DATA)")
def test_fifteen_per_cent_of_both():
    data = load_dataset("news20_bigram.binary'", data=REAL)
    assert data.X.shape == (3_000, 211_448)
    assert set(data.X.data) == {1.0}
    assert "3000 random rows and 211448 columns" in data.description


# Downloads


class Server(http.server.ThreadingHTTPServer):
    """Serves one file, with the failures a test asks for."""

    content = b""
    etag: str | None = '"1"'
    cut_after: list[int]  # bytes after which the next answers break off
    status: int | None = None
    wrong_range = False
    seen: list[tuple[str | None, int]]  # the Range of a request, and the status of its answer


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        asked = self.headers.get("Range")
        body, status = server.content, 200
        if server.status:
            body, status = b"", server.status
        elif asked and self.headers.get("If-Range") == server.etag:
            begin = int(asked.removeprefix("bytes=").removesuffix("-"))
            body, status = (body[begin:], 206) if begin < len(body) else (b"", 416)
        server.seen.append((asked, status))
        self.send_response(status)
        if status == 206:
            begin += server.wrong_range
            self.send_header("Content-Range", f"bytes {begin}-{len(server.content) - 1}/{len(server.content)}")
        self.send_header("Content-Length", str(len(body)))
        if server.etag:
            self.send_header("ETag", server.etag)
        self.end_headers()
        self.wfile.write(body[: server.cut_after.pop(0)] if server.cut_after else body)

    def log_message(self, *arguments):
        pass


@pytest.fixture
def server(monkeypatch, tmp_path):
    monkeypatch.setenv("no_proxy", "*")
    server = Server(("127.0.0.1", 0), Handler)
    server.seen, server.cut_after = [], []
    save_svmlight(np.random.default_rng(0).normal(size=(40, 9)), np.ones(40), tmp_path / "small.bz2")
    server.content = (tmp_path / "small.bz2").read_bytes()
    server.url = f"http://127.0.0.1:{server.server_port}/files/small.bz2"
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    entry = named._Entry(40, 9, "binary", "small", address=server.url)
    monkeypatch.setitem(named._ENTRIES, "small", entry)
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def files(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "downloads").iterdir())


def test_a_set_is_downloaded_once(server, own_cache):
    assert not {info.name: info.available for info in list_datasets()}["small"]
    first = load_dataset("small")
    assert first.source == server.url
    assert first.X.shape == (40, 9)
    assert files(own_cache) == ["small.bz2", "small.bz2.sha256"]
    digest = hashlib.sha256(server.content).hexdigest()
    assert (own_cache / "downloads" / "small.bz2.sha256").read_text() == f"{digest}  small.bz2\n"
    assert {info.name: info.available for info in list_datasets()}["small"]
    again = load_dataset("small")
    assert (again.X != first.X).nnz == 0
    assert server.seen == [(None, 200)]


def test_a_download_goes_on_where_it_broke_off(server):
    server.cut_after = [1000, 500]
    path = _download.downloaded(server.url)
    assert path.read_bytes() == server.content
    assert server.seen == [(None, 200), ("bytes=1000-", 206), ("bytes=1500-", 206)]


def test_what_has_come_is_kept_for_the_next_call(server, own_cache):
    server.cut_after = [1000, 0, 10]
    with pytest.raises(OSError, match=r"small.bz2 could not be downloaded: the connection was closed too early"):
        _download.downloaded(server.url)
    assert (own_cache / "downloads" / "small.bz2.part").stat().st_size == 1010
    assert not (own_cache / "downloads" / "small.bz2").exists()
    assert _download.downloaded(server.url).read_bytes() == server.content
    assert server.seen[-1] == ("bytes=1010-", 206)
    assert files(own_cache) == ["small.bz2", "small.bz2.sha256"]


def test_parts_of_two_versions_are_not_joined(server):
    server.cut_after = [1000, 0, 0]
    with pytest.raises(OSError, match="too early"):
        _download.downloaded(server.url)
    server.content, server.etag = server.content[::-1], '"2"'
    assert _download.downloaded(server.url).read_bytes() == server.content
    assert server.seen[-1] == ("bytes=1000-", 200)


@pytest.mark.parametrize("etag", [None, 'W/"1"'])
def test_without_a_version_a_download_starts_anew(server, etag):
    server.etag, server.cut_after = etag, [1000]
    assert _download.downloaded(server.url).read_bytes() == server.content
    assert server.seen == [(None, 200), (None, 200)]


def test_a_wrong_or_impossible_rest_is_not_used(server, own_cache):
    server.cut_after, server.wrong_range = [1000], True
    assert _download.downloaded(server.url).read_bytes() == server.content
    assert [status for _, status in server.seen] == [200, 206, 200]
    folder = own_cache / "downloads"
    (folder / "small.bz2").rename(folder / "small.bz2.part")
    (folder / "small.bz2.part.version").write_text('"1"')
    assert _download.downloaded(server.url).read_bytes() == server.content
    assert [status for _, status in server.seen[3:]] == [416, 200]


def test_a_damaged_download_is_noticed_and_made_anew(server, caplog):
    path = _download.downloaded(server.url)
    path.write_bytes(server.content[:-1] + b"?")
    with caplog.at_level(logging.WARNING, logger="surestep"):
        assert _download.downloaded(server.url).read_bytes() == server.content
    assert "is downloaded anew" in caplog.text
    path.with_name("small.bz2.sha256").unlink()
    assert _download.downloaded(server.url).read_bytes() == server.content
    assert len(server.seen) == 3


def test_a_checksum_by_argument(server, own_cache):
    digest = hashlib.sha256(server.content).hexdigest()
    with pytest.raises(ValueError, match=rf"has the SHA-256 {digest}, not 00ff as it should"):
        load_dataset("small", sha256="00ff")
    assert files(own_cache) == []
    assert load_dataset("small", sha256=digest.upper()).X.shape == (40, 9)
    assert load_dataset("small", sha256=digest).X.shape == (40, 9)
    assert len(server.seen) == 2


def test_no_network_says_what_to_do(server):
    server.status = 404
    with pytest.raises(
        FileNotFoundError, match=r"small needs a file .* could not be downloaded: HTTP Error 404.* Bring"
    ):
        load_dataset("small")
    assert len(server.seen) == 1  # it makes no sense to ask again
    server.status = 500
    with pytest.raises(FileNotFoundError, match=r"HTTP Error 500.* take the generated set 'bag_of_words'"):
        load_dataset("small")
    assert len(server.seen) == 1 + _download.ATTEMPTS


def test_nobody_listens(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    with pytest.raises(OSError, match="could not be downloaded"):
        _download.downloaded("http://127.0.0.1:9/x.bz2")


# Import


def test_heavy_modules_are_imported_when_they_are_needed():
    script = (
        "import sys, surestep.datasets; print([m for m in ('sklearn', 'urllib.request', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
