"""`python -m sync.central` is `fieldpost-fleet`."""

from __future__ import annotations

from sync.central.cli import main

if __name__ == "__main__":
    main()
