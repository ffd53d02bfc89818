"""Design: every layout gives the same numbers, nothing of the user's is touched, bad input is named."""

import pickle

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from surestep._jit import jit
from surestep.design import Design
from surestep.lines import (
    Dense,
    Sparse,
    WithIntercept,
    add,
    curved_product,
    dot,
    entry,
    is_sound,
    n_entries,
    n_lines,
    product,
    products_and_norms,
    squared_norm,
    squared_norms,
    sum_of_squares,
    transposed_product,
)

X = np.array([[1.0, 0.0, -2.0], [0.0, 0.0, 3.0], [4.0, 0.0, 0.0], [0.5, 0.0, 1.0]])  # one empty column


def duplicated(X):
    """The matrix as COO, every entry given twice as its halves."""
    coo = scipy.sparse.coo_array(X)
    rows, columns = coo.coords
    twice = np.r_[coo.data, coo.data] / 2, (np.r_[rows, rows], np.r_[columns, columns])
    return scipy.sparse.coo_array(twice, shape=X.shape)


def unsorted(X):
    """The matrix as CSC, entries of a column in falling order, an explicit zero among them."""
    csc = scipy.sparse.csc_array(X)
    for j in range(X.shape[1]):
        span = slice(csc.indptr[j], csc.indptr[j + 1])
        csc.indices[span], csc.data[span] = csc.indices[span][::-1].copy(), csc.data[span][::-1].copy()
    return scipy.sparse.csc_array((csc.data, csc.indices, csc.indptr), shape=X.shape)


def with_int64_indices(X):
    csr = scipy.sparse.csr_array(X)
    return scipy.sparse.csr_array((csr.data, csr.indices.astype(np.int64), csr.indptr.astype(np.int64)), shape=X.shape)


MADE = {
    "C order": lambda X: np.ascontiguousarray(X),
    "F order": lambda X: np.asfortranarray(X),
    "strided": lambda X: np.repeat(np.repeat(X, 2, axis=0), 2, axis=1)[::2, ::2],
    "misaligned": lambda X: np.frombuffer(b"\0" + X.tobytes(), dtype=X.dtype, offset=1).reshape(X.shape),
    "big-endian": lambda X: X.astype(X.dtype.newbyteorder(">")),
    "list": lambda X: X.tolist(),
    "frame": lambda X: pd.DataFrame(X),
    "csc_array": scipy.sparse.csc_array,
    "csr_array": scipy.sparse.csr_array,
    "csc_matrix": scipy.sparse.csc_matrix,
    "csr_matrix": scipy.sparse.csr_matrix,
    "coo": scipy.sparse.coo_array,
    "lil": scipy.sparse.lil_array,
    "duplicates": duplicated,
    "unsorted": unsorted,
    "int64 indices": with_int64_indices,
}


def in_full(lines, length):
    """The lines as rows of an array, read entry by entry."""
    out = np.zeros((n_lines(lines), length))
    for j in range(n_lines(lines)):
        for k in range(int(n_entries(lines, j))):
            position, value = entry(lines, j, k)
            out[j, position] += value
    return out


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("made", MADE)
def test_every_form_of_a_matrix_is_the_same_design(made, dtype):
    form = MADE[made](X.astype(dtype))
    design = Design.of(form)
    assert design.shape == (design.n_samples, design.n_features) == X.shape
    assert design.dtype == (np.float64 if made == "list" else dtype)
    assert design.is_sparse == scipy.sparse.issparse(form)
    assert design.nnz == (np.count_nonzero(X) if design.is_sparse else X.size)
    assert not design.nonnegative
    np.testing.assert_array_equal(in_full(design.columns, 4), X.T)
    np.testing.assert_array_equal(in_full(design.rows, 3), X)
    for lines in (design.columns, design.rows):
        for array in lines[:3] if design.is_sparse else lines:
            assert not array.flags.writeable
            assert array.flags.c_contiguous
            assert array.flags.aligned
            assert array.dtype.kind in "uf"
        if design.is_sparse:
            assert lines.indices.dtype == (np.uint64 if made == "int64 indices" else np.uint32)
            assert lines.starts.dtype == np.uint64


