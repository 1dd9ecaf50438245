"""Fuzzing of the gateway's input handling.

`fuzz_NAME.py` is a target: `check(data)` raises if a promise is broken. `make fuzz` runs a
coverage-guided search with atheris; `test_corpus.py` replays the corpora without it.
"""
