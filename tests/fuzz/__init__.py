"""Fuzzing: what strangers may send, searched for what breaks a promise.

`fuzz_NAME.py` is a target: `check(data)` raises if any promise is broken, and is a plain function
of bytes. `make fuzz` searches with atheris, guided by coverage; `test_corpus.py` replays what is
kept without it. `corpus/NAME/` holds where the search begins and what it found once.
"""
