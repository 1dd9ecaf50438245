"""Eclipse's interoperability tests for MQTT brokers (paho.mqtt.testing), unmodified.

They are not kept here: the environment variable FIELDPOST_PAHO_TESTING names a folder with them,
which has `client_test.py` for MQTT 3.1.1 and `client_test5.py` for MQTT 5.0.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

import pytest

from edge.config.options import AccessRule
from tests.helpers.folder import set_access
from tests.helpers.gateway import Gateway
from tests.helpers.processes import start

FOLDER: Final = os.environ.get("FIELDPOST_PAHO_TESTING")
FILES: Final = ("client_test.py", "client_test5.py")
PROGRAM: Final = Path(__file__).with_name("clients") / "paho_suite.py"

SUITE_S: Final = 600.0
"""Seconds after which a file is stopped. Its tests sleep for more than a minute in all."""

SUBSCRIBE_FAILURE: Final = "test_subscribe_failure"
"""The test that needs a filter to which its client may not subscribe."""

FAILURES: Final = {
    ("client_test5.py", SUBSCRIBE_FAILURE): (
        "it wants 0x80, unspecified error; the gateway answers 0x87, not authorized, which is"
        " specified for this"
    ),
}
"""Tests that fail, with the reasons."""


def cases() -> list[Any]:
    """Return the tests of both files as parameters."""
    found = []
    for file in FILES if FOLDER else ():
        text = (Path(FOLDER or "") / file).read_text("utf-8")
        for name in re.findall(r"^ +def (test\w+|\w+_test)\(self", text, re.MULTILINE):
            why = FAILURES.get((file, name))
            marks = [pytest.mark.xfail(reason=why, strict=True)] if why else []
            found.append(pytest.param(file, name, marks=marks))
    return found


CASES: Final = cases()


def gateway(folder: Path, **options: Any) -> Gateway:
    """Return a gateway that serves clients without a user name."""
    found = Gateway(folder, "suite", require_tls=False, **options)
    mqtt = {"anonymous": "suite", "keep_alive": 60}
    found.configure_section("mqtt", listen="127.0.0.1:0", require_tls=False, **mqtt)
    return found


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], str]:
    """The tracebacks of all tests, empty for those that passed. The files run at the same time, on
    gateways of their own."""
    names: dict[tuple[str, bool], list[str]] = defaultdict(list)
    for case in CASES:
        file, name = case.values
        names[file, name == SUBSCRIBE_FAILURE].append(name)
    found = {}
    with contextlib.ExitStack() as stack:
        running = []
        for (file, is_restricted), of_file in names.items():
            topics = ["#", "$TopicA/#"]  # a filter that begins with # does not match $TopicA/B
            one = gateway(tmp_path_factory.mktemp("paho"), auto_create=topics)
            if is_restricted:
                set_access(one.folder, AccessRule(device="*", publish=topics, subscribe=["TopicA"]))
            port = str(stack.enter_context(one.run()).host_port("mqtt")[1])
            path = Path(FOLDER or "") / file
            command: tuple[str | Path, ...] = ("python", PROGRAM, path, port, *of_file)
            running.append((file, stack.enter_context(start(*command, ready=False))))
        for file, process in running:
            process.wait(SUITE_S)
            for line in process.stdout.splitlines():
                name, traceback = json.loads(line)
                found[file, name] = traceback
    return found


@pytest.mark.skipif(not FOLDER, reason="FIELDPOST_PAHO_TESTING names no folder")
@pytest.mark.parametrize(("file", "name"), CASES)
def test_eclipse_test(file: str, name: str, results: dict[tuple[str, str], str]) -> None:
    traceback = results[file, name]
    assert not traceback, traceback
