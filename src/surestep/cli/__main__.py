"""``python -m surestep.cli``: the same as ``surestep``."""

from surestep.cli import main

if __name__ == "__main__":
    main()
