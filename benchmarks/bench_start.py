"""Seconds until one can work: import; the first fit ever, which compiles; what the first fit of a later process adds.

Each row begins with an empty cache of machine code. One process compiles, of five later ones the least is taken: what
the first fit takes more than the second in the same process.
"""

import json
import os
import subprocess
import sys
import tempfile

FITS = {
    "Lasso, dense": "surestep.Lasso(0.1).fit(X, y)",
    "Lasso, sparse": "surestep.Lasso(0.1).fit(S, y)",
    "Lasso, few samples": "surestep.Lasso(0.1).fit(X.T, X[0])",
    "Ridge, dense": "surestep.Ridge().fit(X, y)",
    "LogisticRegression, dense": "surestep.LogisticRegression().fit(X, y > 0)",
    "LogisticRegression, L1, sparse": "surestep.LogisticRegression(l1_ratio=1).fit(S, y > 0)",
    "LogisticRegression, L1, few": "surestep.LogisticRegression(l1_ratio=1).fit(X.T, X[0] > 0)",
    "LinearSVC, sparse": "surestep.LinearSVC().fit(S, y > 0)",
    "SGDClassifier, sparse": "surestep.SGDClassifier(random_state=0).fit(S, y > 0)",
}
MOST = {"import": 1.5, "first fit ever": 15.0, "later, more": 1.0}

PROGRAM = """
import time, warnings
warnings.simplefilter("ignore")
times = []

def clock(code):
    begin = time.perf_counter()
    exec(code, globals())
    times.append(time.perf_counter() - begin)

clock("import surestep")
clock("from surestep import estimators")
import numpy as np, scipy.sparse
X = np.random.default_rng(0).normal(size=(200, 50))
S, y = scipy.sparse.csr_array(X), X[:, 0]
clock({fit!r})
clock({fit!r})
import json
print(json.dumps(times))
"""


def times_of(fit: str, folder: str) -> list[float]:
    """Seconds of importing surestep, importing its estimators (and scikit-learn), and two fits, in a new process."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(fit=fit)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "NUMBA_CACHE_DIR": folder, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    return list(json.loads(done.stdout))


def main() -> None:
    heads = ("import", "with estimators", *list(MOST)[1:])
    print(f"{'':<32}" + "".join(f"{head:>17}" for head in heads))
    worst = dict.fromkeys(heads, 0.0)
    for name, fit in FITS.items():
        with tempfile.TemporaryDirectory() as folder:
            first = times_of(fit, folder)[2]
            later = [times_of(fit, folder) for _ in range(5)]
        package, both = min(t[0] for t in later), min(t[0] + t[1] for t in later)
        cells = dict(zip(heads, (package, both, first, min(t[2] - t[3] for t in later)), strict=True))
        worst = {head: max(worst[head], cells[head]) for head in heads}
        print(f"{name:<32}" + "".join(f"{cells[head]:>17.2f}" for head in heads), flush=True)
    for head, most in MOST.items():
        print(f"{head}: at most {worst[head]:.2f} s, aim {most:g} s" + "   MISSED" * (worst[head] > most))


if __name__ == "__main__":
    main()
