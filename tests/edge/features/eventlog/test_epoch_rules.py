"""Rules for new epochs, and how the hardware of a gateway is identified."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path

import pytest

from edge.features.eventlog.rules.epoch import (
    Hardware,
    NewEpochReason,
    merge_hardware,
    new_epoch_reason,
)
from edge.ops.machine import hardware

NUMBERS = (None, "a", "b")
SERIAL = "sys/firmware/devicetree/base/serial-number"
UUID = "sys/class/dmi/id/product_uuid"


@pytest.mark.parametrize(("known", "found"), list(product(NUMBERS, NUMBERS)))
def test_unknown_hardware_is_no_change(known: str | None, found: str | None) -> None:
    changed = {known, found} == {"a", "b"}
    board = new_epoch_reason(False, Hardware(known, "c"), Hardware(found, "c"))
    assert board == (NewEpochReason.ANOTHER_BOARD if changed else None)
    card = new_epoch_reason(False, Hardware("c", known), Hardware("c", found))
    assert card == (NewEpochReason.ANOTHER_CARD if changed else None)
    assert new_epoch_reason(True, Hardware(known), Hardware(found)) == NewEpochReason.RESTORED
    assert merge_hardware(Hardware(known), Hardware(found)).board == (found or known)


def test_changed_board_takes_precedence_over_changed_card() -> None:
    both = new_epoch_reason(False, Hardware("a", "a"), Hardware("b", "b"))
    assert both is NewEpochReason.ANOTHER_BOARD


def machine(root: Path, folder: Path, **files: str) -> Path:
    """Make a `/sys` tree with `folder` on the second partition of a card."""
    device = folder.stat().st_dev
    card = root / "sys/devices/mmc0:0001"
    partition = card / "block/mmcblk0/mmcblk0p2"
    partition.mkdir(parents=True)
    (partition / "partition").write_text("2\n")
    (card / "block/mmcblk0/device").symlink_to("../..")
    block = root / "sys/dev/block"
    block.mkdir(parents=True)
    number = f"{os.major(device)}:{os.minor(device)}"
    (block / number).symlink_to("../../devices/mmc0:0001/block/mmcblk0/mmcblk0p2")
    paths = {"cid": card / "cid", "serial": root / SERIAL, "uuid": root / UUID}
    for name, text in files.items():
        paths[name].parent.mkdir(parents=True, exist_ok=True)
        paths[name].write_text(text)
    return root


def test_board_and_card_are_read(tmp_path: Path) -> None:
    cid = "035344534c3136478012345678014a00"
    root = machine(tmp_path, tmp_path, cid=f"{cid}\n", serial="10000000abcd1234\0", uuid="x-y")
    assert hardware.read(tmp_path, root) == Hardware("10000000abcd1234", cid)


def test_whole_disk_has_its_own_id(tmp_path: Path) -> None:
    root = machine(tmp_path, tmp_path)
    disk = root / "sys/devices/mmc0:0001/block/mmcblk0/mmcblk0p2"
    (disk / "partition").unlink()
    (disk / "device").mkdir()
    (disk / "device/cid").write_text("c1d\n")
    assert hardware.read(tmp_path, root).card == "c1d"


def test_machine_without_a_device_tree_has_its_uuid(tmp_path: Path) -> None:
    root = machine(tmp_path, tmp_path, uuid="4c4c4544-0042\n")
    assert hardware.read(tmp_path, root) == Hardware("4c4c4544-0042", None)


@pytest.mark.parametrize("text", ["", "\0", "0000000000000000\0", "FFFF-ffff\n"])
def test_meaningless_serial_number_is_unknown(tmp_path: Path, text: str) -> None:
    assert hardware.read(tmp_path, machine(tmp_path, tmp_path, serial=text)).board is None


def test_machine_without_ids_is_unknown(tmp_path: Path) -> None:
    assert hardware.read(tmp_path, tmp_path) == Hardware()
