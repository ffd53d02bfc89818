"""One step of the incremental safe sampler at any n, against one linear and one sorted solve; one run, one thread."""

import sys
import time
from typing import Any

import numpy as np

import surestep as ss
from surestep._jit import jit
from surestep.sampling.index import draw_from, drift, place
from surestep.sampling.reference import sorted_safe_sampling

SIZES = (1_000, 10_000, 100_000, 1_000_000, 10_000_000)


@jit
def steps(index: Any, rng: Any, n_steps: int, amount: float) -> None:
    """Draw, let all bounds drift, observe: the bookkeeping of one step of a solver, without its numerics."""
    for _ in range(n_steps):
        i = draw_from(index, rng)
        drift(index, 0, amount)
        value = rng.standard_exponential() ** 2
        place(index, i, 0, value, value)


def python_steps(sampler: ss.SafeSampler, rng: np.random.Generator, n_steps: int, amount: float) -> None:
    for _ in range(n_steps):
        i, _ = sampler.draw()
        sampler.widen(amount)
        sampler.observe(i, rng.standard_exponential() ** 2)


def seconds(function, *arguments) -> float:
    begin = time.perf_counter()
    function(*arguments)
    return time.perf_counter() - begin


def main(sizes: tuple[int, ...]) -> None:
    print("One step (draw + observe + widen) of SafeSampler, in microseconds\n")
    print(
        f"{'n':>12}{'compiled loop':>16}{'from Python':>14}{'linear solve':>16}{'sorted solve':>16}"
        f"{'linear / step':>16}{'sorted / step':>16}"
    )
    for n in sizes:
        rng = np.random.default_rng(0)
        sampler = ss.SafeSampler(rng.uniform(0.1, 10.0, n), rng=0)
        amount = 3.0 / n  # an epoch's drift is three times a typical entry
        warm = min(2 * n, 3_000_000)
        steps(sampler._index, rng, warm, amount)
        python_steps(sampler, rng, 10, amount)
        # In turns, the best of three: the machine may be busy at any moment.
        compiled = linear = by_sort = python = np.inf
        count = max(100_000, min(n, 1_000_000))
        smoothness = sampler._roots**2
        for _ in range(3):
            compiled = min(compiled, seconds(steps, sampler._index, rng, count, amount) / count)
            python = min(python, seconds(python_steps, sampler, rng, 5_000, amount) / 5_000)
            lower, upper = sampler.bounds()
            linear = min(linear, seconds(ss.safe_sampling, lower, upper, smoothness))
            by_sort = min(by_sort, seconds(sorted_safe_sampling, lower, upper, smoothness))
        print(
            f"{n:>12,}{1e6 * compiled:>16.2f}{1e6 * python:>14.1f}{1e6 * linear:>16,.0f}{1e6 * by_sort:>16,.0f}"
            f"{linear / compiled:>16,.0f}{by_sort / compiled:>16,.0f}",
            flush=True,
        )
    print()


if __name__ == "__main__":
    main(tuple(int(float(x)) for x in sys.argv[1:]) or SIZES)
