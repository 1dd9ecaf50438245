"""Run moto's S3 server on a free port of the loopback interface, and carry out requests in turn.

Moto checks the condition of a put before it carries it out, so that of two puts at once, both would
succeed. What it computes again for each request or listed object is kept: that was half of its
time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from moto import backends
from moto.core import serialize
from moto.moto_server.werkzeug_app import (
    DomainDispatcherApplication,
    MotoRequestHandler,
    create_backend_app,
)
from werkzeug.serving import run_simple


def _keep_lookups() -> None:
    modules = tuple(backends.list_of_moto_modules())
    vars(backends)["list_of_moto_modules"] = lambda: modules
    parse = lru_cache(10_000)(vars(serialize)["parse_to_aware_datetime"])
    vars(serialize)["parse_to_aware_datetime"] = parse


def main() -> None:
    _keep_lookups()
    moto = DomainDispatcherApplication(create_backend_app)
    turn = threading.Lock()

    def application(environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        with turn:
            answer: Iterable[bytes] = moto(environ, start_response)
            return answer

    run_simple("127.0.0.1", 0, application, threaded=True, request_handler=MotoRequestHandler)


if __name__ == "__main__":
    main()
