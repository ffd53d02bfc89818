"""Slow and plain: what the fast code is compared against. Nothing here imports from surestep."""

from __future__ import annotations

import warnings
from decimal import Decimal, localcontext
from itertools import product

import numpy as np
from scipy.optimize import minimize


def exact_safe_sampling(lower, upper, smoothness):
    """(p, v, m) of eq. 7 in 120-digit arithmetic: walk over all breakpoints of phi. Some lower bound must be > 0."""
    with localcontext() as context:
        context.prec, context.Emax, context.Emin = 120, 10**9, -(10**9)
        L = [Decimal(float(x)) for x in smoothness]
        roots = [x.sqrt() for x in L]
        low = [Decimal(float(x)) / r for x, r in zip(lower, roots, strict=True)]
        high = [Decimal(float(x)) / r for x, r in zip(upper, roots, strict=True)]

        def sums(m):
            """S1 and S2 over the clipped coordinates."""
            clipped = [u if u < m else b if b > m else Decimal(0) for b, u in zip(low, high, strict=True)]
            weights = [a * t for a, t in zip(L, clipped, strict=True)]
            return sum(weights), sum(w * t for w, t in zip(weights, clipped, strict=True))

        points = sorted({t for t in low + high if 0 < t < Decimal("Infinity")})
        level = points[-1]
        for before, point in zip([points[0] / 2, *points[:-1]], points, strict=True):
            first, second = sums(point)
            if point * first >= second:
                # The root lies between this breakpoint and the one before; phi is linear there.
                first, second = sums((before + point) / 2)
                level = second / first if first else point
                break
        t = [min(max(level, b), u) for b, u in zip(low, high, strict=True)]
        weights = [a * b for a, b in zip(L, t, strict=True)]
        total = sum(weights)
        value = total**2 / sum(a * b for a, b in zip(weights, t, strict=True))
        return np.array([float(w / total) for w in weights]), float(value), float(level)


def vertices(lower, upper):
    """All corners of the box."""
    return np.array(list(product(*zip(lower, upper, strict=True))), dtype=float)


def quotient(p, c, smoothness):
    """V(p, c) / ||c||^2, with 0/0 = 0 for a coordinate that neither moves nor is drawn."""
    terms = np.divide(smoothness * c**2, p, out=np.zeros_like(c * p), where=c != 0)
    return terms.sum(axis=-1) / (c**2).sum(axis=-1)


def best_worst_case(lower, upper, smoothness):
    """The minimum over p of the maximum over the corners of V(p, c) / ||c||^2, by a general-purpose solver.

    The maximum over the box is at a corner: the quotient is linear-fractional in c^2.
    """
    corners = vertices(lower, upper)
    corners = corners[corners.any(axis=1)]
    shares = smoothness * corners**2 / (corners**2).sum(axis=1, keepdims=True)
    n = len(lower)
    start = np.full(n, 1.0 / n)

    def slack(variables):
        return variables[n] - shares @ (1.0 / variables[:n])

    def slack_jacobian(variables):
        return np.column_stack([shares / variables[:n] ** 2, np.ones(len(shares))])

    with warnings.catch_warnings():
        # Older SciPy tells whenever SLSQP steps out of the bounds and is put back.
        warnings.filterwarnings("ignore", message="Values in x were outside bounds")
        solution = minimize(
            lambda variables: variables[n],
            np.append(start, (shares @ (1.0 / start)).max()),
            jac=lambda variables: np.append(np.zeros(n), 1.0),
            bounds=[(1e-9, 1.0)] * n + [(0.0, None)],
            constraints=[
                {"type": "ineq", "fun": slack, "jac": slack_jacobian},
                {"type": "eq", "fun": lambda v: v[:n].sum() - 1.0, "jac": lambda v: np.append(np.ones(n), 0.0)},
            ],
            method="SLSQP",
            options={"maxiter": 1000, "ftol": 1e-14},
        )
    p = np.maximum(solution.x[:n], 1e-12)
    p /= p.sum()
    return float((shares @ (1.0 / p)).max())
