"""A second protocol beside XMPP: lines of words, added by this folder and by registration alone."""
