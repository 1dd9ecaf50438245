"""One search: atheris on one target, in a process of its own (`python -m tests.fuzz.harness NAME`).

What follows the name is libFuzzer's own. Nothing is counted or told here: `tests.fuzz` does. The
gateway's own modules alone are instrumented. atheris's hooks of `re` and `str` are left off: they
replace both by something that behaves differently.
"""

from __future__ import annotations

import sys

import atheris

from tests.fuzz import targets


def main(name: str, options: list[str]) -> None:
    """Search until libFuzzer's options end it; the process exits from within."""
    with atheris.instrument_imports(include=["edge"], enable_loader_override=False):
        target = targets.load(name)
    atheris.Setup([sys.argv[0], f"-max_len={target.max_bytes}", *options], target.check)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
