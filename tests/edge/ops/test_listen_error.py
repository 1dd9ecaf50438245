"""Errors for addresses that cannot be listened on."""

from __future__ import annotations

import errno
import os
import socket
from pathlib import Path

from edge.config.load import Address
from edge.ops.listen_error import listen_error


def test_port_in_use_names_the_process_and_the_option() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        error = OSError(errno.EADDRINUSE, "Address already in use")
        found = str(listen_error("xmpp", "listen", Address("127.0.0.1", port), error))
    name = Path("/proc/self/comm").read_text("utf-8").strip()
    expected = f"port {port} is already in use (pid {os.getpid()}, {name}); choose another"
    expected += " in [xmpp] listen"
    assert found == expected
    gone = str(listen_error("web", "listen", Address("127.0.0.1", port), error))
    assert gone == f"port {port} is already in use; choose another in [web] listen"


def test_other_errors_name_the_address() -> None:
    error = OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
    found = str(listen_error("xmpp", "listen_tls", Address("::1", 5223), error))
    expected = "xmpp.listen_tls: cannot listen on [::1]:5223: Cannot assign requested address"
    assert found == expected
