from __future__ import annotations

import re
import time

import pytest
import scramp.utils
from scramp import ScramMechanism

from edge import credentials
from edge.credentials import PasswordError


@pytest.mark.parametrize(
    "password", ["pencil", "a b", "p\u00e4ss\u00a0w\u00f6rt", "\u2168", "x" * 1024]
)
def test_keys_equal_those_of_another_implementation(password: str) -> None:
    for keys in credentials.derive(password):
        info = ScramMechanism(keys.mechanism).make_auth_info(password, keys.iterations, keys.salt)
        assert info == (keys.salt, keys.stored_key, keys.server_key, keys.iterations)
        assert credentials.verify(password, keys)
        assert not credentials.verify(password + "x", keys)
        assert not credentials.verify("", keys)


def test_salts_are_random() -> None:
    derived = [*credentials.derive("pencil"), *credentials.derive("pencil")]
    assert [keys.mechanism for keys in derived] == ["SCRAM-SHA-256", "SCRAM-SHA-1"] * 2
    assert len({keys.salt for keys in derived}) == 4
    assert len({keys.stored_key for keys in derived}) == 4
    assert {len(keys.salt) for keys in derived} == {credentials.SALT_BYTES}


def test_iterations_are_limited() -> None:
    assert credentials.derive("x", 5000)[0].iterations == 5000
    for iterations in (0, 4095, credentials.MAX_ITERATIONS + 1):
        with pytest.raises(ValueError, match="iterations"):
            credentials.derive("x", iterations)


@pytest.mark.parametrize(
    ("password", "prepared"),
    [  # the examples of RFC 4013, section 3, and others
        ("I\u00adX", "IX"), ("user", "user"), ("USER", "USER"), ("\u00aa", "a"), ("\u2168", "IX"),
        ("a\u3000b", "a b"), ("\u0627\u0661\u0628", "\u0627\u0661\u0628"),
    ],
)  # fmt: skip
def test_saslprep(password: str, prepared: str) -> None:
    assert credentials.prepare(password) == prepared
    assert scramp.utils.saslprep(password) == prepared


@pytest.mark.parametrize(
    "password",
    [
        "", "\u00ad", "\x07", "a\0", "\u0627\u0031", "a\u0627", "\u0627a\u0628", "\u0221",
        "\ud800", "\ue000", "x" * 1025, "\u00e4" * 513, "\u00e4" * 1025,
    ],
)  # fmt: skip
def test_invalid_passwords_are_refused(password: str) -> None:
    with pytest.raises(PasswordError):
        credentials.prepare(password)
    with pytest.raises(PasswordError):
        credentials.derive(password)
    assert not credentials.verify(password, credentials.derive("pencil")[0])


@pytest.mark.parametrize("mechanism", credentials.MECHANISMS)
def test_decoys_are_stable_and_plausible(mechanism: str) -> None:
    secret = b"s" * 16
    real = next(keys for keys in credentials.derive("x") if keys.mechanism == mechanism)
    decoy = credentials.decoy("nobody", secret, mechanism)
    assert decoy == credentials.decoy("nobody", secret, mechanism)
    shapes = [
        (keys.mechanism, keys.iterations, *map(len, (keys.salt, keys.stored_key, keys.server_key)))
        for keys in (decoy, real)
    ]
    assert shapes[0] == shapes[1]
    others = [
        credentials.decoy("nobody2", secret, mechanism),
        credentials.decoy("nobody", b"t" * 16, mechanism),
        *(credentials.decoy("nobody", secret, name) for name in credentials.MECHANISMS
          if name != mechanism),
    ]  # fmt: skip
    for other in others:
        assert other.salt != decoy.salt
        assert other.stored_key != decoy.stored_key
    assert len({decoy.salt, decoy.stored_key[:16], decoy.server_key[:16]}) == 3
    assert not credentials.verify("x", decoy)


def test_a_decoy_takes_as_long_as_an_account() -> None:
    """The time until the challenge must not reveal whether there is an account."""
    real, _ = credentials.derive("x")

    def shortest_time(stored: credentials.Credentials | None) -> int:
        """Return the shortest of many durations in ns, because other processes only add to it."""
        times = []
        for _ in range(500):
            began = time.perf_counter_ns()
            chosen = credentials.or_decoy(stored, "pump1", b"s" * 16, real.mechanism)
            times.append(time.perf_counter_ns() - began)
            assert chosen == stored or stored is None
        return min(times)

    assert credentials.or_decoy(real, "pump1", b"s" * 16, real.mechanism) is real
    decoy = credentials.or_decoy(None, "pump1", b"s" * 16, real.mechanism)
    assert decoy == credentials.decoy("pump1", b"s" * 16, real.mechanism)
    assert 0.5 < shortest_time(real) / shortest_time(None) < 2


def test_generated_passwords() -> None:
    passwords = {credentials.generate_password() for _ in range(100)}
    assert len(passwords) == 100
    for password in passwords:
        assert re.fullmatch(r"[a-hjkmnp-z2-9]{3}(-[a-hjkmnp-z2-9]{3}){8}", password)
        assert credentials.prepare(password) == password
    assert len(credentials._ALPHABET) ** 27 > 2**128
