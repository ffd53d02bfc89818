"""The objective all solvers are judged by, in plain NumPy and float64, of no solver's own making.

    f(w) = mean_i loss(<a_i, w>, y_i) + alpha * (l1_ratio * ||w||_1 + (1 - l1_ratio) / 2 * ||w||_2^2),    no intercept

Every environment of a peer imports this file, so it needs NumPy and SciPy only, of any version.
"""

import numpy as np

# Task: (loss, l1_ratio).
TASKS = {
    "lasso": ("squared", 1.0),
    "elastic_net": ("squared", 0.5),
    "logistic_l1": ("logistic", 1.0),
    "logistic_l2": ("logistic", 0.0),
    "squared_hinge_l1": ("squared_hinge", 1.0),
    "squared_hinge_l2": ("squared_hinge", 0.0),
    "ridge": ("squared", 0.0),
    "lasso_path": ("squared", 1.0),
}

# The path: alphas from the largest down to the smallest, evenly on a log scale; fractions of lambda_max.
PATH_LENGTH, PATH_END = 100, 0.01


def targets(task, y):
    """y itself for a regression; its sign for a classification."""
    return y if TASKS[task][0] == "squared" else np.where(y > 0.0, 1.0, -1.0)


def loss_values(loss, z, y):
    if loss == "squared":
        return 0.5 * (z - y) ** 2
    if loss == "logistic":
        return np.logaddexp(0.0, -y * z)
    return 0.5 * np.maximum(0.0, 1.0 - y * z) ** 2


def loss_derivatives(loss, z, y):
    if loss == "squared":
        return z - y
    if loss == "logistic":
        return -y / (1.0 + np.exp(y * z))
    return -y * np.maximum(0.0, 1.0 - y * z)


def loss_conjugates(loss, u, y):
    if loss == "logistic":
        s = np.clip(-u * y, 1e-300, 1.0)
        return s * np.log(s) + (1.0 - s) * np.log1p(-np.minimum(s, 1.0 - 1e-16))
    return 0.5 * u**2 + u * y  # of the squared loss, and of the squared hinge where u y <= 0


def objective(task, X, y, alpha, w):
    loss, l1_ratio = TASKS[task]
    w = np.asarray(w, dtype=np.float64)
    penalty = alpha * (l1_ratio * np.abs(w).sum() + 0.5 * (1.0 - l1_ratio) * (w @ w))
    return float(loss_values(loss, X @ w, y).mean() + penalty)


def dual_objective(task, X, y, alpha, w):
    """A lower bound of min f by Fenchel duality, from the derivatives of the losses at w.

    For any u, with g = X' u / n, min f >= -mean_i loss*(u_i) - sum_j psi*(-g_j). Without a ridge part psi* is infinite
    beyond |g_j| = alpha, so u is scaled down until no g_j is.
    """
    loss, l1_ratio = TASKS[task]
    u = loss_derivatives(loss, X @ np.asarray(w, dtype=np.float64), y)
    g = np.abs(X.T @ u) / y.size
    if l1_ratio == 1.0:
        u = u * min(1.0, alpha / max(g.max(), 1e-300))
        conjugate = 0.0
    else:
        conjugate = (np.maximum(g - alpha * l1_ratio, 0.0) ** 2).sum() / (2.0 * alpha * (1.0 - l1_ratio))
    return float(-loss_conjugates(loss, u, y).mean() - conjugate)


def lambda_max(task, X, y):
    """Smallest alpha with optimum 0; without an L1 part there is none, and that of the L1 problem is taken."""
    loss, l1_ratio = TASKS[task]
    return float(np.abs(X.T @ loss_derivatives(loss, np.zeros(y.size), y)).max() / y.size / (l1_ratio or 1.0))


def path_alphas(largest):
    return largest * PATH_END ** (np.arange(PATH_LENGTH) / (PATH_LENGTH - 1.0))


def suboptimality(value, best, start):
    """(f - f*) / (f(0) - f*); of a path (vectors) the worst point, with f(0) - f* that of the last, its largest."""
    value, best = np.atleast_1d(value), np.atleast_1d(best)
    return float(np.max(value - best) / (start - best[-1]))


def small_problem(X, y, n_rows=60, n_columns=25):
    """A corner of the data with its fullest columns and about as many rows of either sign, in the same layout."""
    rows = np.sort(np.concatenate([np.flatnonzero(y > 0)[: n_rows // 2], np.flatnonzero(y <= 0)[: n_rows // 2]]))
    corner = X[rows]
    columns = np.sort(np.argsort(-np.asarray((corner != 0).sum(axis=0)).ravel(), kind="stable")[:n_columns])
    return corner[:, columns], y[rows]


def reference_optimum(task, X, y, alpha, n_steps=20_000):
    """Optimal value of a small problem by accelerated proximal gradient steps with restarts."""
    loss, l1_ratio = TASKS[task]
    X = np.asarray(X.todense() if hasattr(X, "todense") else X)
    threshold, ridge = alpha * l1_ratio, alpha * (1.0 - l1_ratio)
    step = 1.0 / (np.linalg.norm(X, 2) ** 2 / y.size * (0.25 if loss == "logistic" else 1.0) + ridge)
    w = v = np.zeros(X.shape[1])
    momentum = 1.0
    for _ in range(n_steps):
        gradient = X.T @ loss_derivatives(loss, X @ v, y) / y.size + ridge * v
        new = v - step * gradient
        new = np.sign(new) * np.maximum(np.abs(new) - step * threshold, 0.0)
        if np.abs(new - v).max() <= 1e-16 * np.abs(new).max():
            break
        if (v - new) @ (new - w) > 0.0:
            momentum = 1.0
        following = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        v, w, momentum = new + (momentum - 1.0) / following * (new - w), new, following
    return objective(task, X, y, alpha, w)
