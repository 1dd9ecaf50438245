from __future__ import annotations

from collections.abc import Callable

import pytest
import scramp.utils
from hypothesis import example, given
from hypothesis import strategies as st
from scramp import ScramException
from slixmpp.jid import JID, InvalidJID

from edge import credentials, jid
from edge.credentials import PasswordError
from edge.jid import JidError

ASCII = "".join(map(chr, range(128)))
LENGTHS = st.integers(0, 1100)
LOCAL = st.text("abz019_.+=~!#$%^*()-@/ A\u00e4", max_size=6)
DOMAIN = st.text("abz019.-xn[]:A\u00e4", max_size=10)
RESOURCE = st.text("az/@ A'\"<\u00e4\u2168\x7f", max_size=5)
ADDRESSES = st.one_of(
    st.builds("{}@{}/{}".format, LOCAL, DOMAIN, RESOURCE),
    st.builds("{}@{}".format, LOCAL, DOMAIN),
    st.builds("{}/{}".format, DOMAIN, RESOURCE),
    st.builds("a@xn--{}".format, DOMAIN),
    DOMAIN,
    st.text(max_size=20),
    st.text(ASCII, max_size=20),
    st.builds("{}@{}".format, LOCAL, st.text("XxNnA-.1", min_size=1, max_size=12)),
)


@given(ADDRESSES)
@example("0..")
@example("a@00--0")
@example("a@b.ab--c/d")
@example("a@0---0")
def test_addresses_equal_those_of_slixmpp(text: str) -> None:
    _compare(text)


def _compare(text: str) -> None:
    """Compare the normalisation of an address with slixmpp's, which prepares resources that are not
    ASCII by the profile before PRECIS."""
    bare, slash, resource = text.partition("/")
    if not resource.isascii():
        prepared, own = _outcome(jid.prepare_resource, resource), _outcome(_parse_full, text)
        rest = _outcome(_parse_full, bare)
        assert own == (f"{rest}/{prepared}" if rest and prepared else None)
        if own:
            assert _parse_full(own) == own
        _compare(bare)
        return
    if bare.endswith(".."):  # slixmpp drops one full stop more
        with pytest.raises(JidError):
            jid.parse(text)
        return
    try:
        theirs = JID(bare.removesuffix(".") + slash + resource)
    except (InvalidJID, UnicodeEncodeError):
        with pytest.raises(JidError):
            jid.parse(text)
        return
    unstable = JID(theirs.full) != theirs  # normalising again gives another result
    if not theirs.domain or theirs.domain.endswith(".") or unstable:  # empty, or not normalised
        with pytest.raises(JidError):
            jid.parse(text)
        return
    ours = jid.parse(text)
    assert ours == (theirs.local, theirs.domain, theirs.resource)
    assert ours.full == theirs.full
    assert ours.bare == theirs.bare
    assert jid.parse(ours.full) == ours


def _parse_full(text: str) -> str:
    return jid.parse(text).full


@given(
    st.one_of(st.text(ASCII, max_size=8), st.builds(str.__mul__, st.sampled_from(ASCII), LENGTHS))
)
def test_ascii_parts_equal_those_of_slixmpp(text: str) -> None:
    _compare_parts(text)


def test_each_ascii_character_equals_that_of_slixmpp() -> None:
    for character in ASCII:
        for text in (character, f"{character}a", f"a{character}", f"a{character}B"):
            _compare_parts(text)
            for address in (f"{text}@b", f"{text}@B.c/d", f"a@{text}", f"b/{text}"):
                _compare(address)


def test_each_ascii_length_equals_that_of_slixmpp() -> None:
    for length in (0, 1, 2, 62, 63, 64, 252, 253, 254, 1022, 1023, 1024, 1025):
        for text in ("a" * length, "A" * length, ("b." * length)[:length]):
            _compare_parts(text)
            for address in (f"{text}@b", f"a@{text}", f"{text}", f"a@{text}/c", f"b/{text}"):
                _compare(address)


def _compare_parts(text: str) -> None:
    """Compare the normalisation of a local part and of a resource with slixmpp's."""
    local = _theirs(f"{text}@localhost")
    if local is not None and (local.domain, local.resource) != ("localhost", ""):
        local = None
    assert _outcome(jid.prepare_local, text) == (local.local or None if local else None)
    resource = _theirs(f"localhost/{text}")
    assert _outcome(jid.prepare_resource, text) == (resource.resource if resource else None)


def _theirs(address: str) -> JID | None:
    try:
        return JID(address)
    except InvalidJID:
        return None


def _outcome(prepare: Callable[[str], str], text: str) -> str | None:
    try:
        return prepare(text)
    except JidError:
        return None


@given(st.text(max_size=30))
def test_prepared_passwords_equal_those_of_scramp(password: str) -> None:
    try:
        theirs = scramp.utils.saslprep(password)
    except (ScramException, UnicodeEncodeError):
        theirs = ""
    if not theirs:
        with pytest.raises(PasswordError):
            credentials.prepare(password)
    else:
        assert credentials.prepare(password) == theirs
