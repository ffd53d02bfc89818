"""The paper's findings as questions, answered from measured numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from surestep.experiments.cases import Case

YES, PARTLY, NO = "yes", "partly", "no"

# A method is called faster where it gets as far in this part of the time, or less; two are alike where neither is.
FASTER = 1.1
# v / Tr(L) below this is called low.
LOW = 0.8


@dataclass(frozen=True)
class Finding:
    """A question, the verdict, the numbers behind it (in words, and in a table with its head), and why."""

    question: str
    verdict: str
    numbers: str
    why: str
    table: tuple[tuple[str, ...], list[tuple[Any, ...]]] = ((), [])
    is_claimed: bool = True  # by the paper


def findings(cases: Iterable[Case]) -> list[Finding]:
    """Answer what can be answered from these cases."""
    cases = [case for case in cases if not case.is_trivial and max(map(case.final, case.runs)) < 1.0]
    descent = [case for case in cases if "safe" in case.runs and not case.figure.is_stochastic]
    steps = [case for case in cases if "safe, small steps" in case.runs]
    stochastic = [case for case in cases if case.figure.is_stochastic and max(map(case.final, case.runs)) < 0.9]
    lasso = [case for case in cases if case.panel.penalty == "L1" and not case.figure.is_stochastic]
    found = []
    if descent:
        found += [_iterations(descent), _time(descent), _optimal(descent)]
    if steps:
        found.append(_steps(steps))
    if descent:
        found.append(_loose(descent))
    if stochastic:
        found.append(_stochastic(stochastic))
    if lasso:
        found.append(_readings(lasso))
    return found


def _verdict(good: int, of: int) -> str:
    return YES if good >= 0.8 * of else PARTLY if good >= 0.2 * of else NO


def _tell(speedups: Sequence[float]) -> str:
    return f"median {np.median(speedups):.2f} times, from {min(speedups):.2f} to {max(speedups):.2f}"


def _grouped(cases: Iterable[Case], measure: Callable[[Case], Any]) -> dict[str, list[Any]]:
    """Return a measure of all cases, by penalty and reading."""
    groups: dict[str, list[Any]] = {}
    for case in cases:
        groups.setdefault(f"{case.panel.penalty}, {case.reading}", []).append(measure(case))
    return groups


def _medians(
    cases: Iterable[Case], name: str, measure: Callable[[Case], float]
) -> tuple[tuple[str, ...], list[tuple[Any, ...]]]:
    """Return a table of medians by reading."""
    groups = _grouped(cases, measure)
    return ("median by reading", "cases", name), [(g, len(v), float(np.median(v))) for g, v in groups.items()]


def _iterations(cases: list[Case]) -> Finding:
    speedups = [case.speedup("safe", "uniform") for case in cases]
    good = sum(s > FASTER for s in speedups)
    verdict = _verdict(good, len(cases))
    return Finding(
        "Does adaptive importance sampling beat fixed sampling in iterations?",
        verdict,
        f"Safe against uniform, in epochs to the same objective: faster in {good} of {len(cases)} cases, "
        f"{_tell(speedups)}.",
        ""
        if verdict == YES
        else "Safe sampling can only be as good as its bounds. Every step widens the Cauchy-Schwarz bounds of all "
        "coordinates but one: where many coefficients have to move, v / Tr(L) stays near 1 (below), and what is drawn "
        "is drawn almost uniformly.",
        _medians(cases, "times faster, in epochs", lambda case: case.speedup("safe", "uniform")),
    )


def _time(cases: list[Case]) -> Finding:
    speedups = [case.speedup("safe", "uniform", "seconds") for case in cases]
    good = sum(s > FASTER for s in speedups)
    verdict = _verdict(good, len(cases))
    safe, uniform = (float(np.median([case.microseconds(name) for case in cases])) for name in ("safe", "uniform"))
    return Finding(
        "And in time?",
        verdict,
        f"Safe against uniform, in seconds to the same objective: faster in {good} of {len(cases)} cases, "
        f"{_tell(speedups)}. A step took {safe:.2f} microseconds with safe sampling and {uniform:.2f} with uniform.",
        ""
        if verdict == YES
        else "The paper counts on steps that cost about as much as solving for the sampling. A compiled step along a "
        "short sparse column costs far less than keeping bounds up to date, so fewer steps do not make up for it. "
        "Runs are short here, and seconds include setting up.",
        _medians(cases, "times faster, in seconds", lambda case: case.speedup("safe", "uniform", "seconds")),
    )


def _optimal(cases: list[Case]) -> Finding:
    cases = [case for case in cases if "optimal" in case.runs]
    speedups = [case.speedup("optimal", "safe") for case in cases]
    good = sum(s < 1.5 for s in speedups)
    verdict = _verdict(good, len(cases))
    return Finding(
        "Is it almost as good as the optimal sampling, which knows the whole gradient, in iterations?",
        verdict,
        f"Optimal against safe: less than 1.5 times faster in {good} of {len(cases)} cases, {_tell(speedups)}.",
        ""
        if verdict == YES
        else "The bounds of the paper start from 0 and infinity and are tightened only where a coordinate is drawn: "
        "the first epoch is spent learning what the optimal sampling knows from the start.",
        _medians(cases, "times faster, optimal against safe", lambda case: case.speedup("optimal", "safe")),
    )


def _steps(cases: list[Case]) -> Finding:
    pairs = [
        case.speedup(f"{name}, big steps", f"{name}, small steps") for case in cases for name in ("optimal", "safe")
    ]
    good = sum(s > FASTER for s in pairs)
    verdict = _verdict(good, len(pairs))
    return Finding(
        "Does adaptive sampling need adaptive stepsizes?",
        verdict,
        f"Big against small steps, in epochs to the same objective: faster in {good} of {len(pairs)} pairs, "
        f"{_tell(pairs)}.",
        ""
        if verdict == YES
        else "Big steps are 1/v, small ones 1/Tr(L): where the bounds leave v near Tr(L), the two are alike.",
    )


def _loose(cases: list[Case]) -> Finding:
    values = [case.value_ratio("safe") for case in cases]
    good = sum(v < LOW for v in values)
    verdict = _verdict(good, len(cases))
    return Finding(
        "Are very loose bounds sufficient?",
        verdict,
        f"v / Tr(L) of safe sampling, mean of the last half of the runs: below {LOW} in {good} of {len(cases)} cases, "
        f"median {np.median(values):.2f}, from {min(values):.3f} to {max(values):.2f}.",
        ""
        if verdict == YES
        else "They suffice where the solution is sparse. Elsewhere the promise stays close to that of fixed sampling; "
        "it is never above it.",
        _medians(cases, "v / Tr(L)", lambda case: case.value_ratio("safe")),
    )


def _stochastic(cases: list[Case]) -> Finding:
    speedups = [case.speedup("optimal", "uniform") for case in cases]
    safe = [case.speedup("safe", "uniform") for case in cases]
    good = sum(1 / 1.5 < s < 1.5 for s in speedups)
    return Finding(
        "Are the gains in SGD small on these data?",
        _verdict(good, len(cases)),
        f"Optimal against uniform, in epochs to the same objective: within a factor of 1.5 in {good} of {len(cases)} "
        f"cases, {_tell(speedups)}. Safe against uniform: {_tell(safe)}. Cases in which one of them did not come 10 % "
        "closer to the minimum than zero is are not counted.",
        "Each sampling finds its own step, from the distance it has travelled and the gradients it has seen, at most "
        "1/(2L) with L = max_i L_i / (N p_i): a sampling that draws some rows rarely can do with shorter steps only, "
        "so that it can also be behind.",
        _medians(cases, "times faster, safe against uniform", lambda case: case.speedup("safe", "uniform")),
    )


def is_like_the_paper(case: Case) -> bool:
    """Whether curves are like the paper's: the objective falls visibly, safe is ahead of uniform, v is below Tr(L)."""
    safe = next(name for name in ("safe", "safe, big steps") if name in case.runs)
    falls = (case.at_zero - case.best) > 0.05 * case.at_zero
    return falls and case.speedup(safe, "uniform") > FASTER and case.value_ratio(safe) < LOW


def _readings(cases: list[Case]) -> Finding:
    groups, nonzeros = _grouped(cases, is_like_the_paper), _grouped(cases, lambda case: case.nonzeros)
    like = [name for name, results in groups.items() if np.mean(results) >= 0.5]
    written = "L1, lambda = 0.1" in like
    rows = [
        (name, f"{sum(results)} of {len(results)}", f"{min(nonzeros[name])} to {max(nonzeros[name])}")
        for name, results in groups.items()
    ]
    return Finding(
        "Does lambda = 0.1, as written, give curves like the paper's with an L1 penalty? If not, which reading does?",
        YES if written else NO,
        f"Like the paper's is taken to mean: f falls by over 5 %, safe is ahead of uniform, v / Tr(L) is below {LOW}. "
        + (f"In most panels that holds for: {'; '.join(like)}." if like else "In most panels that holds for none."),
        ""
        if written
        else "Read as written (mean of the losses, features 0 and 1), lambda = 0.1 is close to or above the least "
        "lambda at which all coefficients are zero: there is next to nothing to solve. Panels in which zero is "
        "optimal are not counted.",
        (("reading", "panels like the paper's", "coefficients not zero"), rows),
        is_claimed=False,
    )
