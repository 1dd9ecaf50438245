"""Rights by topic (`[[access]]`): to which topics a device may publish and subscribe.

The first rule whose pattern matches the device decides. In its filters, `%u` is the device and `%c`
the client identifier. A filter is ignored if such a value is missing or would change its levels or
wildcards, so that no device gains rights by its name or its client's.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from fnmatch import fnmatchcase
from typing import Final, NamedTuple

from edge.topics import matches

_PLACEHOLDER: Final = re.compile("%[uc]")
_UNFIT: Final = re.compile(r"\$|.*[/+#]", re.DOTALL)


class Right(Enum):
    """A right of a device at a topic; the value is the option of its filters."""

    __hash__ = object.__hash__  # `Enum.__hash__` is slow: it is written in Python

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"


class TopicRule(NamedTuple):
    """A rule: the name or pattern of devices, and the filters of each right."""

    device: str
    publish: Sequence[str]
    subscribe: Sequence[str]


class TopicRights(NamedTuple):
    """The rights of a device: the number of the rule that decides, from 1, and its filters without
    placeholders. Without a rule, the number is 0 and there are no filters."""

    rule: int = 0
    publish: Sequence[str] = ()
    subscribe: Sequence[str] = ()

    def grant(self, right: Right, topic: str) -> str | None:
        """Return the filter that grants a right to a topic or to all topics of a filter, or
        `None`."""
        filters = self.publish if right is Right.PUBLISH else self.subscribe
        for filter in filters:
            if matches(filter, topic):
                return filter
        return None


def rights(rules: Iterable[TopicRule], device: str, client: str) -> TopicRights:
    """Return the rights of a device, given by name, and a client identifier, empty if unknown."""
    values = {"%u": device, "%c": client}
    for number, rule in enumerate(rules, 1):
        if rule.device == device or fnmatchcase(device, rule.device):
            publish, subscribe = (tuple(_fill(f, values)) for f in (rule.publish, rule.subscribe))
            return TopicRights(number, publish, subscribe)
    return TopicRights()


def _fill(filters: Iterable[str], values: Mapping[str, str]) -> Iterator[str]:
    """Replace the placeholders in filters, and leave out filters with an unfit value."""
    for filter in filters:
        used = [values[name] for name in _PLACEHOLDER.findall(filter)]
        if all(value and not _UNFIT.match(value) for value in used):
            yield _PLACEHOLDER.sub(lambda found: values[found[0]], filter)
