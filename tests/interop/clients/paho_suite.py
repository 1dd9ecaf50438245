"""Run Eclipse's interoperability tests for brokers, unmodified.

Arguments: the file, the port of the broker on 127.0.0.1, and the names of tests. Each result is a
line of JSON on the standard output: the name of the test and the traceback, which is empty if it
passed. The file is imported, because its command line is not sufficient to name a port in all of
them; what it sets for its tests when it is run as a program is set here.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import unittest
from pathlib import Path
from typing import Any, Final, TextIO

GLOBALS: Final[dict[str, Any]] = {
    "host": "127.0.0.1",
    "topics": ("TopicA", "TopicA/B", "Topic/C", "TopicA/C", "/TopicA"),
    "wildtopics": ("TopicA/+", "+/C", "#", "/#", "/+", "+/+", "TopicA/#"),
    "nosubscribe_topics": ("test/nosubscribe",),
    "topic_prefix": "client_test5/",
}


class Results(unittest.TestResult):
    """Writes each result to `output` when its test ends."""

    def __init__(self, output: TextIO) -> None:
        super().__init__()
        self.output = output

    def report(self, test: unittest.TestCase, traceback: str) -> None:
        print(json.dumps([test.id().rpartition(".")[2], traceback]), file=self.output, flush=True)

    def addSuccess(self, test: unittest.TestCase) -> None:
        self.report(test, "")

    def addFailure(self, test: unittest.TestCase, err: Any) -> None:
        super().addFailure(test, err)
        self.report(test, self.failures[-1][1])

    def addError(self, test: unittest.TestCase, err: Any) -> None:
        super().addError(test, err)
        self.report(test, self.errors[-1][1])


def main(file: str, port: str, *names: str) -> None:
    sys.path.insert(0, str(Path(file).parent))
    spec = importlib.util.spec_from_file_location("suite", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for name, value in (*GLOBALS.items(), ("port", int(port))):
        setattr(module, name, value)
    load = unittest.defaultTestLoader.loadTestsFromNames
    results = Results(sys.stdout)
    sys.stdout = sys.stderr  # the tests print
    load([f"Test.{name}" for name in names], module).run(results)


if __name__ == "__main__":
    main(*sys.argv[1:])
