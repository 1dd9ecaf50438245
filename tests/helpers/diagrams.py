"""Draw the tables of state machines as the Mermaid diagrams of the documentation."""

from __future__ import annotations

from edge.features.outbox import rules
from edge.features.outbox.rules import Action, Level
from edge.features.queues.rules import transitions
from edge.features.queues.rules.transitions import Kind, Outcome
from edge.xmpp.stream import states


def of_outgoing_message(level: Level) -> str:
    """Draw the transitions of an outgoing message of a level."""
    lines = ["stateDiagram-v2", f"    [*] --> {rules.State.QUEUED}"]
    for state, row in rules.TABLE[level].items():
        for event, (then, action) in row.items():
            does = "" if action is Action.NONE else f" / {action.name.lower().replace('_', ' ')}"
            lines.append(f"    {_node(state)} --> {_node(then)}: {event.value}{does}")
    lines += [f"    {_node(state)} --> [*]" for state in rules.State if state in rules.TERMINAL]
    return "\n".join(lines)


def _node(state: str) -> str:
    return state.replace(" ", "_")


def of_queued_item(kind: Kind) -> str:
    """Draw the states of items of a kind."""
    names = {Outcome.READY_FOR_ANOTHER: "ready", Outcome.STAYS: "locked"}
    lines = ["stateDiagram-v2", "    [*] --> ready", "    ready --> locked: assigned"]
    if kind is Kind.SHARE_0:
        return "\n".join([*lines[:2], "    ready --> [*]: sent"])
    for loss, found in transitions.TRANSITIONS[kind].items():
        lines.append(f"    locked --> {names.get(found, found.value)}: {loss.value}")
    if not transitions.COMES_BACK.isdisjoint(transitions.TRANSITIONS[kind].values()):
        lines.append("    locked --> dead: too many deliveries")
    lines.append("    locked --> [*]: completed")
    return "\n".join([*lines, "    dead --> ready: requeued"])


def of_stream() -> str:
    """Draw the states of a stream's negotiation, without the transitions to `closed`."""
    lines = ["stateDiagram-v2", f"    [*] --> {states.State.CONNECTED.value}"]
    for (state, event), transition in states.TRANSITIONS.items():
        lines += [
            f"    {state.value} --> {then.value}: {event.value}"
            for then in transition.then
            if then is not states.State.CLOSED
        ]
    return "\n".join(lines)
