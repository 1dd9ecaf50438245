"""Preparation of strings by the profile OpaqueString (RFC 8265, section 4.2), which RFC 7622 uses
for resources.

The profile keeps case and compatibility characters; it replaces spaces by the ASCII space, composes
characters (NFC), and allows the characters of the FreeformClass (RFC 8264, section 4.3). This is
known for the Unicode version of the running Python.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Final

_ALLOWED_CATEGORIES: Final = frozenset(
    {
        "Ll", "Lu", "Lo", "Nd", "Lm", "Mn", "Mc",  # LetterDigits (RFC 8264, section 9.1)
        "Lt", "Nl", "No", "Me",  # OtherLetterDigits (section 9.18)
        "Zs", "Sm", "Sc", "Sk", "So",  # Spaces and Symbols (sections 9.14 and 9.15)
        "Pc", "Pd", "Ps", "Pe", "Pi", "Pf", "Po",  # Punctuation (section 9.16)
    }
)  # fmt: skip
_DISALLOWED_RANGES: Final = (
    # Exceptions (section 9.6)
    (0x0640, 0x0640), (0x07FA, 0x07FA), (0x302E, 0x302F), (0x3031, 0x3035), (0x303B, 0x303B),
    # OldHangulJamo (section 9.9)
    (0x1100, 0x11FF), (0xA960, 0xA97C), (0xD7B0, 0xD7C6), (0xD7CB, 0xD7FB),
    # PrecisIgnorableProperties (section 9.13); noncharacters are unassigned
    (0x00AD, 0x00AD), (0x034F, 0x034F), (0x061C, 0x061C), (0x17B4, 0x17B5), (0x180B, 0x180F),
    (0x200B, 0x200B), (0x200E, 0x200F), (0x202A, 0x202E), (0x2060, 0x206F), (0x3164, 0x3164),
    (0xFE00, 0xFE0F), (0xFEFF, 0xFEFF), (0xFFA0, 0xFFA0), (0xFFF0, 0xFFF8), (0x1BCA0, 0x1BCA3),
    (0x1D173, 0x1D17A), (0xE0000, 0xE0FFF),
)  # fmt: skip
_DISALLOWED: Final = re.compile(
    "[" + "".join(f"{chr(first)}-{chr(last)}" for first, last in _DISALLOWED_RANGES) + "]"
)
_VIRAMA: Final = 9
"""Canonical combining class of a virama."""
_ARABIC_INDIC: Final = frozenset(map(chr, range(0x0660, 0x066A)))
_EXTENDED_ARABIC_INDIC: Final = frozenset(map(chr, range(0x06F0, 0x06FA)))
_KANA_OR_HAN: Final = ("HIRAGANA", "KATAKANA", "CJK UNIFIED", "CJK COMPATIBILITY IDEOGRAPH")


class PrecisError(ValueError):
    """A string is not valid under the profile."""


def prepare_opaque(text: str) -> str:
    """Prepare a string by the profile OpaqueString.

    A zero-width non-joiner is allowed only after a virama, although RFC 5892, appendix A.1, allows
    it between joining letters, too: Python does not know which letters join.

    Raises:
        PrecisError: the string is empty or has a character that is not allowed where it stands.
    """
    spaced = "".join(" " if unicodedata.category(one) == "Zs" else one for one in text)
    prepared = unicodedata.normalize("NFC", spaced)
    if not prepared:
        raise PrecisError("the text is empty")
    disallowed = _DISALLOWED.search(prepared)
    if disallowed is not None:
        raise _not_allowed(disallowed[0])
    for index, one in enumerate(prepared):
        rule = _CONTEXT_RULES.get(one)
        if rule is not None:
            allowed = rule(prepared, index)
        else:
            allowed = unicodedata.category(one) in _ALLOWED_CATEGORIES
        if not allowed:
            raise _not_allowed(one)
    return prepared


def _not_allowed(one: str) -> PrecisError:
    return PrecisError(f"the character U+{ord(one):04X} is not allowed here")


def _follows_virama(text: str, index: int) -> bool:
    return index > 0 and unicodedata.combining(text[index - 1]) == _VIRAMA


def _is_between_l(text: str, index: int) -> bool:
    return text[index - 1 : index + 2] == "l\u00b7l" if index else False


def _precedes_greek(text: str, index: int) -> bool:
    return _name(text[index + 1 : index + 2]).startswith("GREEK")


def _follows_hebrew(text: str, index: int) -> bool:
    return index > 0 and _name(text[index - 1]).startswith("HEBREW")


def _is_with_kana_or_han(text: str, _index: int) -> bool:
    return any(one != "\u30fb" and _name(one).startswith(_KANA_OR_HAN) for one in text)


def _has_no_extended_digit(text: str, _index: int) -> bool:
    return _EXTENDED_ARABIC_INDIC.isdisjoint(text)


def _has_no_arabic_digit(text: str, _index: int) -> bool:
    return _ARABIC_INDIC.isdisjoint(text)


def _name(one: str) -> str:
    return unicodedata.name(one, "") if one else ""


_CONTEXT_RULES: Final[Mapping[str, Callable[[str, int], bool]]] = {
    "\u200c": _follows_virama,
    "\u200d": _follows_virama,
    "\u00b7": _is_between_l,
    "\u0375": _precedes_greek,
    "\u05f3": _follows_hebrew,
    "\u05f4": _follows_hebrew,
    "\u30fb": _is_with_kana_or_han,
    **dict.fromkeys(_ARABIC_INDIC, _has_no_extended_digit),
    **dict.fromkeys(_EXTENDED_ARABIC_INDIC, _has_no_arabic_digit),
}
"""Rules of characters that are allowed in some places only (RFC 5892, appendix A)."""