@pytest.mark.parametrize("made", [name for name in MADE if name != "list"])
def test_the_users_object_is_not_modified(made):
    form, twin = MADE[made](X), MADE[made](X)
    before = dict(vars(form)) if scipy.sparse.issparse(form) else None
    design = Design.of(form)
    _ = design.columns, design.rows, design.nonnegative
    if before is None:
        np.testing.assert_array_equal(np.asarray(form), np.asarray(twin))
        if isinstance(form, np.ndarray):
            assert form.flags.writeable == twin.flags.writeable
    else:
        assert vars(form).keys() == before.keys()
        for name in ("data", "indices", "indptr"):
            if hasattr(form, name):
                assert getattr(form, name) is before[name]
                assert getattr(form, name).flags.writeable
                np.testing.assert_array_equal(getattr(form, name), getattr(twin, name))


def test_nothing_is_copied_when_the_layout_fits():
    for order, side in (("C", "rows"), ("F", "columns")):
        form = np.array(X, order=order)
        assert np.shares_memory(getattr(Design.of(form), side).values, form)
    for kind, side in ((scipy.sparse.csr_array, "rows"), (scipy.sparse.csc_matrix, "columns")):
        form = kind(X)
        lines = getattr(Design.of(form), side)
        assert np.shares_memory(lines.values, form.data)
        assert np.shares_memory(lines.indices, form.indices)
    column = np.arange(1.0, 4.0)[:, None]
    design = Design.of(column)
    assert np.shares_memory(design.rows.values, column)
    assert np.shares_memory(design.columns.values, column)


def test_layouts_are_made_once_and_a_design_passes_through():
    design = Design.of(X)
    assert design.columns is design.columns
    assert design.rows is design.rows
    assert Design.of(design) is design
    with pytest.raises(AttributeError):
        design._lines = None


def test_a_read_only_memory_map_is_read_in_place(tmp_path):
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    design = Design.of(mapped)
    assert type(design.rows.values) is np.ndarray
    assert np.shares_memory(design.rows.values, mapped)
    np.testing.assert_array_equal(in_full(design.columns, 4), X.T)


@pytest.mark.parametrize("dtype", [bool, np.int8, np.uint64, np.float16])
def test_other_real_kinds_become_float64(dtype):
    values = np.array([[0, 1], [1, 1]]).astype(dtype)
    for form in (values, scipy.sparse.csc_array(values.astype(float)).astype(dtype if dtype != np.float16 else int)):
        design = Design.of(form)
        assert design.dtype == np.float64
        assert design.nonnegative
        np.testing.assert_array_equal(in_full(design.rows, 2), [[0, 1], [1, 1]])


def test_a_design_can_be_pickled():
    design = pickle.loads(pickle.dumps(Design.of(scipy.sparse.csr_array(X))))
    np.testing.assert_array_equal(in_full(design.columns, 4), X.T)


@pytest.mark.parametrize("wrap", [np.asarray, np.asfortranarray, scipy.sparse.csc_array, scipy.sparse.csr_array])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_named(wrap, bad):
    spoilt = X.copy()
    spoilt[3, 2] = bad
    with pytest.raises(ValueError, match=rf"X has the value {bad} in row 3, column 2; all values must be finite"):
        Design.of(wrap(spoilt))


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.zeros(3), r"X must be two-dimensional.* shape \(3,\)"),
        (np.zeros((2, 2, 2)), "X must be two-dimensional"),
        (scipy.sparse.coo_array(np.ones(3)), "X must be two-dimensional"),
        (np.zeros((0, 3)), "at least one row and one column"),
        (scipy.sparse.csr_array((3, 0)), "at least one row and one column"),
        (X.astype(complex), "X must hold real numbers, but has dtype complex128"),
        (X.astype(object), "X must hold real numbers, but has dtype object"),
        ([["a", "b"]], "X must hold real numbers"),
        ([[1.0], [1.0, 2.0]], "X cannot be made an array"),
    ],
)
def test_bad_input_is_named(bad, message):
    with pytest.raises(ValueError, match=message):
        Design.of(bad)


@pytest.mark.parametrize("index", [-1, 4])
def test_indices_outside_the_matrix_never_reach_a_kernel(index):
    csc = scipy.sparse.csc_array(X)
    csc.indices[0] = index
    with pytest.raises(ValueError, match="X is not a valid sparse matrix"):
        Design.of(csc)


sparse_arrays = st.lists(st.integers(0, 3), min_size=1, max_size=4).flatmap(
    lambda lengths: st.tuples(
        st.just(np.cumsum([0, *lengths])),
        st.lists(st.integers(0, 4), min_size=sum(lengths), max_size=sum(lengths)),
    )
)


