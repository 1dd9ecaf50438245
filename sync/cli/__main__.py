"""`python -m sync.cli` is `fieldpost-fleet`."""

from __future__ import annotations

from sync.cli.main import main

if __name__ == "__main__":
    main()
