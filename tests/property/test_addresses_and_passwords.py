"""Properties of addresses and passwords, compared with other implementations."""

from __future__ import annotations

import pytest
import scramp.utils
from hypothesis import given
from hypothesis import strategies as st
from scramp import ScramException
from slixmpp.jid import JID, InvalidJID

from edge import credentials
from edge.credentials import PasswordError
from edge.xmpp import jid
from edge.xmpp.jid import JidError

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
)


@given(ADDRESSES)
def test_addresses_equal_those_of_slixmpp(text: str) -> None:
    bare, slash, resource = text.partition("/")
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
