"""The meaning of each event that the gateway itself logs, and what the operator should do.

`docs/reference/events.md` is generated from this table.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class EventDescription(NamedTuple):
    """The meaning of one event, identified by its kind and its name.

    A name in angle brackets stands for a value, such as the name of an option.
    """

    kind: str
    names: tuple[str, ...]
    meaning: str
    action: str = "None."


def _event(kind: str, names: str, meaning: str, action: str = "None.") -> EventDescription:
    return EventDescription(kind, tuple(names.split()), meaning, action)


_IF_IT_WAS_YOU: Final = "None, if an operator did this on purpose."

EVENTS: Final = (
    _event(
        "system",
        "start",
        "The gateway started. `previous` is `clean` or `unclean` (killed, or a power "
        "cut). `off` is the number of seconds for which it was off, and `off_known` the "
        "source of that number. The value is the heartbeat interval in seconds.",
        "Check the power supply if unclean starts are frequent.",
    ),
    _event(
        "system",
        "heartbeat",
        "The gateway is running. The value is the heartbeat interval in seconds.",
    ),
    _event(
        "system",
        "stop",
        "The gateway stopped cleanly. This is the last event of the run.",
    ),
    _event(
        "system",
        "time_off",
        "The clock became synchronised after a start, so the time for which the gateway "
        "was off is now known, and is added to the age of stored messages. `implausible`: "
        "that time exceeds five years and is ignored.",
        "If the time is `implausible`, check the time server.",
    ),
    _event(
        "system",
        "reloaded",
        "The configuration was reloaded: the text names the options that have changed, and the "
        "value is their number. `restart` names those that need a restart.",
        "Restart the gateway if `restart` names an option.",
    ),
    _event(
        "system",
        "clock_stepped",
        "The wall clock was set; the value is the step in seconds.",
        "Nothing, if the gateway has just started without a clock battery. Otherwise find out what "
        "sets the clock.",
    ),
    _event(
        "system",
        "clock_synchronised",
        "The kernel reports that the wall clock is synchronised.",
    ),
    _event(
        "system",
        "clock_lost",
        "The kernel no longer reports the wall clock as synchronised.",
        "If it lasts, check the time server.",
    ),
    _event(
        "system",
        "certificate_expires",
        "A device's certificate expires soon.",
        "Issue a new one: `fieldpost device certificate NAME`.",
    ),
    _event(
        "system",
        "wear",
        "Daily total of what the gateway wrote to its card on `day`: bytes, seconds of "
        "service, database `pages` and `commits`. `cap` is the maximum size of the "
        "database.",
        "See “Flash endurance” in the operator's guide.",
    ),
    _event(
        "system",
        "component_connected component_lost",
        "The link to the XMPP server that this gateway is a component of was established or lost.",
        "If it is lost, check that server.",
    ),
    _event(
        "session",
        "began",
        "Sessions of an account (the source) were bound; the value is their number. "
        "Reported at most every 15 minutes for each account. Resuming a session is not "
        "reported. `ago_s` is the number of seconds since the last session was bound.",
    ),
    _event(
        "session",
        "ended",
        "Sessions of an account ended; the value is their number. `reason` is `closed` by "
        "the device, `lost` connection, `not-resumed` in time, `replaced` by a new "
        "session of the same address, `evicted` to make room, or the stream error that "
        "the device received (`limit` then names the limit).",
        "Check the network link of a device that is often `lost`.",
    ),
    _event(
        "store",
        "full room",
        "`full`: the database accepts no new messages; `rule` and `limit` say why. "
        "`room`: it accepts messages again; the value is the number of seconds for which "
        "it accepted none.",
        "See “Disk space” in the operator's guide.",
    ),
    _event(
        "store",
        "migrated",
        "A newer version of Fieldpost upgraded the database from the version in `from`.",
        "None. Keep the backup from before the upgrade if you may want to go back.",
    ),
    _event(
        "limit",
        "<option>",
        "The limit with this name refused something. The source is an account, an IP "
        "address (IPv6: its /64), `other` when there were too many sources to report "
        "separately, or absent. The value is the number of refusals in the last minute.",
        "Check the source. Raise the limit in `[limits]` only if the load is legitimate.",
    ),
    _event(
        "limit",
        "untrusted no_destination",
        "The source sent to an address that does not accept messages from it, or that "
        "does not exist.",
        "Check `device add --no-trust`, `[xmpp] trust`, the rosters, and the device's "
        "configuration.",
    ),
    _event(
        "limit",
        "malformed unreadable",
        "The source sent a guaranteed message that violates the protocol, or whose "
        "content the destination cannot read. Unreadable messages that were accepted "
        "are kept as dead letters.",
        "Check the device's software.",
    ),
    _event(
        "limit",
        "unknown_msgid msgid_conflict",
        "The source asked for the delivery of a message that the gateway does not hold, or "
        "offered a different message under the msgId of a held message.",
        "Check whether the device lost its storage, or two devices share an address.",
    ),
    _event(
        "limit",
        "msgid_elsewhere",
        "A session asked to deliver a message that another connected session of its account "
        "had offered. This is refused until the other connection ends. It can happen after a "
        "device restarts suddenly: its old connection is still open.",
        "If it happens often, check whether two devices share an account.",
    ),
    _event(
        "limit",
        "nobody_there",
        "A plain message could not be delivered: the recipient is offline and the "
        "message is not stored.",
        "Check `[xmpp] offline`, or `[log] notify` if the source is the gateway.",
    ),
    _event(
        "limit",
        "unfit",
        "A message was not published because the node requires another type or a "
        "payload. Guaranteed messages are kept as dead letters.",
        "Check the device's software or the node's configuration.",
    ),
    _event(
        "limit",
        "item_locked",
        "The source published an item under the id of one that a worker is processing; "
        "the new item was refused.",
        "Check whether two publishers use the same item ids.",
    ),
    _event(
        "limit",
        "password",
        "The source tried to change the password of another account, or its own "
        "account has no password.",
        "Check the device.",
    ),
    _event(
        "limit",
        "destination_gone",
        "A held message was released after its recipient had been removed; it is kept "
        "as a dead letter.",
        "See “Undeliverable messages”.",
    ),
    _event(
        "limit",
        "authentication authentication_limit",
        "A login failed, or was refused without a check because too many had failed. The source is "
        "the IP address (IPv6: the /64; `address` is the whole address). `account` and "
        "`mechanism` are those of the attempt. The text is the reason; it is not sent to the peer. "
        "The first failure of each kind in a minute is logged at once, up to 8 per source; "
        "further failures are counted and logged with the next heartbeat. Details are kept for "
        "at most 32 kinds per source and minute.",
        "Correct the device's password or certificate, or identify the host at that address.",
    ),
    _event(
        "limit",
        "connections authenticate_time tls",
        "A peer that is not logged in was refused; the source is its IP address (IPv6: "
        "its /64). `tls` with a text: the peer refuses the gateway's certificate. The name can "
        "also be that of the stream error that the peer received.",
        "Identify the host at that address. If a device refuses the certificate, give it the "
        "gateway's `pki/ca.pem`.",
    ),
    _event(
        "limit",
        "returned certificate_files server_certificate component component_address "
        "component_unsent",
        "`returned`: messages of an ended session could not be re-routed. `certificate_files`: "
        "a certificate file could not be read. `server_certificate`: the server certificate "
        "could not be renewed. `component`: the link to the server was lost. "
        "`component_address`: a stanza from the server had a wrong address. "
        "`component_unsent`: a stanza to the server was dropped because the link was down.",
        "Check the disk, or the file or link that the event names.",
    ),
    _event(
        "limit",
        "unacknowledged_bytes unacknowledged_total_bytes send_buffer",
        "A session was ended because its client did not read or acknowledge the stanzas that "
        "were sent to it, and they exceeded the limit. Its messages were re-routed.",
        "Check the device.",
    ),
    _event(
        "limit",
        "crowded",
        "A device reads more slowly than the source sends to it. The source got an error; "
        "presence and answers to the device were dropped.",
        "Check the receiving device.",
    ),
    _event(
        "limit",
        "rate",
        "The source exceeded `stanzas_per_second` or `bytes_per_second` and was slowed "
        "down. Nothing was lost.",
        "Check the device if it happens often.",
    ),
    _event(
        "limit",
        "notices",
        "Some events were not sent individually to the accounts in `[log] notify`; the value "
        "is their number.",
        "Read them with `fieldpost events`.",
    ),
    _event(
        "message",
        "repeated",
        "A device repeated an offer or a `deliver` because it had not received the "
        "answer. The repetition changed nothing. The value is the number of "
        "repetitions in the last minute.",
        "If it is frequent, check the device's network link.",
    ),
    _event(
        "message",
        "expired evicted",
        "A held message was removed because its sender never asked for delivery; or a "
        "stored plain message was removed because its recipient did not return in time.",
        "Check the sender, or the recipient in `account`.",
    ),
    _event(
        "message",
        "dead in_doubt",
        "`dead`: a message could not be delivered. `in_doubt`: a message may have been "
        "delivered. The gateway keeps the message as a dead letter.",
        "See “Undeliverable messages”.",
    ),
    _event(
        "message",
        "dead_evicted",
        "There were too many dead letters; the oldest ones of the sender with the most dead "
        "letters were deleted.",
        "Process dead letters earlier, or raise `dead_messages` or `dead_bytes`.",
    ),
    _event(
        "message",
        "requeued dropped",
        "An operator requeued or deleted a dead letter.",
        _IF_IT_WAS_YOU,
    ),
    _event(
        "message",
        "queue_dead share_items_dead",
        "Queue items became dead: delivered too often, expired, or bound to a member that left.",
        "See “Queues”.",
    ),
    _event(
        "message",
        "share_ended",
        "The last member of a shared subscription left, so the shared subscription ended and "
        "its waiting items were deleted; the value is the number of items.",
        "Check the members if they should have stayed.",
    ),
    _event(
        "message",
        "share_lost",
        "A session ended before it received items of shared subscriptions at quality of service 0. "
        "These items are not redelivered.",
        "None. If no item may be lost, let members subscribe at quality of service 1.",
    ),
    _event(
        "message",
        "notifications_dropped",
        "A subscription ended while notifications waited for it; the value is their number.",
    ),
    _event(
        "message",
        "queue_notification_dropped",
        "A worker was away so long that notifications about deleted or unlocked items "
        "were dropped.",
        "Check the worker.",
    ),
    _event(
        "device",
        "password",
        "A device changed its password. The value, if there is one, is the number of changes in "
        "the last minute.",
        "None, if it is rare.",
    ),
    _event(
        "device",
        "revoked restored removed downgrade_on downgrade_off",
        "An operator revoked, re-admitted or removed a device (the value is the number "
        "of messages that waited), or allowed or forbade plain messages instead of "
        "guaranteed ones.",
        _IF_IT_WAS_YOU,
    ),
    _event(
        "share",
        "made",
        "A device (the source) created a shared subscription by being the first to subscribe to "
        "it. Reported at most every 15 minutes.",
        "Check the subscription options if members come and go: the shared subscription ends "
        "with its last member.",
    ),
    _event(
        "queue",
        "depth",
        "State of a queue, every five minutes while it has items: items in total (the "
        "value), `ready`, `locked`, `delayed`, `oldest_s` (age of the oldest item), "
        "`members`, and since the last such event `delivered`, `redelivered` and "
        "`timeouts`. The 64 deepest queues are reported individually, the rest as "
        "`other`.",
        "If nothing is delivered, `fieldpost queue show` says why.",
    ),
    _event(
        "queue",
        "unlocked requeued purged taken",
        "An operator, or the node's owner (who is then the source), unlocked an item, requeued "
        "dead items, or purged a queue; or the operator took an item and finished it.",
        _IF_IT_WAS_YOU,
    ),
    _event(
        "node",
        "deleted purged trimmed",
        "The owner of a node, or the operator (then the source is the gateway), deleted it, "
        "purged its items, or reduced how many it keeps. The value is the number of items "
        "deleted.",
        "None, if the owner intended it.",
    ),
    _event(
        "node",
        "created",
        "The operator created a node (`fieldpost node create`).",
        _IF_IT_WAS_YOU,
    ),
    _event(
        "uplink",
        "unreachable denied conflict refused",
        "The centre cannot be reached, does not accept the gateway's token or "
        "certificate, has a different segment of the same name, or rejected a "
        "segment.",
        "See “Answers of the receiver” in the centre's guide.",
    ),
    _event(
        "uplink",
        "shipping",
        "The centre accepts segments again.",
    ),
    _event(
        "uplink",
        "wrong-digest store-unavailable",
        "The centre acknowledged other bytes than were sent, or the gateway's own "
        "database is not available. The gateway tries again in both cases.",
        "If the reason is `wrong-digest`, check the proxies between gateway and centre; if it is "
        "`store-unavailable`, check the disk.",
    ),
    _event(
        "uplink",
        "centre-ahead centre-differs",
        "The centre has later events of this epoch than the gateway (`centre-ahead`), or other "
        "segments with the same numbers (`centre-differs`). The gateway begins a new epoch.",
        "Look for a restored database or a copied card that runs twice.",
    ),
    _event(
        "uplink",
        "certificate-renewed certificate-failed",
        "The gateway obtained a new client certificate, or could not obtain one and tries again "
        "after a day.",
        "If renewal keeps failing, enrol the gateway again before the certificate expires.",
    ),
    _event(
        "uplink",
        "set_aside",
        "The centre has a different segment of the same name, or rejected the segment. The "
        "gateway keeps the segment and does not send it again.",
        "See “Answers of the receiver” in the centre's guide.",
    ),
    _event(
        "uplink",
        "lane-stuck",
        "Events of a lane could not be sealed into a segment. The gateway keeps the events and "
        "tries again.",
        "Run `fieldpost uplink status`; the event's text says why.",
    ),
    _event(
        "uplink",
        "evicted",
        "The backlog was full, and the gateway deleted the named range of events; the value is "
        "the number of events. The event reports this loss to the centre. Until the centre "
        "has acknowledged it, the event may be logged again, with the value 0.",
        "Give the backlog more space, or restore the link.",
    ),
    _event(
        "uplink",
        "unwritten",
        "Events could not be sealed for so long that new events were not written to the log; the "
        "value is their number.",
        "See the `lane-stuck` event before this one for the reason.",
    ),
    _event(
        "uplink",
        "epoch",
        "Sequence numbers start from 1 in a new epoch. `reason` is `restored` from a "
        "backup, `another-board`, `another-card`, `centre-ahead` or `centre-differs`; "
        "`before` names the previous epoch.",
        "None if you restored a backup or moved the card. Otherwise look for a second "
        "gateway with a copy of this folder.",
    ),
)
