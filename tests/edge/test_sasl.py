from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import replace

import pytest
from scramp import ScramClient, ScramException

from edge import credentials, sasl
from edge.credentials import Credentials
from edge.sasl import ExternalExchange, PlainExchange, SaslFailure, ScramExchange

VECTORS = {
    "SCRAM-SHA-1": (  # RFC 5802, section 5
        b"n,,n=user,r=fyko+d2lbbFgONRv9qkxdawL",
        "3rfcNHYJY1ZVvWVs7j",
        "QSXCR+Q6sek8bf92",
        b"r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,s=QSXCR+Q6sek8bf92,i=4096",
        b"c=biws,r=fyko+d2lbbFgONRv9qkxdawL3rfcNHYJY1ZVvWVs7j,p=v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
        b"v=rmF9pqV8S7suAoZWja4dJRkFsKQ=",
    ),
    "SCRAM-SHA-256": (  # RFC 7677, section 3
        b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO",
        "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        "W22ZaJ0SNY7soEsUEjb6gQ==",
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ),
}
KEYS = {keys.mechanism: keys for keys in credentials.derive("pencil")}


def credentials_of(mechanism: str, salt: str) -> Credentials:
    return credentials._keys("pencil", mechanism, base64.b64decode(salt), 4096)


def begin_scram(mechanism: str, initial: bytes, nonce: str | None = None) -> ScramExchange:
    exchange = sasl.begin(mechanism, initial, nonce)
    assert isinstance(exchange, ScramExchange)
    return exchange


@pytest.mark.parametrize("mechanism", VECTORS)
def test_vectors_of_the_rfcs(mechanism: str) -> None:
    first, nonce, salt, challenge, final, success = VECTORS[mechanism]
    exchange = begin_scram(mechanism, first, nonce)
    with pytest.raises(RuntimeError):
        exchange.finish(final)
    keys = credentials_of(mechanism, salt)
    assert exchange.challenge(keys) == challenge
    assert (exchange.username, exchange.authzid, exchange.mechanism) == ("user", "", mechanism)
    assert exchange.finish(final) == success
    with pytest.raises(RuntimeError):
        exchange.finish(final)


@pytest.mark.parametrize("mechanism", VECTORS)
def test_a_proof_cannot_be_replayed(mechanism: str) -> None:
    first, _, salt, _, final, _ = VECTORS[mechanism]
    exchange = begin_scram(mechanism, first)
    exchange.challenge(credentials_of(mechanism, salt))
    with pytest.raises(SaslFailure, match="not-authorized"):
        exchange.finish(final)


@pytest.mark.parametrize("mechanism", VECTORS)
def test_nonces_are_fresh(mechanism: str) -> None:
    first = VECTORS[mechanism][0]
    sent = {begin_scram(mechanism, first).challenge(KEYS[mechanism]) for _ in range(20)}
    assert len(sent) == 20


def scramp_against(mechanism: str, name: str, password: str, keys: Credentials) -> None:
    client = ScramClient([mechanism], name, password)
    exchange = begin_scram(mechanism, client.get_client_first().encode())
    assert exchange.username == name
    client.set_server_first(exchange.challenge(keys).decode())
    client.set_server_final(exchange.finish(client.get_client_final().encode()).decode())


@pytest.mark.parametrize("mechanism", VECTORS)
def test_scramp_logs_in(mechanism: str) -> None:
    scramp_against(mechanism, "us=er,\u00e9", "pencil", KEYS[mechanism])
    with pytest.raises(SaslFailure, match="not-authorized"):
        scramp_against(mechanism, "user", "pen", KEYS[mechanism])
    impostor = replace(KEYS[mechanism], server_key=b"x" * 32)
    with pytest.raises(ScramException):
        scramp_against(mechanism, "user", "pencil", impostor)


@pytest.mark.parametrize("mechanism", VECTORS)
def test_an_unknown_account_fails_at_the_proof(mechanism: str) -> None:
    challenges = []
    for _ in range(2):
        keys = credentials.decoy("nobody", b"s" * 16, mechanism)
        client = ScramClient([mechanism], "nobody", "pencil")
        exchange = begin_scram(mechanism, client.get_client_first().encode())
        challenge = exchange.challenge(keys).decode()
        challenges.append(challenge.partition(",")[2])
        client.set_server_first(challenge)
        with pytest.raises(SaslFailure, match="not-authorized"):
            exchange.finish(client.get_client_final().encode())
    assert challenges[0] == challenges[1]


def test_channel_binding_flags() -> None:
    for header in (b"n,,", b"y,,"):
        client_first = header + b"n=user,r=abc"
        exchange = begin_scram("SCRAM-SHA-256", client_first)
        challenge = exchange.challenge(KEYS["SCRAM-SHA-256"])
        assert exchange.finish(prove("SCRAM-SHA-256", header, challenge))


def prove(mechanism: str, header: bytes, challenge: bytes, extension: bytes = b"") -> bytes:
    """Return the client's final message for the password `pencil` (RFC 5802, section 3)."""
    parts = dict(part.split(b"=", 1) for part in challenge.split(b","))
    algorithm = credentials.MECHANISMS[mechanism]
    salt = base64.b64decode(parts[b"s"])
    salted = hashlib.pbkdf2_hmac(algorithm, b"pencil", salt, int(parts[b"i"]))

    def mac(key: bytes, text: bytes) -> bytes:
        return hmac.new(key, text, algorithm).digest()

    client_key = mac(salted, b"Client Key")
    stored_key = hashlib.new(algorithm, client_key).digest()
    unproved = b"c=" + base64.b64encode(header) + b",r=" + parts[b"r"] + extension
    signature = mac(stored_key, b"n=user,r=abc," + challenge + b"," + unproved)
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return unproved + b",p=" + base64.b64encode(proof)


