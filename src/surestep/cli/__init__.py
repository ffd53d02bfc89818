"""surestep on the command line: ``surestep --help``."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line."""
    try:
        import click as _click  # noqa: F401
        import rich as _rich  # noqa: F401
    except ImportError:
        sys.exit("the command line needs click and rich: pip install 'surestep[cli]'")
    from surestep.cli.commands import surestep

    surestep(prog_name="surestep")
