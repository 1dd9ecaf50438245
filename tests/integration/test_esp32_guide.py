"""The stanzas of docs/how-to/esp32.md, sent verbatim to a gateway, over a socket with TLS.

`...` in the gateway's stanzas stands for any value. Words in capitals in the device's stanzas are
filled in from the stanza that it answers, or from its counters.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import re
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple
from xml.etree.ElementTree import Element

import pytest

from edge.ops.devices import devices
from tests.helpers import expected_xml
from tests.helpers.gateway import DOMAIN, Gateway
from tests.helpers.processes import Process
from tests.helpers.pull_parser import PullParser

GUIDE: Final = (Path(__file__).parents[2] / "docs" / "how-to" / "esp32.md").read_text("utf-8")
NODE: Final = "plant/pump1"
SM: Final = "{urn:xmpp:sm:3}"
STREAMS: Final = "{http://etherx.jabber.org/streams}"
WAIT_S: Final = 30.0
KIB: Final = 1024


class Block(NamedTuple):
    sender: str
    text: str


BLOCKS: Final = [
    Block(*found) for found in re.findall(r"^```xml (\w+)\n(.+?)^```", GUIDE, re.DOTALL | re.M)
]
HEADER: Final = BLOCKS[0].text


def block(part: str) -> str:
    """Return the device's first stanza that contains some words."""
    return next(one.text for one in BLOCKS if one.sender == "device" and part in one.text)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Gateway:
    gateway = Gateway(tmp_path_factory.mktemp("gw") / "gateway", listen_tls="127.0.0.1:0")
    devices.add(gateway.folder, "pump1", None, trusted=True, certificate=True)
    devices.add(gateway.folder, "cam1", "secret-of-cam1", trusted=True)
    return gateway


@pytest.fixture(scope="module")
def process(gateway: Gateway) -> Iterator[Process]:
    with gateway.run() as process:
        gateway.command("node", "create", NODE, "--set", "publish_model=open")
        yield process
        assert process.terminate() == 0


class Device:
    """A connection that sends text, and reads one byte at a time as a microcontroller does."""

    def __init__(self, gateway: Gateway, process: Process, *, certificate: bool = True) -> None:
        context = ssl.create_default_context(cafile=str(gateway.ca))
        if certificate:
            files = gateway.folder / "devices" / "pump1"
            context.load_cert_chain(files / "cert.pem", files / "key.pem")
        plain = socket.create_connection(process.host_port("xmpps"), WAIT_S)
        self._socket = context.wrap_socket(plain, server_hostname=DOMAIN)
        self._parser = PullParser()
        self._depth = self._size = 0
        self.sent = self.received = self.largest = self.stanzas = 0

    def close(self) -> None:
        """Drop the connection without closing the stream."""
        self._socket.close()

    def send(self, text: str) -> None:
        self._socket.sendall(text.encode())
        self.sent += len(text.encode())

    def element(self) -> Element | None:
        """Return the next element at depth 1 but requests for counts, or None at the end."""
        while byte := self._socket.recv(1):
            self.received += 1
            self._size += 1
            self._parser.feed(byte)
            for event, element in self._parser.read_events():
                self._depth += 1 if event == "start" else -1
                if event == "end" and self._depth == 1 and element.tag != f"{SM}r":
                    self.largest, self._size = max(self.largest, self._size), 0
                    self.stanzas += element.tag.startswith("{jabber:client}")
                    return element
        return None

    def expect(self, text: str) -> Element:
        found = self.element()
        assert found is not None, f"the stream has ended before {text}"
        expected = expected_xml.read(text.replace("...", expected_xml.ANY))
        assert expected_xml.difference(expected, found) == ""
        return found


def proof(challenge: str, first: str) -> str:
    """Return the client's final message of SCRAM-SHA-256 (RFC 5802, section 3)."""
    server_first = base64.b64decode(challenge).decode()
    fields = dict(part.split("=", 1) for part in server_first.split(","))
    assert fields["i"] == "4096"
    bare = base64.b64decode(first).decode().removeprefix("n,,")
    salted = hashlib.pbkdf2_hmac(
        "sha256", b"secret-of-cam1", base64.b64decode(fields["s"]), int(fields["i"])
    )
    key = hmac.digest(salted, b"Client Key", "sha256")
    final = f"c=biws,r={fields['r']}"
    signed = f"{bare},{server_first},{final}".encode()
    signature = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
    raw = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    return base64.b64encode(f"{final},p={base64.b64encode(raw).decode()}".encode()).decode()