@given(sparse_arrays, st.sampled_from([np.int32, np.int64]))
def test_sparse_lines_are_sound_where_scipy_says_so(made, kind):
    starts, indices = made
    matrix = scipy.sparse.csr_array(
        (np.ones(len(indices)), np.array(indices, kind), starts.astype(kind)), shape=(starts.size - 1, 5)
    )
    unsigned = np.uint32 if matrix.indices.itemsize == 4 else np.uint64
    lines = Sparse(matrix.data, matrix.indices.view(unsigned), matrix.indptr.astype(np.uint64), 5)
    assert is_sound(lines) == bool(matrix.has_canonical_format)
    np.testing.assert_allclose(Design.of(matrix).times(np.arange(5.0)), matrix @ np.arange(5.0))


@pytest.mark.parametrize("starts", [[0, 3, 2, 4], [1, 2, 3, 4], [0, 1, 2, 5], [0, 1, 2, 3]])
def test_lines_with_gaps_or_beyond_their_entries_are_not_sound(starts):
    lines = Sparse(np.ones(4), np.array([0, 1, 2, 3], np.uint32), np.array(starts, np.uint64), 5)
    assert not is_sound(lines)


# --- Generics: the layouts agree with NumPy, compiled and not


@jit
def walked_dot(lines, j, v):
    """<a_j, v>, entry by entry, as a kernel of a user would."""
    total = 0.0
    for k in range(n_entries(lines, j)):
        position, value = entry(lines, j, k)
        total += value * v[position]
    return total


@jit
def compiled(lines, j, scale, v, out):
    """All generics on one line, from within a kernel."""
    add(lines, j, scale, out)
    return n_lines(lines), n_entries(lines, j), dot(lines, j, v), squared_norm(lines, j, v)


numbers = st.floats(-100, 100, width=32)
matrices = st.tuples(st.integers(1, 6), st.integers(1, 5)).flatmap(
    lambda shape: arrays(np.float64, shape, elements=st.one_of(st.just(0.0), numbers))
)


@given(matrices, st.sampled_from([np.float32, np.float64]), st.booleans(), st.booleans(), st.data())
def test_generics_agree_with_numpy(matrix, dtype, sparse, intercept, data):
    n, d = matrix.shape
    design = Design.of((scipy.sparse.csc_array if sparse else np.asarray)(matrix.astype(dtype)))
    lines, full = design.columns, matrix
    if intercept:
        lines, full = WithIntercept(lines, n), np.column_stack([matrix, np.ones(n)])
    v = data.draw(arrays(np.float64, n, elements=numbers))
    x = data.draw(arrays(np.float64, full.shape[1], elements=st.one_of(st.just(0.0), numbers)))
    close = {"rtol": 1e-12, "atol": 1e-8}
    for j in range(full.shape[1]):
        start, a = np.arange(n, dtype=np.float64), full[:, j]
        out, again = start.copy(), start.copy()
        count, entries, inner, square = compiled(lines, j, 2.0, v, out)
        assert count == full.shape[1] == n_lines(lines)
        assert entries == n_entries(lines, j) == (np.count_nonzero(a) if sparse and j < d else n)
        np.testing.assert_allclose([inner, dot(lines, j, v), walked_dot(lines, j, v)], a @ v, **close)
        np.testing.assert_allclose([square, squared_norm(lines, j, v)], v @ a**2, **close)
        add(lines, j, 2.0, again)
        np.testing.assert_allclose(out, start + 2.0 * a, **close)
        np.testing.assert_allclose(again, start + 2.0 * a, **close)
    out, z = np.full(full.shape[1], np.nan), np.full(n, np.nan)
    transposed_product(lines, v, out)
    product(lines, x, z)
    np.testing.assert_allclose(out, full.T @ v, **close)
    np.testing.assert_allclose(z, full @ x, **close)
    norms = np.empty(full.shape[1])
    for weights in (np.abs(v), np.full(n, 0.25)):  # in the latter case no line needs them
        products_and_norms(lines, v, weights, out, norms)
        np.testing.assert_allclose(out, full.T @ v, **close)
        np.testing.assert_allclose(norms**2, weights @ full**2, **close)
        squared_norms(lines, weights, out)
        np.testing.assert_array_equal(np.sqrt(out), norms)


