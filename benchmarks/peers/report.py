"""From records to the files of a run: results.csv, table.md and performance_profile.svg and .png."""

import csv
import math
from dataclasses import asdict, dataclass, fields

import numpy as np

TARGETS = (1e-3, 1e-6, 1e-9)
OURS = "surestep"
L1_TASKS = ("lasso", "elastic_net", "logistic_l1", "squared_hinge_l1", "lasso_path")
# The picture ends where solvers are no longer waited for.
_FACTORS = 10.0
HEADER = (
    f"{'data':<18}{'task':<18}{'alpha':>7}  {'solver':<24}"
    f"{'1e-3':>10}{'1e-6':>10}{'1e-9':>10}{'reached':>10}{'passes':>9}"
)


@dataclass(frozen=True)
class Record:
    """One solver on one row: seconds to 1e-3, 1e-6 and 1e-9 (nan: never), and the least suboptimality it reached.

    ``certified`` bounds the relative distance of f* from the minimum, ``gradient`` is the seconds of a full gradient.
    """

    data: str
    task: str
    fraction: float
    solver: str
    loose: float
    middle: float
    tight: float
    reached: float
    certified: float
    gradient: float
    note: str

    @property
    def passes(self):
        """Seconds to 1e-6 in units of a full gradient."""
        return self.middle / self.gradient


def read(path):
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return [Record(**{f.name: f.type(row[f.name]) for f in fields(Record)}) for row in rows]


def write(path, records):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, [f.name for f in fields(Record)])
        writer.writeheader()
        writer.writerows(asdict(r) for r in records)


def seconds(value):
    return "-" if math.isnan(value) else f"{value:.3g}" if value < 100 else f"{value:.0f}"


def lines(row):
    """The records of a row for the screen, the fastest at 1e-6 first."""
    found = []
    for r in sorted(row, key=lambda r: (math.isnan(r.middle), r.middle)):
        cells = "".join(f"{seconds(s):>10}" for s in (r.loose, r.middle, r.tight))
        passes = "-" if math.isnan(r.passes) else f"{r.passes:.1f}"
        row_name = f"{r.data:<18}{r.task:<18}{r.fraction:>7g}  {r.solver:<24}"
        found.append(f"{row_name}{cells}{r.reached:>10.0e}{passes:>9}  {r.note}".rstrip())
    return "\n".join(found)


def by_row(records):
    rows = {}
    for r in records:
        rows.setdefault((r.data, r.task, r.fraction), []).append(r)
    return rows


def best_peer(row):
    return min((r.middle for r in row if r.solver != OURS and not math.isnan(r.middle)), default=math.nan)


def ours(row):
    return next((r for r in row if r.solver == OURS), None)


def table(records):
    """Rows x solvers at 1e-6 in Markdown, one table a task, and what they come to."""
    parts = ["# Seconds to relative suboptimality 1e-6", ""]
    parts += [
        "One thread; the fastest in bold; -: it did not get there, or was given up, because a run took many times as "
        "long as the best. Ratio: best peer / ours. Passes: ours in full gradients."
    ]
    parts += [""]
    for task in dict.fromkeys(r.task for r in records):
        of_task = [r for r in records if r.task == task]
        names = list(dict.fromkeys(r.solver for r in of_task))
        parts += [f"## {task}", "", f"| data | alpha / max | {' | '.join(names)} | ratio | passes |"]
        parts += ["| --- | ---: |" + " ---: |" * (len(names) + 2)]
        for (data, _, fraction), row in by_row(of_task).items():
            found = {r.solver: r for r in row}
            fastest = min((r.middle for r in row if not math.isnan(r.middle)), default=math.nan)
            cells = []
            for name in names:
                r = found.get(name)
                cell = "" if r is None else r.note.split(":")[0] if r.note[:3] in ("err", "not") else seconds(r.middle)
                cells.append(f"**{cell}**" if r is not None and r.middle == fastest else cell)
            own = ours(row)
            ratio = best_peer(row) / own.middle if own else math.nan
            passes = own.passes if own else math.nan
            cells += [seconds(ratio), seconds(passes)]
            parts.append(f"| {data} | {fraction:g} | {' | '.join(cells)} |")
        parts.append("")
    parts += summary(records)
    notes = dict.fromkeys(f"- {r.solver}, {r.data}, {r.task}: {r.note}" for r in records if r.note)
    if notes:
        parts += ["", "## Errors and limits", "", *notes]
    return "\n".join(parts) + "\n"


