"""The items of a stream as they go from one process to another, as arrays of MessagePack.

mypyc does not compile this module, because a compiled class no longer has the types of its fields,
which msgspec checks. `transfer` turns items into these and back.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec


class Tree(msgspec.Struct, array_like=True, gc=False):
    """An element with its text and its children, as `Child.parsed` has it."""

    tag: str
    attrib: dict[str, str]
    text: str | None
    tail: str | None
    children: list[Tree]


class Part(msgspec.Struct, array_like=True, gc=False):
    """An element in a stanza: `Child`. `is_known` says whether its bytes are self-contained."""

    name: str
    attrs: dict[str, str]
    start: int
    stop: int
    is_known: bool
    parsed: Tree | None
    children: list[Part]


class Header(msgspec.Struct, array_like=True, tag=1, gc=False):
    """The header of the stream to which the stanzas that follow belong: `StreamHeader`."""

    raw: bytes
    prefixes: tuple[bytes, ...]
    lang: str


class Whole(msgspec.Struct, array_like=True, tag=2, gc=False):
    """A `Stanza`, or an `OversizedStanza` if `excess` names a limit."""

    name: str
    attrs: dict[str, str]
    raw: bytes
    children: list[Part]
    excess: str


class Open(msgspec.Struct, array_like=True, tag=3, gc=False):
    """`StreamOpen`."""

    name: str
    attrs: dict[str, str]
    namespace: str
    prefixed: bool


class Close(msgspec.Struct, array_like=True, tag=4, gc=False):
    """`StreamClose`."""


class Error(msgspec.Struct, array_like=True, tag=5, gc=False):
    """`StreamError`."""

    condition: str
    text: str


Transferred: TypeAlias = Header | Whole | Open | Close | Error

encode: Final = msgspec.msgpack.Encoder().encode
decode: Final = msgspec.msgpack.Decoder(list[Transferred]).decode
