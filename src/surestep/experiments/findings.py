"""The paper's findings as questions, answered from measured numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from surestep.experiments.cases import Case
from surestep.experiments.figures import FIGURES

YES, PARTLY, NO = "yes", "partly", "no"

# A method is called faster where it gets as far in this part of the time, or less; two are alike where neither is.
FASTER = 1.1


@dataclass(frozen=True)
class Finding:
    """A question, the verdict, the numbers behind it, and why."""

    question: str
    verdict: str
    numbers: str
    why: str


def findings(cases: Iterable[Case]) -> list[Finding]:
    """Answer what can be answered from these cases."""
    cases = [case for case in cases if not case.is_trivial]
    descent = [case for case in cases if "safe" in case.runs and case.figure.methods[0].solver == "coordinate_descent"]
    steps = [case for case in cases if "safe, small steps" in case.runs]
    stochastic = [case for case in cases if case.figure.methods[0].solver == "stochastic_gradient_descent"]
    found = []
    if descent:
        found += [_iterations(descent), _time(descent), _optimal(descent)]
    if steps:
        found.append(_steps(steps))
    if descent:
        found.append(_loose(descent))
    if stochastic:
        found.append(_stochastic(stochastic))
    lasso = [case for case in cases if case.panel.penalty == "L1" and case.figure.number in DESCENT]
    if lasso:
        found.append(_readings(lasso))
    return found


DESCENT = [number for number, figure in FIGURES.items() if figure.methods[0].solver == "coordinate_descent"]


def _verdict(good: int, of: int) -> str:
    return YES if good >= 0.8 * of else PARTLY if good >= 0.2 * of else NO


def _tell(speedups: Sequence[float]) -> str:
    return f"median {np.median(speedups):.2f} times, from {min(speedups):.2f} to {max(speedups):.2f}"


def _by_reading(cases: Iterable[Case], measure: Callable[[Case], float]) -> str:
    """Return medians of a measure, for every penalty and reading."""
    groups: dict[str, list[float]] = {}
    for case in cases:
        groups.setdefault(f"{case.panel.penalty} at {case.reading}", []).append(measure(case))
    return "; ".join(f"{name}: {np.median(values):.2f}" for name, values in groups.items())


def _iterations(cases: list[Case]) -> Finding:
    speedups = [case.speedup("safe", "uniform") for case in cases]
    good = sum(s > FASTER for s in speedups)
    verdict = _verdict(good, len(cases))
    why = (
        "Safe sampling is faster where the bounds say that most coordinates have little to gain: with a strong L1 "
        "penalty. Where many coefficients move, the distance travelled soon makes Cauchy-Schwarz bounds wider than the "
        "gradient entries, v / Tr(L) stays near 1, and it draws almost uniformly. The paper's curves show a gain in all "
        "its panels; its lambda, read as written, is the case that favours it most."
    )
    return Finding(
        "Does adaptive importance sampling beat fixed sampling in iterations?",
        verdict,
        f"Safe against uniform, in epochs to the same objective: faster in {good} of {len(cases)} cases, "
        f"{_tell(speedups)}. Medians by reading: {_by_reading(cases, lambda c: c.speedup('safe', 'uniform'))}.",
        "" if verdict == YES else why,
    )


def _time(cases: list[Case]) -> Finding:
    speedups = [case.speedup("safe", "uniform", "seconds") for case in cases]
    good = sum(s > FASTER for s in speedups)
    verdict = _verdict(good, len(cases))
    safe, uniform = (float(np.median([case.microseconds(name) for case in cases])) for name in ("safe", "uniform"))
    why = (
        f"A step took {safe:.2f} microseconds with safe sampling and {uniform:.2f} with uniform (medians): columns of a "
        "bag of words are short, so that a compiled uniform step costs next to nothing, and the paper's assumption that "
        "a step costs O(n) anyway does not hold. Seconds of so short runs include setting up."
    )
    return Finding(
        "And in time?",
        verdict,
        f"Safe against uniform, in seconds to the same objective: faster in {good} of {len(cases)} cases, "
        f"{_tell(speedups)}. Medians by reading: "
        f"{_by_reading(cases, lambda c: c.speedup('safe', 'uniform', 'seconds'))}.",
        "" if verdict == YES else why,
    )


def _optimal(cases: list[Case]) -> Finding:
    cases = [case for case in cases if "optimal" in case.runs]
    speedups = [case.speedup("optimal", "safe") for case in cases]
    good = sum(s < 1.5 for s in speedups)
    verdict = _verdict(good, len(cases))
    return Finding(
        "Is it almost as good as the optimal sampling, which knows the whole gradient, in iterations?",
        verdict,
        f"Optimal against safe: less than 1.5 times faster in {good} of {len(cases)} cases, {_tell(speedups)}. "
        f"Medians by reading: {_by_reading(cases, lambda c: c.speedup('optimal', 'safe'))}.",
        ""
        if verdict == YES
        else "The bounds of the paper start from 0 and infinity and are tightened only where a coordinate is drawn: "
        "the first epoch is spent learning what the optimal sampling knows from the start. Tighter bounds close most of "
        "this distance, see the second part.",
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
    good = sum(v < 0.8 for v in values)
    verdict = _verdict(good, len(cases))
    return Finding(
        "Are very loose bounds sufficient?",
        verdict,
        f"v / Tr(L) of safe sampling, mean of the last half of the runs: below 0.8 in {good} of {len(cases)} cases, "
        f"median {np.median(values):.2f}, from {min(values):.3f} to {max(values):.2f}. Medians by reading: "
        f"{_by_reading(cases, lambda c: c.value_ratio('safe'))}.",
        ""
        if verdict == YES
        else "They suffice where the solution is sparse. Elsewhere they say little about coordinates that were not drawn "
        "lately, and the promise stays close to that of fixed sampling; it is never above it.",
    )


def _stochastic(cases: list[Case]) -> Finding:
    speedups = [case.speedup("optimal", "uniform") for case in cases]
    safe = [case.speedup("safe", "uniform") for case in cases]
    good = sum(1 / 1.5 < s < 1.5 for s in speedups)
    return Finding(
        "Are the gains in SGD small on these data?",
        _verdict(good, len(cases)),
        f"Optimal against uniform, in epochs to the same objective: within a factor of 1.5 in {good} of {len(cases)} "
        f"cases, {_tell(speedups)}; safe against uniform: {_tell(safe)}.",
        "With the square loss and labels -1 and +1 gradients of rows differ by little more than their norms do. The "
        "step of each sampling is 1/(2 max_i L_i / (N p_i)), falling: a sampling that draws some rows rarely pays with "
        "shorter steps, so that optimal can even be behind.",
    )


def is_like_the_paper(case: Case) -> bool:
    """Whether curves are like the paper's: the objective falls visibly, safe is ahead of uniform, v is below Tr(L)."""
    safe = next(name for name in ("safe", "safe, big steps") if name in case.runs)
    falls = (case.at_zero - case.best) > 0.05 * case.at_zero
    return falls and case.speedup(safe, "uniform") > FASTER and case.value_ratio(safe) < 0.8


