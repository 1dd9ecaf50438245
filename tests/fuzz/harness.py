"""One search of atheris on one target: `python -m tests.fuzz.harness NAME [LIBFUZZER OPTION ...]`.

Only the gateway's modules are instrumented. atheris's hooks of `re` and `str` are off, because
their replacements behave differently.
"""

from __future__ import annotations

import sys

import atheris

from tests.fuzz import targets


def main(name: str, options: list[str]) -> None:
    """Search until libFuzzer's options end the process."""
    with atheris.instrument_imports(include=["edge"], enable_loader_override=False):
        target = targets.load(name)
    atheris.Setup([sys.argv[0], f"-max_len={target.max_bytes}", *options], target.check)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
