"""The svmlight reader and writer: exact numbers, exact places of errors, whole or not at all."""

from __future__ import annotations

import bz2
import gzip
import itertools
import logging
import lzma
import os
import types
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from sklearn.datasets import dump_svmlight_file, load_svmlight_file

import reference_svmlight
from surestep.datasets import MalformedFileError, _parse, load_svmlight, save_svmlight, svmlight

COMPRESSED = {"": open, ".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("svmlight")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("SURESTEP_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def written(folder: Path, text: bytes | str, name: str = "file") -> Path:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def assert_same(found, expected):
    """The same rows, to the last bit."""
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        if scipy.sparse.issparse(a):
            assert a.shape == b.shape
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a.indptr, b.indptr)
            np.testing.assert_array_equal(a.indices, b.indices)
            a, b = a.data, b.data
        assert a.dtype == b.dtype
        assert a.tobytes() == b.tobytes()


# Numbers

digits = st.text("0123456789", min_size=1, max_size=24)
decimals = st.builds(
    lambda sign, whole, fraction, exponent: sign + whole + fraction + exponent,
    st.sampled_from(["", "-", "+"]),
    digits,
    st.one_of(st.just(""), st.just("."), digits.map(lambda d: "." + d)),
    st.one_of(st.just(""), st.integers(-40, 40).map("e{}".format), st.integers(-400, 400).map("E{:+}".format)),
)
floats = st.floats(allow_nan=False, allow_infinity=False)
formatted = st.builds(lambda value, form: form % value, floats, st.sampled_from(["%r", "%.6g", "%.16g", "%.17g"]))


def midpoint(value: float) -> str:
    """The number in the middle between a float and the next, in full."""
    exact = (Fraction(value) + Fraction(float(np.nextafter(value, np.inf)))) / 2
    shift = 0
    while exact.denominator > 1:
        exact, shift = exact * 10, shift + 1
    return f"{exact.numerator}e{-shift}"


short = st.integers(1, 2**62).map(lambda n: float(n * 2.0**-62))
midpoints = st.builds(
    lambda text, last: str(int(text.split("e")[0]) + last) + "e" + text.split("e")[1],
    st.one_of(short, st.integers(2**53, 10**18).map(float)).map(midpoint),
    st.integers(-1, 1),
)


@settings(max_examples=150)
@given(st.lists(st.one_of(decimals, formatted, midpoints), min_size=1, max_size=60))
@example(["0", "-0", "+0.0", "1.", "007", "nan", "-inf", "Infinity", "1e400", "1e-400", "4.9e-324", "0e999999999999"])
@example(["9007199254740993", "9007199254740992", "9007199254740991e22", "123456789012345678", "1234567890123456789"])
@example(["8.5e22", "1e23", "9.5e-23", "999999999999999999e64", "999999999999999999e-64", "1e65", "1e-65"])
def test_every_number_is_the_float_python_reads(folder, numbers):
    text = "\n".join(f"{label} 1:{value}" for label, value in zip(numbers, reversed(numbers), strict=True))
    X, y = load_svmlight(written(folder, text))
    expected = np.array([float(number) for number in numbers])
    np.testing.assert_array_equal(y.view(np.uint64), expected.view(np.uint64))
    np.testing.assert_array_equal(X.data.view(np.uint64), expected[::-1].copy().view(np.uint64))


@settings(max_examples=300)
@given(st.integers(1, 10**18 - 1), st.integers(-64, 64))
@example(2**53 + 1, 0)
def test_the_nearest_float_is_known_to_be_so(mantissa, exponent):
    value, known = _parse.nearest(mantissa, exponent)
    if known:
        assert value == float(f"{mantissa}e{exponent}")
    else:  # only next to the middle of two floats
        exact = mantissa * Fraction(10) ** exponent
        neighbours = [Fraction(float(np.nextafter(value, side))) for side in (-np.inf, np.inf)]
        away = min(abs(exact - (Fraction(float(value)) + other) / 2) for other in neighbours)
        assert away <= exact * Fraction(2) ** -94


