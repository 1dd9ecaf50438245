"""The entry points `fieldpost` and `fieldpost-fleet`."""

from __future__ import annotations

from fieldpost import use_library


def gateway() -> None:
    """Run the command `fieldpost`."""
    use_library()
    from edge.__main__ import main

    main()


def centre() -> None:
    """Run the command `fieldpost-fleet`."""
    use_library()
    from sync.cli.main import main

    main()