def _readings(cases: list[Case]) -> Finding:
    groups: dict[str, list[bool]] = {}
    for case in cases:
        groups.setdefault(case.reading, []).append(is_like_the_paper(case))
    like = [name for name, results in groups.items() if np.mean(results) >= 0.5]
    nonzeros: dict[str, list[int]] = {}
    for case in cases:
        nonzeros.setdefault(case.reading, []).append(case.nonzeros)
    told = "; ".join(
        f"{name}: {sum(results)} of {len(results)} panels, {min(nonzeros[name])} to {max(nonzeros[name])} coefficients "
        "not zero"
        for name, results in groups.items()
    )
    written = "lambda = 0.1" in like
    return Finding(
        "Which reading of lambda = 0.1 gives curves like the paper's, with an L1 penalty?",
        YES if written else PARTLY if like else NO,
        f"Panels in which the objective falls by over 5 %, safe is ahead of uniform and v / Tr(L) is below 0.8: {told}. "
        + (f"So: {', '.join(like)}." if like else "No reading does in most panels."),
        ""
        if written
        else "Read as written (mean of the losses, features 0 and 1), lambda = 0.1 is close to or above the least "
        "lambda at which all coefficients are zero: there is next to nothing to solve. Panels in which zero is "
        "optimal are not counted above.",
    )