def test_numbers_of_seventeen_digits_are_not_left_to_python():
    """The middle of two floats below 1 has more digits than these."""
    rng = np.random.default_rng(0)
    mantissas, exponents = rng.integers(10**16, 10**17, 2000).tolist(), rng.integers(-30, -16, 2000).tolist()
    assert all(_parse.nearest(w, e)[1] for w, e in zip(mantissas, exponents, strict=True))


# Files: agreement, round trips


@st.composite
def matrices(draw):
    n, d = draw(st.integers(0, 6)), draw(st.integers(1, 6))
    dtype = draw(st.sampled_from([np.float64, np.float32]))
    entries = draw(
        st.lists(st.tuples(st.integers(0, d - 1), floats if dtype is np.float64 else st.floats(width=32)), max_size=12)
        if n
        else st.just([])
    )
    places = {(draw(st.integers(0, n - 1)), j): value for j, value in entries}
    rows, columns = zip(*places, strict=True) if places else ((), ())
    X = scipy.sparse.csr_array(
        (np.array(list(places.values()), dtype), (np.array(rows, int), np.array(columns, int))), shape=(n, d)
    )
    y = np.array(draw(st.lists(floats, min_size=n, max_size=n)))
    qid = np.array(draw(st.lists(st.integers(-(10**17), 10**17), min_size=n, max_size=n)), np.int64)
    return X, y, qid


@given(matrices(), st.sampled_from(list(COMPRESSED)), st.booleans(), st.booleans())
def test_what_is_written_is_read(folder, data, suffix, zero_based, with_qid):
    X, y, qid = data
    path = folder / f"round{suffix}"
    save_svmlight(X, y, path, zero_based=zero_based, qid=qid if with_qid else None, comment="made\nhere")
    with COMPRESSED[suffix](path, "rb") as file:
        assert file.readline() == b"# made\n"
    expected = (X, y, qid) if with_qid else (X, y)
    options = {"n_features": X.shape[1], "dtype": X.dtype, "with_qid": with_qid}
    nan = np.isnan(X.data)
    X.data[nan] = np.nan  # a file does not tell one nan from another
    assert_same(load_svmlight(path, zero_based=zero_based, **options), expected)
    if not zero_based:
        assert_same(load_svmlight(path, **options), expected)


blanks = st.sampled_from([" ", "  ", "\t", " \x0b", "\x0c "])
comments = st.sampled_from(["", "#", " # 3:4 qid:1 \xfc", "#1"])


@st.composite
def texts(draw, unsorted=False):
    """Text of the format in all its liberties."""
    lines = []
    for _ in range(draw(st.integers(0, 6))):
        indices = draw(st.lists(st.integers(0, 30), unique=True, max_size=5))
        tokens = [draw(formatted)]
        if draw(st.booleans()):
            tokens.append(f"qid:{draw(st.integers(-5, 10**17))}")
        tokens += [f"{index}:{draw(formatted)}" for index in (indices if unsorted else sorted(indices))]
        line = "".join(token + draw(blanks) for token in tokens) if draw(st.integers(0, 5)) else draw(blanks)
        lines.append(line.rstrip() * draw(st.booleans()) or line)
        lines[-1] += draw(comments)
    return draw(st.sampled_from(["\n", "\r\n"])).join(lines) + draw(st.sampled_from(["", "\n"]))


@settings(max_examples=150)
@given(texts(), st.sampled_from(["auto", True]), st.sampled_from([np.float64, np.float32]))
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
def test_agrees_with_scikit_learn(folder, text, zero_based, dtype):
    path = written(folder, text.encode("latin1"))
    X, y = load_svmlight_file(str(path), zero_based=zero_based, n_features=40, dtype=dtype)
    found = load_svmlight(path, zero_based=zero_based, n_features=40, dtype=dtype)
    assert_same(found, (scipy.sparse.csr_array(X), y.astype(float)))


