"""`python -m fieldpost` is `fieldpost`."""

from __future__ import annotations

from fieldpost.commands import gateway

if __name__ == "__main__":
    gateway()
