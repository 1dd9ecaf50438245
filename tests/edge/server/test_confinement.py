"""The name of a front process, and that the kernel ends it before its parent."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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
