"""Generate the events about sessions of devices, which use XMPP or a version of MQTT."""

from __future__ import annotations

from heapq import merge
from operator import itemgetter
from typing import TYPE_CHECKING, Final

from firmware_sim.fleet.plan import VERSIONS
from firmware_sim.fleet.rows import Stream, event_at
from firmware_sim.fleet.sensors import SORTS, device

if TYPE_CHECKING:
    from firmware_sim.fleet.plan import Plan

_PROTOCOLS: Final[tuple[dict[str, str], ...]] = (
    {},  # XMPP, which events do not name
    {"protocol": "mqtt", "version": "3.1.1"},
    {"protocol": "mqtt", "version": "5.0"},
    {"protocol": "mqtt", "version": "5.0", "transport": "websocket"},
)
_REASONS: Final = ("closed", "lost", "not-resumed", "keep_alive_timeout", "replaced")
_LASTS_S: Final = 6 * 3_600.0  # seconds between two events about the sessions of a device, at most
_MOST: Final = 3  # sessions that an event counts


def session_events(plan: Plan) -> Stream:
    """Generate all events about sessions in order. A gateway of the first version knows XMPP alone;
    once it is updated, devices with a different protocol change to that.
    """
    return merge(*(_sessions(plan, place) for place in range(len(SORTS))), key=itemgetter(0))


def _sessions(plan: Plan, place: int) -> Stream:
    dice = plan.chance(f"sessions {place}")
    source = device(plan, place).partition("/")[0]
    moment = dice.uniform(0, _LASTS_S)
    while moment < plan.settings.length:
        is_old = plan.life.at(moment).version == VERSIONS[0]
        protocol = {} if is_old else _PROTOCOLS[place % len(_PROTOCOLS)]
        for name, tags in (("began", {}), ("ended", {"reason": dice.choice(_REASONS)})):
            number, ago = dice.randint(1, _MOST), dice.randint(0, 60)
            yield event_at(
                plan,
                moment,
                "session",
                name,
                source=source,
                value=float(number),
                level="Informational",
                tags=protocol | tags | {"ago_s": str(ago)},
            )
        moment += dice.uniform(0.5, 1.0) * _LASTS_S
