"""Prove the distributions for arm64 on Debian for arm64, emulated by QEMU.

`python -m tests.proof.arm64 FOLDER dist` creates Debian 12 in `FOLDER/tree`, unless it is there,
installs `dist/fieldpost_*+deb12_arm64.deb` and, for the demonstration and the tests, the wheels.
What each step writes is in `FOLDER/log`. The program prints what was done and seen as rows of a
table. It needs root, debootstrap, and a kernel that runs programs for arm64 by QEMU, as
qemu-user-static and systemd-binfmt set it up. It downloads from Debian and PyPI.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from edge import __version__
from tests.helpers.wheel import ROOT
from tests.proof.systemd import FOLDER, RELEASES

PACKAGES: Final = "adduser,ca-certificates,openssl,python3-venv"
"""What Debian has beside its minimum: what the package needs, and what the tests need."""

REQUIRED: Final = (
    *(f"{name}=={__version__}" for name in ("fieldpost", "fieldpost-device", "fieldpost-sim")),
    *("hypothesis", "paho-mqtt", "psutil", "pytest", "pytest-asyncio", "pytest-xdist", "scramp"),
)

TESTS: Final = tuple(
    f"tests/{folder}" for folder in ("edge", "sync/segment", "sync/uplink", "firmware_sim/device")
)
AT_THE_CENTRE: Final = "tests/sync/segment/test_segment_hostile_input.py"
"""It compares the decoder with the centre's, which needs NumPy."""

PYTEST: Final = (
    "PYTHONPATH=/src /venv/bin/python -m pytest -m 'not long' --numprocesses 2"
    f" --dist loadfile --no-loadscope-reorder --ignore {AT_THE_CENTRE}"
)

STEP_S: Final = 7200
"""Seconds that a step may take."""

PORT: Final = 15222
LOGIN: Final = (
    f"--password-stdin --host 127.0.0.1 --port {PORT} --timeout 120 --ca {FOLDER}/pki/ca.pem"
)
EXCHANGE: Final = f"""
fieldpost init --domain gw1.example --listen 127.0.0.1:{PORT}
for device in pump1 valve1; do fieldpost device add $device | tail -n 1 > /root/$device; done
setpriv --reuid=fieldpost --regid=fieldpost --init-groups \
    /opt/fieldpost/bin/fieldpost run --dir {FOLDER} > /root/run.log 2>&1 &
trap "kill $!" EXIT
until grep ^ready /root/run.log; do kill -0 $!; sleep 1; done
fieldpost send --as pump1@gw1.example --to valve1@gw1.example --qos 2 {LOGIN} open < /root/pump1
fieldpost listen --as valve1@gw1.example --count 1 {LOGIN} < /root/valve1 | grep open
fieldpost doctor | tee /root/doctor.log
kill $!
wait $!
trap - EXIT
echo "received; doctor: $(grep -c ^ok /root/doctor.log) ok, 0 wrong; stopped with status 0"
"""
"""Runs the gateway as its unit does."""


def steps(debian: str, tests: list[str]) -> Iterator[tuple[str, str]]:
    """Yield what is done, and the command of bash that does it and writes what was seen last."""
    _suite, python = RELEASES[debian]
    yield (
        "the system",
        "echo $(uname -m), Debian $(cat /etc/debian_version), $(python3 --version),"
        " SQLite $(python3 -c 'import sqlite3; print(sqlite3.sqlite_version)')",
    )
    yield (
        "`apt install ./fieldpost_*.deb`",
        f"apt-get install -y /dist/fieldpost_*+deb{debian}_arm64.deb; fieldpost --version",
    )
    yield (
        "`fieldpost init`, `fieldpost run`, a message at level 2 from one device to another,"
        " `fieldpost doctor`",
        EXCHANGE,
    )
    yield "`apt purge`", "apt-get purge -y fieldpost; ! getent passwd fieldpost && echo purged"
    yield (
        "`pip install` of the wheels",
        f"{python} -m venv --clear /venv; /venv/bin/pip install --find-links /dist"
        f" --constraint constraints.txt {' '.join(REQUIRED)};"
        # The tests import what lies beside them.
        " cp -r /venv/lib/python*/site-packages/fieldpost/lib/. .;"
        " /venv/bin/python -m edge --version",
    )
    yield (
        "the demonstration until the segments are at the centre",
        "/venv/bin/python -m tests.acceptance.demo --no-report --devices 5 --seconds 60",
    )
    yield "tests", " ".join((PYTEST, *tests))


def run(tree: Path, log: Path, name: str, command: str) -> bool:
    """Run a command in the tree, print a row, and return whether it succeeded."""
    began = time.monotonic()
    with log.open("a") as output:
        print(f"== {name}", file=output, flush=True)
        done = subprocess.run(
            ["timeout", str(STEP_S), ROOT / ".ci/debian", "run", tree, command],
            stdout=output, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
    seen = log.read_text("utf-8", "replace").splitlines()[-1].strip(" =")
    failed = "" if done.returncode == 0 else "FAILED: "
    print(f"| {name} | {failed}{seen} | {time.monotonic() - began:.0f} |", flush=True)  # noqa: T201
    return not failed


def main() -> int:
    """Run the proof of the command line; return 0 if every step succeeded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="keeps Debian's tree for later, and the log")
    parser.add_argument("dist", type=Path, help="the folder of the package and of the wheels")
    parser.add_argument("--debian", choices=sorted(RELEASES), default="12")
    parser.add_argument("tests", nargs="*", default=TESTS, help="files and folders")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    tree, log = options.folder / "tree", options.folder / "log"
    suite, _python = RELEASES[options.debian]
    subprocess.run([ROOT / ".ci/debian", "make", tree, suite, PACKAGES, "arm64"], check=True)
    shutil.rmtree(tree / "dist", ignore_errors=True)
    (tree / "dist").mkdir()
    for pattern in "fieldpost*.whl", f"fieldpost_*+deb{options.debian}_arm64.deb":
        for file in options.dist.glob(pattern):
            shutil.copy(file, tree / "dist")
    done = [run(tree, log, *step) for step in steps(options.debian, options.tests)]
    return 0 if all(done) else 1


if __name__ == "__main__":
    sys.exit(main())
