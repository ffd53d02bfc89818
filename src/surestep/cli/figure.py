"""``surestep figure`` and ``surestep bench``."""

from __future__ import annotations

import click


@click.command()
def figure() -> None:
    """Figures of the paper."""


@click.command()
def bench() -> None:
    """Benchmarks."""
