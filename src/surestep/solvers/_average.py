"""Averages of the iterates of SGD, block by block."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


class Average:
    """Of all iterates ("uniform"), with weights that rise like k in stairs ("weighted"), or of the last ("tail").

    The kernel adds up the iterates of the present block; here is the sum over the blocks before.
    """

    def __init__(self, kind: str, n_coordinates: int) -> None:
        self._kind, self._sum, self._weight, self._began = kind, np.zeros(n_coordinates), 0.0, 0

    def sums(self, block: Array, length: float, n_steps: int) -> tuple[Array, float]:
        """Return the weighted sum of the iterates and that of the weights, after so many steps in all.

        ``block`` is the sum over the present block, so many steps long.
        """
        weight = n_steps - 0.5 * length if self._kind == "weighted" else 1.0
        return self._sum + weight * block, self._weight + weight * length

    def close(self, block: Array, length: float, n_steps: int) -> None:
        """Take the present block in; a tail begins anew at every power of two."""
        self._sum, self._weight = self.sums(block, length, n_steps)
        if self._kind == "tail" and n_steps >= 2 * self._began:
            self._sum, self._weight, self._began = np.zeros_like(self._sum), 0.0, max(n_steps, 1)
