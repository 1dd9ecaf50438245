"""Check that this Python can create the project's virtual environment.

`make venv` runs it with the Python that it is about to use, so it must start on old versions too.
"""

import importlib.util
import sys

OLDEST = (3, 11)
NEWEST = (3, 13)


def problem() -> str:
    """Return what is wrong with this Python and what to do, or an empty text."""
    version = ".".join(str(part) for part in sys.version_info[:2])
    if not OLDEST <= sys.version_info[:2] <= NEWEST:
        return (
            f"Fieldpost needs Python 3.11, 3.12 or 3.13; {sys.executable} is {version}.\n"
            "Choose another one: make PYTHON=/path/to/python3.13\n"
            "On Debian 12 or newer and Raspberry Pi OS: apt-get install python3 python3-venv"
        )
    missing = [name for name in ("venv", "ensurepip") if importlib.util.find_spec(name) is None]
    if missing:
        return (
            f"{sys.executable} cannot create virtual environments: no {' or '.join(missing)}.\n"
            f"On Debian, Ubuntu and Raspberry Pi OS: apt-get install python{version}-venv\n"
            "Or choose another Python: make PYTHON=/path/to/python3"
        )
    return ""


if __name__ == "__main__":
    sys.exit(problem() or 0)
