"""One feature, one file: a stanza to a unit of work, and to what is sent when it is committed.

A feature registers itself: each module here that has a `FEATURE` is found by `router`.
"""