def test_reads_what_scikit_learn_writes(folder):
    rng = np.random.default_rng(0)
    X = scipy.sparse.csr_array(rng.normal(size=(300, 200)) * (rng.random((300, 200)) < 0.1))
    y, qid = rng.normal(size=300), np.sort(rng.integers(0, 9, 300))
    path = folder / "theirs"
    dump_svmlight_file(X, y, str(path), zero_based=False, query_id=qid, comment="hello")
    expected = load_svmlight_file(str(path), n_features=200, query_id=True)
    assert_same(
        load_svmlight(path, n_features=200, with_qid=True), (scipy.sparse.csr_array(expected[0]), *expected[1:])
    )
    save_svmlight(X, y, path, qid=qid)
    again = load_svmlight_file(str(path), n_features=200, query_id=True)
    assert_same(again, (X, y, qid))


def test_unsorted_and_one_based(folder):
    X, y = load_svmlight(written(folder, "1 3:0.5 1:-2\n-1 2:1\n"))
    np.testing.assert_array_equal(X.toarray(), [[-2.0, 0.0, 0.5], [0.0, 1.0, 0.0]])
    np.testing.assert_array_equal(X.indices, [0, 2, 1])
    np.testing.assert_array_equal(y, [1, -1])
    assert (X.indices.dtype, X.indptr.dtype) == (np.int32, np.int32)
    X, _ = load_svmlight(written(folder, "1 3:0.5 1:-2\n-1 0:1\n"))
    np.testing.assert_array_equal(X.toarray(), [[0.0, -2.0, 0.0, 0.5], [1.0, 0.0, 0.0, 0.0]])
    X, _ = load_svmlight(written(folder, "1 3:0.5\n"), zero_based=True, n_features=9)
    assert X.shape == (1, 9)
    assert X.indices == [3]


def test_wide_indices_and_empty_files(folder):
    X, _ = load_svmlight(written(folder, f"1 {2**31}:0.5\n1 1:2"))
    assert X.shape == (2, 2**31)
    assert X.indices.tolist() == [2**31 - 1, 0]
    X, _ = load_svmlight(written(folder, f"1 {10**18 - 1}:0.5\n1 0:2"))
    assert X.shape == (2, 10**18)
    for text in ("", "\n", "# nothing"):
        X, y, qid = load_svmlight(written(folder, text), with_qid=True)
        assert (X.shape, y.shape, qid.shape) == ((0, 0), (0,), (0,))
    assert load_svmlight(written(folder, "1\n2"))[0].shape == (2, 0)
    assert load_svmlight(written(folder, "1\n2"), n_features=3)[0].shape == (2, 3)