def summary(records):
    rows = [(key, row) for key, row in by_row(records).items() if ours(row) and not math.isnan(best_peer(row))]
    solved = [(key, row) for key, row in rows if not math.isnan(ours(row).middle)]
    ratios = [(key[1], best_peer(row) / ours(row).middle) for key, row in solved]
    sparse, smooth = ([r for task, r in ratios if (task in L1_TASKS) == kinks] for kinks in (True, False))
    passes = [ours(row).passes for _, row in solved if not math.isnan(ours(row).passes)]
    parts = ["## In all", ""]
    fastest = sum(ours(row).middle < best_peer(row) for _, row in solved)
    parts.append(f"- Fastest at 1e-6 on {fastest} of {len(rows)} rows that some peer solves.")
    for name, found in (("L1", sparse), ("L2", smooth)):
        if found:
            mean, worst = np.exp(np.mean(np.log(found))), min(found)
            parts.append(
                f"- {name} rows ({len(found)}): best peer of each / ours, geometric mean {mean:.2f}, least {worst:.2f}."
            )
    if passes:
        below = sum(p < 20.0 for p in passes)
        typical = f"median {np.median(passes):.1f}, most {max(passes):.1f}"
        parts.append(f"- Passes over the data to 1e-6: {typical}, below 20 on {below} of {len(passes)} rows.")
    parts.append(f"- f* is certified by a dual bound to {np.nanmax([r.certified for r in records]):.0e} or better.")
    return parts


def profile(folder, records):
    """Performance profile: share of rows on which a solver is within a factor of the fastest, over the factor."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(TARGETS), figsize=(15, 4.5), sharey=True, layout="constrained")
    # Variants of a package (sklearn cyclic, sklearn random) count as one: the better of them on each row.
    families = list(dict.fromkeys(r.solver.split()[0] for r in records))
    for axis, target, field in zip(axes, TARGETS, ("loose", "middle", "tight"), strict=True):
        ratios = {family: [] for family in families}
        for row in by_row(records).values():
            fastest = min((getattr(r, field) for r in row if not math.isnan(getattr(r, field))), default=math.nan)
            for family in families:
                times = [getattr(r, field) for r in row if r.solver.split()[0] == family]
                if times:  # it has a solver for this row
                    ratios[family].append(min((t for t in times if not math.isnan(t)), default=math.inf) / fastest)
        for family in families:
            found = np.sort([r for r in ratios[family] if not math.isnan(r)])
            if not found.size:
                continue
            finite = found[np.isfinite(found)]
            xs = np.concatenate([[1.0], finite, [_FACTORS]])
            ys = np.concatenate([[0.0], np.arange(1, finite.size + 1), [finite.size]]) / found.size
            axis.step(xs, ys, where="post", label=f"{family} ({found.size})", linewidth=2.5 if family == OURS else 1.3)
        axis.set(xscale="log", xlim=(1.0, _FACTORS), ylim=(0.0, 1.02), title=f"relative suboptimality {target:g}")
        axis.set_xlabel("times the fastest of the row")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("share of the rows it has a solver for")
    figure.legend(*axes[0].get_legend_handles_labels(), title="solver (rows)", loc="outside right center")
    for ending in ("svg", "png"):
        figure.savefig(folder / f"performance_profile.{ending}", dpi=120)
    plt.close(figure)
