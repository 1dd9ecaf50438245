"""Random generators from a seed, independent for each purpose."""

from __future__ import annotations

import random


def generator(seed: int, *purpose: str | int) -> random.Random:
    """Return a generator for one purpose: the same seed and words always give the same numbers."""
    words = "/".join(str(word) for word in (seed, *purpose))
    return random.Random(words)  # noqa: S311 - seeded chance is repeatable, and no secret