def final(**change: bytes) -> tuple[ScramExchange, bytes]:
    exchange = begin_scram("SCRAM-SHA-256", b"n,,n=user,r=abc")
    challenge = exchange.challenge(KEYS["SCRAM-SHA-256"])
    header = change.get("header", b"n,,")
    return exchange, prove("SCRAM-SHA-256", header, challenge, change.get("extension", b""))


def test_an_extension_is_ignored() -> None:
    exchange, message = final(extension=b",x=y")
    assert exchange.finish(message)


def test_wrong_proofs_fail() -> None:
    exchange, message = final(header=b"y,,")
    with pytest.raises(SaslFailure, match="not-authorized"):
        exchange.finish(message)
    for keep, add in ((31, b""), (32, b"x"), (1, b""), (0, b"x" * 32)):
        exchange, message = final()
        unproved, _, proof = message.partition(b",p=")
        changed = base64.b64encode(base64.b64decode(proof)[:keep] + add)
        with pytest.raises(SaslFailure, match="not-authorized"):
            exchange.finish(unproved + b",p=" + changed)
    exchange, message = final()
    with pytest.raises(SaslFailure, match="not-authorized"):
        exchange.finish(message.replace(b"r=abc", b"r=abd"))


@pytest.mark.parametrize(
    ("message", "condition"),
    [
        (b"", "malformed-request"),
        (b"\xff", "malformed-request"),
        (b"r=abc,c=biws,p=YQ==", "malformed-request"),
        (b"c=biws,r=abc", "malformed-request"),
        (b"c=biws,r=a\0c,p=YQ==", "malformed-request"),
        (b"c=biws,r=abc,p=Y", "incorrect-encoding"),
        (b"c=b=iws,r=abc,p=YQ==", "incorrect-encoding"),
    ],
)
def test_malformed_final_messages_fail(message: bytes, condition: str) -> None:
    exchange, _ = final()
    with pytest.raises(SaslFailure) as error:
        exchange.finish(message)
    assert error.value.condition == condition


@pytest.mark.parametrize(
    ("mechanism", "initial", "condition"),
    [
        *(("SCRAM-SHA-256", initial, "malformed-request") for initial in (
            b"", b"n=user,r=abc", b"n,,r=abc,n=user", b"n,,n=user", b"n,,n=,r=abc", b"n,,n=user,r=",
            b"n,,m=x,n=user,r=abc", b"x,,n=user,r=abc", b"n,a=,n=user,r=abc",
            b"n,,n=u=2Xser,r=abc", b"n,,n=u=,r=abc", b"n,,n=u\0,r=abc", b"n,,n=user,r=a b",
            b"n,,n=user,r=abc,x", b"\xff", b"n,b=x,n=user,r=abc", b"n,,n=us,er,r=abc",
            b"n,a==,n=user,r=abc")),
        ("SCRAM-SHA-256", b"p=tls-exporter,,n=user,r=abc", "malformed-request: channel binding"),
        *(("PLAIN", initial, "malformed-request") for initial in (
            b"", b"user\0pass", b"\0\0pass", b"\0user\0", b"a\0b\0c\0d", b"\0\xff\0x")),
        *(("EXTERNAL", initial, "malformed-request") for initial in (b"a\0b", b"\xff")),
        *((name, b"n,,n=user,r=abc", "invalid-mechanism")
          for name in ("", "plain", "SCRAM-SHA-256-PLUS", "DIGEST-MD5")),
    ],
)  # fmt: skip
def test_invalid_first_messages_fail(mechanism: str, initial: bytes, condition: str) -> None:
    with pytest.raises(SaslFailure, match=condition):
        sasl.begin(mechanism, initial)


def test_names_are_unescaped() -> None:
    exchange = begin_scram("SCRAM-SHA-1", b"n,a=x=2Cy,n==3Da=2C=3Db,r=abc,e=x")
    assert (exchange.authzid, exchange.username) == ("x,y", "=a,=b")


def test_credentials_must_be_for_the_mechanism() -> None:
    exchange = begin_scram("SCRAM-SHA-1", b"n,,n=user,r=abc")
    with pytest.raises(ValueError, match="for SCRAM-SHA-1"):
        exchange.challenge(KEYS["SCRAM-SHA-256"])


def test_plain_message() -> None:
    exchange = sasl.begin("PLAIN", "a\0us\u00e9r\0p\u00e4ss".encode())
    assert isinstance(exchange, PlainExchange)
    fields = (exchange.authzid, exchange.username, exchange.password)
    assert fields == ("a", "us\u00e9r", "p\u00e4ss")


def test_base64_is_strict() -> None:
    assert sasl.decode("=") == b""
    assert sasl.decode("YQ==") == b"a"
    assert sasl.encode(b"a") == b"YQ=="
    assert sasl.encode(b"") == b"="
    for wrong in ("Y", "YQ", "YQ=", "YR==", "YQ==YQ==", "Y Q==", "YQ==\n", "\u00e9", "-_==", "=YQ"):
        with pytest.raises(SaslFailure, match="incorrect-encoding"):
            sasl.decode(wrong)
    with pytest.raises(SaslFailure, match="malformed-request"):
        sasl.decode("A" * (sasl.MAX_MESSAGE_BYTES * 4 // 3 + 4))


def test_an_unknown_failure_condition_is_refused() -> None:
    with pytest.raises(ValueError, match="bad-request"):
        SaslFailure("bad-request")
    assert str(SaslFailure("aborted")) == "aborted"


def test_external_message() -> None:
    for authzid in ("", "pump\u00e9@gw.example"):
        exchange = sasl.begin("EXTERNAL", authzid.encode())
        assert isinstance(exchange, ExternalExchange)
        assert exchange.authzid == authzid