class Player:
    """Plays the guide's blocks in their order."""

    def __init__(self, gateway: Gateway, process: Process) -> None:
        self._gateway, self._process = gateway, process
        self._device: Device | None = None
        self._last = Element("nothing")
        self._previd = self._sent = ""

    @property
    def device(self) -> Device:
        assert self._device is not None
        return self._device

    def close(self) -> None:
        if self._device is not None:
            self._device.close()

    def connect(self, authenticate: str) -> None:
        """Begin a stream; the header and the request to log in go in one piece."""
        self.close()
        external = "EXTERNAL" in authenticate
        count = str(0 if self._device is None else self._device.stanzas)
        self._device = Device(self._gateway, self._process, certificate=external)
        filled = authenticate.replace("COUNT", count).replace("PREVID", self._previd)
        self._device.send(HEADER + filled)

    def send(self, text: str) -> None:
        self._sent = self._sent if "CLIENT_FINAL" in text else text
        if text.startswith("<authenticate"):
            return self.connect(text)
        if "type='error'" in text:
            return self._answer_to_other(text)
        self.device.send(self._fill(text))
        if text.startswith("</stream:stream>"):
            assert self.device.element() is None
        return None

    def receive(self, text: str) -> None:
        """Read a stanza of the gateway; let the operator send the messages to the device."""
        if "disco#info" in text:
            self._gateway.command("send", "--to", "pump1", "--qos", "2", "open")
        elif ">report<" in text:
            self._gateway.command("send", "--to", "pump1", "--qos", "1", "report")
        self._last = self.device.expect(text)
        for enabled in self._last.iter(f"{SM}enabled"):
            self._previd = enabled.attrib["id"]

    def _fill(self, text: str) -> str:
        found = self._last
        values = {
            "MSGID": next((one.get("msgId", "") for one in found if one.get("msgId")), ""),
            "ID": found.get("id", ""),
            "FROM": found.get("from", ""),
            "COUNT": str(self.device.stanzas),
        }
        if "CLIENT_FINAL" in text:
            first = expected_xml.read(self._sent)[0].text or ""
            values["CLIENT_FINAL"] = proof(found.text or "", first)
        for placeholder, value in values.items():
            text = re.sub(rf"\b{placeholder}\b", value, text)
        return text

    def _answer_to_other(self, text: str) -> None:
        """Send the answer to a request that the device does not know, from another device."""
        with closing(Device(self._gateway, self._process, certificate=False)) as other:
            other.send(HEADER + block("mechanism='PLAIN'"))
            for _ in range(3):
                other.element()
            request = f"<iq type='get' id='7' to='{self._jid()}'><q xmlns='urn:example:q'/></iq>"
            other.send(request)
            self._last = self.device.expect("<iq type='get' id='7'/>")
            self.device.send(self._fill(text))
            other.expect("<iq type='error' id='7'><error type='cancel'/></iq>")

    def _jid(self) -> str:
        found = re.search(r"pump1@gw\.example/fw/\w+", GUIDE)
        assert found is not None
        return found[0]


def test_the_guides_stanzas_get_the_documented_answers(gateway: Gateway, process: Process) -> None:
    with closing(Player(gateway, process)) as player:
        for one in BLOCKS[1:]:
            if one.sender == "device":
                player.send(one.text)
                continue
            player.receive(one.text)
            assert player.device.largest < KIB
            if "id='1001'" in one.text:
                assert player.device.sent < KIB
                assert player.device.received < 2 * KIB
    found = [(e["name"], e["value"]) for e in gateway.events("readings")]
    assert found == [("temp", 21.5), ("rpm", 1450.0), ("litres", 8731.0), ("rssi", -67.0)]


def test_stanzas_repeated_after_a_lost_connection_are_handled_once(
    gateway: Gateway, process: Process
) -> None:
    """The connection is lost before the answers to a level 2 message's two steps are read."""
    offer, deliver = block("<assured"), block("<deliver")
    offer, deliver = (text.replace("1002", "2002") for text in (offer, deliver))
    offer = offer.replace("litres", "again")
    with closing(Player(gateway, process)) as player:
        for step in (offer, deliver):
            for repeated in (False, True):
                player.connect(block("mechanism='EXTERNAL'"))
                for _ in range(3):
                    player.device.element()
                player.device.send(step)
                if repeated:
                    player.device.expect("<iq type='result' id='2002'/>")
                else:
                    player.device.send("<iq type='get' id='p'><ping xmlns='urn:xmpp:ping'/></iq>")
                    while (found := player.device.element()) is not None:
                        if found.get("id") == "p":
                            break
    assert [e["value"] for e in gateway.events("readings") if e["name"] == "again"] == [8731.0]


def test_stanzas_before_authentication_end_the_stream(gateway: Gateway, process: Process) -> None:
    with closing(Device(gateway, process)) as device:
        device.send(HEADER + block("mechanism='EXTERNAL'") + block("<acknowledged"))
        ends = [found for found in iter(device.element, None) if found.tag == f"{STREAMS}error"]
    assert [end[0].tag.partition("}")[2] for end in ends] == ["policy-violation"]


@pytest.mark.parametrize("version", ["-tls1_2", "-tls1_3"])
def test_the_gateway_respects_a_maximum_fragment_length(
    gateway: Gateway, process: Process, version: str
) -> None:
    """The certificate and the stream's features are longer, and come in several records."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl")
    host, port = process.host_port("xmpps")
    words = ("-connect", f"{host}:{port}", "-servername", DOMAIN, "-CAfile", gateway.ca)
    with subprocess.Popen(
        ["openssl", "s_client", *words, "-maxfraglen", "512", "-msg", version],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as client:
        assert client.stdin is not None
        assert client.stdout is not None
        client.stdin.write(HEADER.encode() + b"</stream:stream>")
        client.stdin.flush()
        with contextlib.suppress(subprocess.TimeoutExpired):
            client.wait(WAIT_S)
        client.kill()
        out = client.stdout.read().decode(errors="replace")
    assert "</stream:features>" in out
    headers = re.findall(r"<<< .+RecordHeader.+\n +((?:\w\w ?){5})", out)
    sizes = [int(header.replace(" ", "")[6:], 16) for header in headers]
    assert 512 <= max(sizes) <= 512 + 24  # with an authentication tag and a nonce