@given(matrices, st.sampled_from(["C", "F", "csr", "csc"]), st.data())
def test_sums_over_all_entries_take_the_layout_that_is_there(matrix, form, data):
    n, d = matrix.shape
    design = Design.of(np.array(matrix, order=form) if form in "CF" else scipy.sparse.coo_array(matrix).asformat(form))
    x = data.draw(arrays(np.float64, d, elements=st.one_of(st.just(0.0), numbers)))
    v = data.draw(arrays(np.float64, n, elements=numbers))
    close = {"rtol": 1e-12, "atol": 1e-8}
    there = design.has_columns, design.has_rows
    assert there.count(True) == 1
    for _ in range(2):
        np.testing.assert_allclose(design.times(x), matrix @ x, **close)
        np.testing.assert_allclose(design.transposed_times(v), matrix.T @ v, **close)
        np.testing.assert_allclose(design.squared_norms(v), v @ matrix**2, **close)
        np.testing.assert_allclose(design.row_squares, np.sum(matrix**2, axis=1), **close)
        full = [n, d] if form in "CF" else [np.count_nonzero(matrix, axis=0), np.count_nonzero(matrix, axis=1)]
        np.testing.assert_array_equal(design.column_lengths, full[0])
        np.testing.assert_array_equal(design.row_lengths, full[1])
        assert (design.has_columns, design.has_rows) == there  # nothing was made
        _, there = (design.columns, design.rows), (True, True)


@given(matrices, st.data())
def test_passes_over_sparse_data_come_to_the_same_bits_by_rows_and_by_columns(matrix, data):
    x = data.draw(arrays(np.float64, matrix.shape[1], elements=st.floats(-1.0, 1.0)))
    v = data.draw(arrays(np.float64, matrix.shape[0], elements=st.floats(-1.0, 1.0)))
    by_rows, by_columns = Design.of(scipy.sparse.csr_array(matrix)), Design.of(scipy.sparse.csc_array(matrix))
    np.testing.assert_array_equal(by_rows.transposed_times(v), by_columns.transposed_times(v))
    np.testing.assert_array_equal(by_rows.times(x), by_columns.times(x))


@pytest.mark.parametrize("index", [np.int64, np.uint32, np.uint64])
def test_a_line_may_be_named_by_any_kind_of_integer(index):
    v, out = np.arange(4.0), np.zeros(4)
    for form in (X, scipy.sparse.csc_array(X)):
        for lines in (Design.of(form).columns, WithIntercept(Design.of(form).columns, 4)):
            assert walked_dot(lines, index(2), v) == compiled(lines, index(2), 0.0, v, out)[2] == X[:, 2] @ v


@pytest.mark.parametrize("kind", [np.asarray, scipy.sparse.csc_array])
def test_weight_zero_silences_even_a_huge_entry(kind):
    lines = Design.of(kind(np.array([[1e200], [2.0]]))).columns
    assert squared_norm(lines, 0, np.array([0.0, 1.0])) == 4.0


def test_float32_is_summed_in_float64():
    values = np.full((3000, 1), 0.1, dtype=np.float32)
    exact = 3000 * float(np.float32(0.1))
    for form in (values, scipy.sparse.csc_array(values)):
        lines = Design.of(form).columns
        assert isinstance(lines, Sparse if scipy.sparse.issparse(form) else Dense)
        assert lines.values.dtype == np.float32
        assert dot(lines, 0, np.ones(3000)) == pytest.approx(exact, rel=1e-13)
        assert sum_of_squares(lines, 0) == pytest.approx(exact * float(np.float32(0.1)), rel=1e-13)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 4, 7, 8])
@pytest.mark.parametrize("d", [3, 256, 301])
def test_a_curved_product_reads_lines_one_by_one_or_four_at_a_time(n, d, dtype, sparse):
    rng = np.random.default_rng(n)
    matrix = (rng.standard_normal((n, d)) * (rng.random((n, d)) < 0.5)).astype(dtype)
    lines = Design.of((scipy.sparse.csr_array if sparse else np.asarray)(matrix)).rows
    weights, v, out = rng.random(n), rng.standard_normal(d), np.full(d, np.nan)
    total = curved_product(lines, weights, v, 0.3, out)
    t = weights * (matrix.astype(float) @ v + 0.3)
    np.testing.assert_allclose(total, np.sum(t), atol=1e-12)
    np.testing.assert_allclose(out, t @ matrix.astype(float), atol=1e-12)
