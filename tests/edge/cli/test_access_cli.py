"""`fieldpost access check`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from edge.config.options import AccessRule
from edge.engine.store.database import Transaction
from edge.features.pubsub.rules.affiliation import Affiliation
from edge.features.pubsub.rules.node_config import NodeConfig
from edge.features.pubsub.store import affiliations, nodes
from tests.helpers.folder import change, fieldpost, set_access

PUMP = AccessRule(device="pump?", publish=["%u/#", "%c/in"], subscribe=["#"])
PUMP_1, PUMP_2 = "pump1@gw.example", "pump2@gw.example"


@pytest.fixture
def gateway(folder: Path) -> Path:
    """A folder with rules, the devices pump1, pump2 and valve, and a closed node of pump1."""
    for name, *options in (("pump1",), ("pump2",), ("valve",), ("apart", "--no-trust")):
        assert fieldpost(folder, "device", "add", name, *options).exit_code == 0
    set_access(folder, PUMP, AccessRule(device="valve", publish=["valve/state"]))

    def add_nodes(tx: Transaction) -> None:
        closed = nodes.add(tx, "pump1/own", PUMP_1, NodeConfig(access_model="whitelist"))
        affiliations.put(tx, closed.id, PUMP_1, Affiliation.OWNER)

    change(folder, add_nodes)
    return folder


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("pump1 publish pump1/temp",
         'allowed: access[1] allows it by "pump1/#"; the first publication creates the node'),
        ("pump1 publish pump1/own", 'allowed: access[1] allows it by "pump1/#"; the node allows it'
         " (affiliation owner, publish_model publishers)"),
        ("pump1 publish pump2/temp",
         "refused: the rule access[1] does not allow pump1 to publish to pump2/temp"),
        ("pump1 publish c7/in",
         "refused: the rule access[1] does not allow pump1 to publish to c7/in"),
        ("pump1 publish c7/in --client c7",
         'allowed: access[1] allows it by "c7/in"; the first publication creates the node'),
        ("pump1 publish pump1/+",
         "refused: its request gets the error: a node name must not contain the wildcards + and #"),
        ("pump1 subscribe pump1/own", 'allowed: access[1] allows it by "#"; the node allows it'
         " (affiliation owner, access_model whitelist)"),
        ("pump2 subscribe pump1/own",
         "refused: its request gets the error: the node admits only affiliated accounts"),
        ("pump2 subscribe $share/pool/plant/+",
         'allowed: access[1] allows it by "#"; each node is checked when it has an item'),
        ("valve subscribe valve/#",
         "refused: the rule access[2] does not allow valve to subscribe to valve/#"),
        ("apart publish apart/t", "refused: apart is not trusted"),
    ],
)  # fmt: skip
def test_the_answer_names_what_decides(gateway: Path, question: str, answer: str) -> None:
    result = fieldpost(gateway, "access", "check", *question.split())
    assert result.output == f"{answer}\n"
    assert result.exit_code == (0 if answer.startswith("allowed") else 1)


def test_without_rules_only_the_node_decides(gateway: Path) -> None:
    set_access(gateway)
    result = fieldpost(gateway, "access", "check", "pump2", "publish", "pump1/own", "--json")
    assert json.loads(result.output) == {
        "allowed": False,
        "reason": "its request gets the error: you may not publish to this node",
    }
    result = fieldpost(gateway, "access", "check", "pump1", "publish", "pump1/new")
    assert result.output == "refused: its request gets the error: the node does not exist\n"
    result = fieldpost(gateway, "access", "check", "pump1", "publish", "pump1/own")
    assert result.output.startswith("allowed: there are no rules in [[access]]; the node allows it")


def test_a_device_without_a_rule_and_a_missing_device(gateway: Path) -> None:
    set_access(gateway, PUMP)
    result = fieldpost(gateway, "access", "check", "valve", "subscribe", "x")
    assert (
        result.output == "refused: no rule in [[access]] is for valve: it may not subscribe to x\n"
    )
    result = fieldpost(gateway, "access", "check", "nobody", "subscribe", "x")
    assert (result.exit_code, "there is no device nobody" in result.output) == (1, True)
