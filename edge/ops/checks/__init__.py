"""Checks of a gateway: `doctor`, `config check`, the judgement `health`, and their findings."""
