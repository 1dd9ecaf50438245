"""Topic aliases in both directions (MQTT 5.0, section 3.3.2.3.4); they end with the connection."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from edge.mqtt.packets import Property, Publish, PubRel

MOST: Final = 16
"""Maximum aliases of a connection in each direction: their topics are kept in memory."""


class UnknownAlias(Exception):
    """A publication has an alias that stands for no topic, or one above `MOST`."""


class ReceivedAliases:
    """The aliases that a client has set.

    Args:
        max_bytes: maximum bytes of a topic that is kept. A longer one is no name of a node, so a
            later publication with its alias alone is refused, too.
    """

    __slots__ = ("_max_bytes", "_topics")

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._topics: dict[int, str] = {}

    def resolve(self, packet: Publish) -> Publish:
        """Return a publication with its topic; raises `UnknownAlias`."""
        alias = packet.properties.get(Property.TOPIC_ALIAS)
        if alias is None:
            return packet
        if alias > MOST:
            raise UnknownAlias
        if packet.topic:
            self._topics.pop(alias, None)
            if len(packet.topic.encode()) <= self._max_bytes:
                self._topics[alias] = packet.topic
            return packet
        if alias not in self._topics:
            raise UnknownAlias
        return replace(packet, topic=self._topics[alias])


class SentAliases:
    """The aliases by which a client knows topics: those of the first topics that it is sent.

    A publication that sets an alias may not be sent in the end, so an alias is used only after
    `confirm`.

    Args:
        most: the maximum number that the client accepts.
    """

    __slots__ = ("_aliases", "_most", "_proposed")

    def __init__(self, most: int) -> None:
        self._most = min(most, MOST)
        self._aliases: dict[str, int] = {}
        self._proposed = ""

    def shorten(self, packet: Publish | PubRel) -> Publish | PubRel:
        """Return a publication with an alias in place of its topic, or with both if the client does
        not know the alias yet; unchanged if all aliases are in use, or if it is no publication."""
        self._proposed = ""  # by a packet that was not sent
        if isinstance(packet, PubRel):
            return packet
        alias = self._aliases.get(packet.topic)
        if alias is not None:
            topic = ""
        elif len(self._aliases) < self._most:
            alias, topic = len(self._aliases) + 1, packet.topic
            self._proposed = topic
        else:
            return packet
        properties = {**packet.properties, Property.TOPIC_ALIAS: alias}
        return replace(packet, topic=topic, properties=properties)

    def confirm(self) -> None:
        """Record that the last publication is sent."""
        if self._proposed:
            self._aliases[self._proposed] = len(self._aliases) + 1
            self._proposed = ""
