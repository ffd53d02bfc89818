"""Progress bars on the terminal, and Ctrl-C that leaves a result."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

import surestep as ss


class Watcher:
    """Shows runs on standard error while they last; the first Ctrl-C stops them after the present pass.

    A bar follows the gap on a logarithmic scale towards the tolerance, or the epochs towards the last one, whichever
    is closer to its end; so does the estimate of the time that remains. The second Ctrl-C stops at once.
    """

    def __init__(self, max_epochs: float = float("inf")) -> None:
        self.max_epochs = max_epochs
        self.interrupted = False
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("gap {task.fields[gap]}"),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            transient=True,
        )

    def __enter__(self) -> Watcher:
        if threading.current_thread() is threading.main_thread():
            self._before: Any = signal.signal(signal.SIGINT, self._interrupt)
        if self._bars.console.is_terminal:
            self._bars.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bars.stop()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._before)

    def _interrupt(self, number: int, frame: object) -> None:
        if self.interrupted:
            raise KeyboardInterrupt
        self.interrupted = True
        self._bars.console.print("Stopping after this pass (Ctrl-C again: at once).")

    def __call__(self, name: str) -> Callable[[ss.Progress], object]:
        """Start a bar for a run of this name, and return the callback for the solver."""
        for task in self._bars.task_ids:
            self._bars.remove_task(task)
        task = self._bars.add_task(name, total=1.0, gap="")

        def show(progress: ss.Progress) -> None:
            done = max(progress.fraction, progress.row["epoch"] / self.max_epochs)
            self._bars.update(task, completed=done, gap=f"{progress.row['gap']:.1e}")
            progress.stop = progress.stop or self.interrupted

        return show