@given(texts(unsorted=True), st.integers(1, 40))
def test_blocks_do_not_show(folder, text, size):
    path = written(folder, text.encode("latin1"))
    whole = load_svmlight(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(svmlight, "BLOCK", size)
        assert_same(load_svmlight(path), whole)


@given(texts(unsorted=True), st.lists(st.integers(0, 200), max_size=4), st.sampled_from(list(COMPRESSED)))
def test_ranges_that_adjoin_give_every_line_once(folder, text, cuts, suffix):
    path = folder / f"ranges{suffix}"
    with COMPRESSED[suffix](path, "wb") as file:
        file.write(text.encode("latin1"))
    options = {"n_features": 31, "zero_based": True}
    whole = load_svmlight(path, **options)
    cuts = [0, *sorted(cuts)]
    parts = [load_svmlight(path, offset=a, length=b - a, **options) for a, b in itertools.pairwise(cuts)]
    parts.append(load_svmlight(path, offset=cuts[-1], **options))
    assert_same((scipy.sparse.vstack([X for X, _ in parts]), np.concatenate([y for _, y in parts])), whole)


@pytest.mark.parametrize("compress", [bytes, gzip.compress])
def test_urls_are_left_to_fsspec(compress):
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://folder/data.svm", "wb") as file:
        file.write(compress(b"1 1:2 3:4\n-1 2:1\n"))
    X, y = load_svmlight("memory://folder/data.svm")
    np.testing.assert_array_equal(X.toarray(), [[2, 0, 4], [0, 1, 0]])
    np.testing.assert_array_equal(y, [1, -1])
    with pytest.raises(ValueError, match=r"only local files are cached, not memory://folder/data\.svm"):
        load_svmlight("memory://folder/data.svm", cache=True)


def test_a_line_belongs_to_the_range_its_first_byte_is_in(folder):
    path = written(folder, "1 1:1\n2 1:2\n3 1:3\n")  # lines begin at bytes 0, 6 and 12
    for offset, length, expected in [(0, 6, [1]), (0, 7, [1, 2]), (6, 6, [2]), (5, 1, []), (6, 1, [2]), (7, -1, [3])]:
        X, y = load_svmlight(path, offset=offset, length=length, n_features=1, zero_based=False)
        assert y.tolist() == X.toarray().ravel().tolist() == expected
    assert load_svmlight(path, offset=99, n_features=1, zero_based=False)[0].shape == (0, 1)


# Errors

MALFORMED = {
    "1 1:2\nx 1:2": (2, 1, "the label is not a number: 'x'"),
    "1:2 2:3": (1, 1, "the label is not a number: '1:2'"),
    "1,2 2:3": (1, 1, "the label is not a number: '1,2'"),
    "\n\n# c\n 1 1:2 2:1.5.3": (4, 10, "the value of feature 2 is not a number: '1.5.3'"),
    "1 1:": (1, 5, "the value of feature 1 is not a number: ''"),
    "1 1: 2": (1, 5, "the value of feature 1 is not a number: ''"),
    "1 1:1e+-5": (1, 5, "the value of feature 1 is not a number: '1e+-5'"),
    "1 1:1_0": (1, 5, "the value of feature 1 is not a number: '1_0'"),
    "1 1:0x10": (1, 5, "the value of feature 1 is not a number: '0x10'"),
    "1 1:2:3": (1, 5, "the value of feature 1 is not a number: '2:3'"),
    "1 1:" + "9" * 50 + "z": (1, 5, "is not a number: '" + "9" * 37 + "...'"),
    "1 1:1 2\n": (1, 7, "expected index:value with an index of at most 18 digits, found '2'"),
    "1 a:1": (1, 3, "found 'a:1'"),
    "1 -1:1": (1, 3, "found '-1:1'"),
    "1 1.0:1": (1, 3, "found '1.0:1'"),
    "1 :1": (1, 3, "found ':1'"),
    "1 1:1 qid:3": (1, 7, "found 'qid:3'"),
    "1 " + "1" * 19 + ":1": (1, 3, "at most 18 digits"),
    "1 qid:x 1:1": (1, 3, "expected qid:number with at most 18 digits, found 'qid:x'"),
    "1 qid:1.5": (1, 3, "found 'qid:1.5'"),
    "1 3:1 2:1 3:4 # 3:1": (1, 11, "feature 3 appears twice in this line"),
    "1 3:1 03:4": (1, 7, "feature 3 appears twice in this line"),
    "1 1:1\x00": (1, 5, "'1\\x00'"),
}


@pytest.mark.parametrize("suffix", COMPRESSED)
@pytest.mark.parametrize("text", MALFORMED)
def test_an_error_says_where(folder, text, suffix):
    line, column, message = MALFORMED[text]
    path = folder / f"malformed{suffix}"
    with COMPRESSED[suffix](path, "wb") as file:
        file.write(text.encode())
    with pytest.raises(MalformedFileError) as caught:
        load_svmlight(path)
    error = caught.value
    assert (error.line, error.column) == (line, column)
    assert str(error).startswith(f"{path}, line {line}, column {column}: ")
    assert message in str(error) or message in str(error).replace("\\\\", "\\")


def test_errors_far_into_a_file_and_in_a_range(folder, monkeypatch):
    path = written(folder, "1 1:1\n" * 100 + "1 1:1 2:?\n")
    monkeypatch.setattr(svmlight, "BLOCK", 32)
    for options in ({}, {"offset": 300, "length": 400, "n_features": 2, "zero_based": False}):
        with pytest.raises(MalformedFileError, match=r"line 101, column 9: the value of feature 2"):
            load_svmlight(path, **options)


def test_every_line_must_have_a_query_if_they_are_wanted(folder):
    path = written(folder, "1 qid:4 1:1\n2 1:3\n")
    assert load_svmlight(path)[1].tolist() == [1, 2]
    with pytest.raises(MalformedFileError, match=r"line 2, column 3: there is no qid after the label"):
        load_svmlight(path, with_qid=True)


def test_indices_must_go_with_the_arguments(folder):
    path = written(folder, "1 0:1\n\n2 1:1 5:3\n")
    with pytest.raises(ValueError, match=r"row 0 of X has feature 0, but zero_based=False"):
        load_svmlight(path, zero_based=False)
    with pytest.raises(ValueError, match=r"row 1 of X has feature 5, but the last of n_features=5 is 4"):
        load_svmlight(path, n_features=5)
    assert load_svmlight(path, n_features=6)[0].shape == (2, 6)
    with pytest.raises(ValueError, match="a part of a file does not tell its features"):
        load_svmlight(path, offset=3)
    with pytest.raises(ValueError, match="only whole files are cached"):
        load_svmlight(path, length=3, n_features=6, zero_based=True, cache=True)
    with pytest.raises(ValueError, match="offset must be 0 or more"):
        load_svmlight(path, offset=-1, n_features=6, zero_based=True)
    with pytest.raises(ValueError, match="dtype must be float32 or float64"):
        load_svmlight(path, dtype=int)
    with pytest.raises(FileNotFoundError):
        load_svmlight(folder / "nothing")


@settings(max_examples=400)
@given(
    st.one_of(texts(unsorted=True).map(lambda text: text.encode("latin1")), st.binary(max_size=40)),
    st.lists(st.tuples(st.integers(0, 300), st.sampled_from(list(b"0159.:+-eEnq#_ \t\n\r\x00\xff")), st.booleans())),
)
def test_fuzzed_files_are_read_as_by_the_plain_reader_or_refused_at_the_same_place(folder, text, edits):
    text = bytearray(text)
    for at, byte, insert in edits:
        at = min(at, len(text))
        text[at : at + (not insert)] = bytes([byte])
    assume(not text.startswith(tuple(svmlight.MAGIC)))  # that would be taken for compressed
    path = written(folder, bytes(text))
    try:
        X, y = load_svmlight(path, zero_based=True)
    except MalformedFileError as error:
        with pytest.raises(reference_svmlight.NotSvmlightError, match=rf"^\({error.line}, {error.column}\)$"):
            reference_svmlight.read(bytes(text))
        return
    expected = reference_svmlight.read(bytes(text))
    np.testing.assert_array_equal(y, [label for label, _, _ in expected])
    for r, (_, _, features) in enumerate(expected):
        row = slice(X.indptr[r], X.indptr[r + 1])
        assert X.indices[row].tolist() == sorted(features)
        np.testing.assert_array_equal(X.data[row], [features[index] for index in sorted(features)])


@pytest.mark.parametrize("suffix", [".gz", ".bz2", ".xz"])
def test_damaged_compressed_files_are_refused(folder, suffix):
    path = folder / f"damaged{suffix}"
    save_svmlight(np.random.default_rng(0).normal(size=(200, 20)), np.ones(200), path)
    whole = path.read_bytes()
    for damaged in (whole[: len(whole) // 2], whole[:500] + bytes(50) + whole[550:]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="damaged or cut off"):
            load_svmlight(path)


def test_the_writer_refuses_what_does_not_fit_and_leaves_no_file(folder, monkeypatch):
    path = folder / "new" / "file.gz"
    with pytest.raises(ValueError, match=r"one label for each of the 3 rows"):
        save_svmlight(np.eye(3), [1, 2], path)
    with pytest.raises(ValueError, match=r"qid must be 3 integers"):
        save_svmlight(np.eye(3), [1, 2, 3], path, qid=[0.5, 1, 2])
    monkeypatch.setattr(svmlight, "_decimal", lambda value: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        save_svmlight(np.eye(3), [1, 2, 3], path)
    assert list(path.parent.iterdir()) == []


def test_the_writer_does_not_touch_what_it_is_given(folder):
    X = scipy.sparse.csr_array((np.array([1.0, 2.0, 0.0]), np.array([1, 1, 0]), np.array([0, 3])), shape=(1, 2))
    save_svmlight(X, [1], folder / "twice")
    assert (folder / "twice").read_text() == "1 1:0 2:3\n"
    assert X.data.tolist() == [1.0, 2.0, 0.0]


# Cache


def test_a_cached_file_is_not_parsed_again(folder, own_cache, monkeypatch):
    path = written(folder, "1 qid:2 3:0.5 1:2\n-1 qid:1 2:nan\n")
    plain = load_svmlight(path), load_svmlight(path, with_qid=True)
    assert not own_cache.exists()
    for _ in range(2):
        assert_same(load_svmlight(path, cache=True), plain[0])
        assert_same(load_svmlight(path, cache=True, with_qid=True), plain[1])
        X, _ = load_svmlight(path, cache=True, n_features=7, zero_based=True, dtype=np.float32)
        assert (X.shape, X.dtype) == ((2, 7), np.float32)
        monkeypatch.setattr(svmlight, "_read", None)
    assert len(list((own_cache / "parsed").iterdir())) == 2


def test_cached_files_are_checked_against_the_arguments(folder):
    path = written(folder, "1 0:1")
    for _ in range(2):
        with pytest.raises(ValueError, match="zero_based=False"):
            load_svmlight(path, zero_based=False, cache=True)


@pytest.mark.parametrize("damage", [lambda b: b[:-40], lambda b: b"", lambda b: b[:200] + b"\x01\x02" + b[202:]])
def test_a_damaged_cache_is_noticed_and_made_anew(folder, own_cache, caplog, damage):
    path = written(folder, "1 3:0.5 1:2\n-1 2:4\n" * 50)
    plain = load_svmlight(path, cache=True)
    (kept,) = (own_cache / "parsed").iterdir()
    whole = kept.read_bytes()
    kept.write_bytes(damage(whole))
    with caplog.at_level(logging.WARNING, logger="surestep"):
        assert_same(load_svmlight(path, cache=True), plain)
    assert "is made anew" in caplog.text
    assert len(kept.read_bytes()) == len(whole)
    caplog.clear()
    assert_same(load_svmlight(path, cache=True), plain)
    assert not caplog.records


def test_a_cache_that_cannot_be_written_is_done_without(folder, tmp_path, caplog, monkeypatch):
    (tmp_path / "a file").write_text("")
    monkeypatch.setenv("SURESTEP_CACHE", str(tmp_path / "a file"))
    path = written(folder, "1 1:2\n")
    assert_same(load_svmlight(path, cache=True), load_svmlight(path))
    assert "cannot be written" in caplog.text


# The kernel as plain Python


@pytest.mark.skipif(bool(os.environ.get("NUMBA_DISABLE_JIT")), reason="nothing is compiled")
def test_plain_python_reads_the_same(folder, monkeypatch):
    text = "1 1:2.5 7:-0.12345678901234567\n# c\n-1 qid:3 2:1e-30 1:9007199254740993 # d\n\n+2 5:12345678901234567890\n"
    path = written(folder, text)
    compiled = load_svmlight(path)
    for name, function in vars(_parse).items():
        if hasattr(function, "py_func"):
            monkeypatch.setattr(_parse, name, function.py_func)
    assert isinstance(_parse.parse, types.FunctionType)
    assert_same(load_svmlight(path), compiled)
    with pytest.raises(MalformedFileError, match="line 1, column 7: expected index:value"):
        load_svmlight(written(folder, "1 1:1 ?"))
