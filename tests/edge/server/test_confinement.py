"""What a front process tells the kernel of itself, and what it can no longer do."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
from edge.server.confinement import end_before_parent, set_name

set_name("fieldpost-front")
end_before_parent()
print("done", flush=True)
input()
"""


def test_a_front_has_a_name_and_ends_before_its_parent() -> None:
    ours = int(Path("/proc/self/oom_score_adj").read_text())
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"done\n"
        proc = Path("/proc") / str(process.pid)
        assert (proc / "comm").read_text() == "fieldpost-front\n"
        assert int((proc / "oom_score_adj").read_text()) == min(ours + 200, 1000)
        process.communicate(b"\n")


CONFINED = """
import json, os, resource, sys
from pathlib import Path
from edge.server.confinement import confine

other = Path(sys.argv[1])
is_confined = confine()
possible = []
for name, attempt in {
    "read": Path(json.__file__).read_text,
    "read others": other.read_text,
    "write": lambda: other.write_text(""),
    "signal": lambda: os.kill(os.getppid(), 0),
}.items():
    try:
        attempt()
    except PermissionError:
        continue
    possible.append(name)
print(json.dumps([is_confined, possible, resource.getrlimit(resource.RLIMIT_NPROC)]))
"""


def test_a_confined_process_reads_the_files_of_python_alone(tmp_path: Path) -> None:
    other = tmp_path / "fieldpost.db"
    other.write_text("x")
    command = [sys.executable, "-c", CONFINED, str(other)]
    done = subprocess.run(command, capture_output=True, check=True)
    is_confined, possible, processes = json.loads(done.stdout)
    assert processes == [0, 0]
    if not is_confined:
        pytest.skip("the kernel has no Landlock")
    release = tuple(map(int, os.uname().release.split(".")[:2]))
    assert possible == (["read"] if release >= (6, 12) else ["read", "signal"])
