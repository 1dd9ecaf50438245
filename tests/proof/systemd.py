"""Prove the Debian packages under real systemd, on a machine with Debian 12 or 13.

`python -m tests.proof.systemd 12 dist/fieldpost_*+deb12_amd64.deb` proves the gateway's package in
a virtual machine. With the centre's package after it, a gateway ships to that centre instead. With
`--older`, it is also upgraded from that package. With `--container` the machine is a container,
which is faster and has this machine's kernel. The program prints what was done and seen as rows of
a table. It needs root, a loop device, debootstrap, and QEMU (qemu-system-x86) or systemd-nspawn
(systemd-container), and downloads Debian's packages.
"""

from __future__ import annotations

import argparse
import base64
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

RELEASES: Final = {"12": ("bookworm", "python3.11"), "13": ("trixie", "python3.13")}
DEPENDENCIES: Final = ("adduser", "default-jre-headless")
PACKAGES: Final = "systemd-sysv,dbus,udev,linux-image-cloud-amd64,kmod,iproute2,procps"
"""What the machine has at first: neither Python nor what else the packages depend on."""

NEWER: Final = "9.0.0"
"""The version of the packages to upgrade to."""
NEWEST: Final = "9.1.0"
"""A version that migrates the database and does not start."""
STARTED: Final = "store = await self._open_store(stack, path, clock)"
"""The line of `edge/app.py` that migrates the database."""
REFUSAL: Final = "this version does not start"

DISK: Final = "12G"
"""The size of the machine's disk. Its file takes only what is written."""

APT_INSTALL: Final = (
    "apt-get install -y --no-install-recommends --allow-downgrades"
    " -o Dpkg::Options::=--force-confold"
)
"""Installs without questions: an edited configuration file is kept."""

BOOT_S: Final = 1800.0
COMMAND_S: Final = 1800.0
"""Seconds that a machine may take to boot and for a command: it may be emulated."""
WAIT_S: Final = 300.0
"""Seconds that a service may take to become what is expected of it; the watchdog needs 60."""

BOOTED: Final = (
    "timeout 120 systemctl is-system-running --wait > /dev/null;"
    " systemctl is-active multi-user.target"
)

AGENT: Final = r"""#!/bin/bash
exec 3<> /dev/virtio-ports/proof
echo ready >&3
while IFS= read -r line <&3; do
    output=$(bash -c "$(base64 -d <<< "$line")" 2>&1 < /dev/null)
    printf '%s %s\n' $? "$(base64 -w 0 <<< "$output")" >&3
done
"""
"""Runs each line that it reads, in base64, as a command, and answers with status and output."""

AGENT_UNIT: Final = """[Service]
ExecStart=/usr/local/sbin/agent
Restart=always
RestartSec=1
[Install]
WantedBy=multi-user.target
"""

SERVICE: Final = "fieldpost.service"
FOLDER: Final = "/var/lib/fieldpost/gateway"
CONFIGURATION: Final = "/etc/fieldpost/fieldpost.toml"
DEVICES: Final = ("pump1", "valve1")


class Failure(Exception):
    """A command of the machine failed, or something expected did not happen."""


class Machine(ABC):
    """A machine with systemd that runs commands."""

    @abstractmethod
    def start(self) -> None:
        """Switch the machine on, and wait until what starts at boot has started."""

    @abstractmethod
    def cut_power(self) -> None:
        """Switch the machine off without any warning."""

    @abstractmethod
    def reboot(self) -> None:
        """Reboot in an orderly way, and wait as `start` does."""

    @abstractmethod
    def execute(self, command: str) -> tuple[int, str]:
        """Run a shell command; return its status and output."""

    def run(self, command: str, *, fails: bool = False) -> str:
        """Run a shell command, which must succeed or, with `fails`, fail, and return its output."""
        status, output = self.execute(command)
        if (status != 0) != fails:
            raise Failure(f"{command}: status {status}\n{output}")
        return output.strip()

    def expect(self, command: str, wanted: str) -> None:
        """Repeat a command until its output contains a text."""
        end = time.monotonic() + WAIT_S
        while wanted not in (text := self.execute(command)[1]):
            if time.monotonic() > end:
                raise Failure(f"{command}: no {wanted!r} in {WAIT_S:.0f} s, but\n{text}")
            time.sleep(1)


class VirtualMachine(Machine):
    """QEMU with a kernel of its own, which is in `boot`, and a disk, without network."""

    def __init__(self, boot: Path, disk: Path, folder: Path, accelerator: str) -> None:
        [kernel] = boot.glob("vmlinuz-*")
        [initrd] = boot.glob("initrd.img-*")
        channel = folder / "agent.socket"
        with mounted(disk, folder) as tree:
            _install_agent(tree)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(channel))
        self._listener.listen(1)
        self._listener.settimeout(BOOT_S)
        self._command = [
            *("qemu-system-x86_64", "-accel", accelerator, "-cpu", "max", "-smp", "2"),
            *("-m", "2048", "-display", "none", "-monitor", "none", "-nic", "none"),
            *("-kernel", str(kernel), "-initrd", str(initrd)),
            *("-append", "console=ttyS0 root=/dev/vda rw quiet"),
            # The host has what the guest has written when QEMU is killed, so it need not sync it.
            *("-drive", f"file={disk},if=virtio,format=raw,cache=unsafe"),
            *("-serial", f"file:{folder / 'console'}"),
            *("-device", "virtio-serial", "-device", "virtserialport,chardev=agent,name=proof"),
            *("-chardev", f"socket,id=agent,path={channel}"),
        ]

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL)
        self._connection, _address = self._listener.accept()
        self._answers = self._connection.makefile("rb")
        self._wait_for_boot()

    def _wait_for_boot(self) -> None:
        self._connection.settimeout(BOOT_S)
        while (line := self._answers.readline()) != b"ready\n":
            if not line:
                raise Failure("the machine has stopped")
        self.execute(BOOTED)

    def cut_power(self) -> None:
        self._process.kill()
        self._process.wait()
        self._answers.close()
        self._connection.close()

    def reboot(self) -> None:
        self._send("systemctl reboot")
        self._wait_for_boot()

    def execute(self, command: str) -> tuple[int, str]:
        self._connection.settimeout(COMMAND_S)
        self._send(command)
        status, _space, output = self._answers.readline().partition(b" ")
        return int(status or -1), base64.b64decode(output).decode(errors="replace")

    def _send(self, command: str) -> None:
        self._connection.sendall(base64.b64encode(command.encode()) + b"\n")


class Container(Machine):
    """systemd-nspawn with this machine's kernel and no network, in the mounted disk `tree`."""

    def __init__(self, tree: Path, folder: Path) -> None:
        self._command = [
            *("systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--boot"),
            *("--console=read-only", "--private-network", f"--directory={tree}"),
        ]
        self._log = folder / "console"

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        end = time.monotonic() + BOOT_S
        while not self._init() or self.execute(BOOTED)[0]:
            if time.monotonic() > end:
                raise Failure("the container does not boot")
            time.sleep(1)

    def _init(self) -> str:
        """Return the id of the container's first process, or "" if there is none."""
        process = self._process.pid
        children = Path(f"/proc/{process}/task/{process}/children").read_text("ascii").split()
        return children[0] if children else ""

    def cut_power(self) -> None:
        if self._process.poll() is None and (init := self._init()):
            os.kill(int(init), signal.SIGKILL)
        self._process.wait()

    def reboot(self) -> None:
        self.execute("systemctl reboot")
        self._process.wait(BOOT_S)  # with --keep-unit, whoever has started it starts it again
        self.start()

    def execute(self, command: str) -> tuple[int, str]:
        enter = ["nsenter", "--target", self._init(), "--all", "--root", "--wd", "env", "-i"]
        done = subprocess.run(
            [*enter, f"PATH={os.defpath}:/usr/sbin:/sbin", "HOME=/root", "bash", "-c", command],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            check=False, timeout=COMMAND_S,
        )  # fmt: skip
        return done.returncode, done.stdout.decode(errors="replace")


@contextmanager
def mounted(disk: Path, folder: Path) -> Iterator[Path]:
    """Mount an image of a file system in `folder`, and unmount it at the end."""
    tree = folder / "tree"
    tree.mkdir(exist_ok=True)
    subprocess.run(["mount", "-o", "loop,discard", disk, tree], check=True)
    try:
        yield tree
    finally:
        subprocess.run(["umount", tree], check=True)


def _install_agent(tree: Path) -> None:
    agent = tree / "usr/local/sbin/agent"
    agent.write_text(AGENT, "utf-8")
    agent.chmod(0o755)
    unit = tree / "etc/systemd/system/agent.service"
    unit.write_text(AGENT_UNIT, "utf-8")
    wants = tree / "etc/systemd/system/multi-user.target.wants"
    (wants / unit.name).symlink_to(f"/etc/systemd/system/{unit.name}")


Step = tuple[str, Callable[[Machine], str]]
"""What is done, and the function that does it and returns what was seen."""


def _show(machine: Machine, field: str, unit: str = SERVICE) -> str:
    return machine.run(f"systemctl show --value -p {field} {unit}")


def _active(machine: Machine) -> str:
    """Return the gateway's version, once its service is active."""
    machine.expect(f"systemctl is-active {SERVICE}", "active")
    machine.expect("fieldpost status", ": running")
    return machine.run("fieldpost --version")


def _send(machine: Machine, text: str) -> None:
    _as_device(machine, "send", DEVICES[0], f"--to {DEVICES[1]}@gw1.example --qos 2 {text}")


def _received(machine: Machine, text: str) -> str:
    found = _as_device(machine, "listen", DEVICES[1], "--count 1")
    if not found.endswith(text):
        raise Failure(f"received {found!r} and not {text!r}")
    return f"`{text}` received"


def _as_device(machine: Machine, command: str, device: str, words: str) -> str:
    login = f"--as {device}@gw1.example --password-stdin --ca {FOLDER}/pki/ca.pem --host 127.0.0.1"
    return machine.run(f"fieldpost {command} {login} --timeout 120 {words} < /root/{device}")


EDITED: Final = "edited-by-the-administrator"
"""A comment in the configuration."""


def install(machine: Machine) -> str:
    machine.run(f"{APT_INSTALL} /root/fieldpost.deb")
    machine.run(f"systemctl is-enabled {SERVICE}", fails=True)
    machine.run(f"systemctl start {SERVICE}", fails=True)
    return machine.run("dpkg-query -W fieldpost") + "; not enabled; refuses to start"


def initialise(machine: Machine) -> str:
    machine.run("fieldpost init --domain gw1.example --listen 0.0.0.0:5222")
    machine.run(f"systemctl enable --now {SERVICE}")
    version = _active(machine)
    for device in DEVICES:
        machine.run(f"(umask 077; fieldpost device add {device} | tail -n 1 > /root/{device})")
    owner = machine.run(f"stat -L -c '%U %a' {CONFIGURATION} {FOLDER}")
    return f"{version}, {_compiled(machine)}; configuration, folder: {owner.replace(chr(10), ', ')}"


def _compiled(machine: Machine) -> str:
    """Return how many compiled modules of the package the gateway's process has loaded."""
    modules = r"/opt/fieldpost/.*/site-packages/fieldpost/.*\.so"
    maps = f"/proc/{_show(machine, 'MainPID')}/maps"
    return machine.run(f"grep -o '{modules}' {maps} | sort -u | wc -l") + " compiled modules loaded"


def exchange(machine: Machine) -> str:
    _send(machine, "open")
    seen = _received(machine, "open")
    findings = machine.run("fieldpost doctor").splitlines()
    return f"{seen}; doctor: {sum(line.startswith('ok') for line in findings)} ok, 0 wrong"


def reload(machine: Machine) -> str:
    machine.run(f"echo '# {EDITED}' >> {CONFIGURATION} && systemctl reload {SERVICE}")
    return _active(machine)


def reboot(machine: Machine) -> str:
    _send(machine, "after-the-reboot")
    boot = machine.run("cat /proc/sys/kernel/random/boot_id")
    machine.reboot()
    if machine.run("cat /proc/sys/kernel/random/boot_id") == boot:
        raise Failure("the machine has not rebooted")
    _active(machine)
    return _received(machine, "after-the-reboot")


def power_cut(machine: Machine) -> str:
    _send(machine, "after-the-power-cut")
    machine.cut_power()
    machine.start()
    _active(machine)
    return _received(machine, "after-the-power-cut")


def _restarted(machine: Machine, signal: str, result: str) -> str:
    _send(machine, f"after-{signal}")
    before, count = _show(machine, "MainPID"), int(_show(machine, "NRestarts"))
    began = time.monotonic()
    machine.run(f"kill -{signal} {before}")
    machine.expect(f"systemctl show --value -p NRestarts {SERVICE}", str(count + 1))
    machine.expect(f"journalctl -b -u {SERVICE}", result)
    _active(machine)
    after = time.monotonic() - began
    if _show(machine, "MainPID") == before:
        raise Failure("the process is the same")
    return f"restarted, ready after {after:.0f} s; " + _received(machine, f"after-{signal}")


def kill(machine: Machine) -> str:
    return _restarted(machine, "KILL", "status=9/KILL")


def hang(machine: Machine) -> str:
    return _restarted(machine, "STOP", "Watchdog timeout")


def upgrade(machine: Machine) -> str:
    _send(machine, "after-the-upgrade")
    machine.run(f"{APT_INSTALL} /root/fieldpost-{NEWER}.deb")
    _active(machine)
    machine.run(f"grep {EDITED} {CONFIGURATION}")
    version = _version(machine, "fieldpost")
    backups = machine.run("ls /var/lib/fieldpost/before-upgrade")
    events = machine.run("fieldpost events")
    if "migrated" not in events:
        raise Failure(f"no event of the migration:\n{events}")
    seen = _received(machine, "after-the-upgrade")
    return f"{version}, database migrated, configuration kept, backup {backups}; {seen}"


def _version(machine: Machine, package: str) -> str:
    return machine.run(f"dpkg-query -W -f '${{Version}}' {package}")


def full_disk(machine: Machine) -> str:
    _send(machine, "after-the-full-disk")
    _refuse_without_room(machine, "fieldpost")
    _active(machine)
    machine.run("rm /ballast")
    return f"{_version(machine, 'fieldpost')} goes on; {_received(machine, 'after-the-full-disk')}"


def _refuse_without_room(machine: Machine, package: str) -> None:
    """Upgrade with room for half of the package's files."""
    half = f"$(dpkg-query -W -f '${{Installed-Size}}' {package}) * 512"
    machine.run(f"fallocate -l $(( $(stat -f -c '%a * %S' /) - {half} )) /ballast")
    output = machine.run(f"{APT_INSTALL} /root/{package}-{NEWER}.deb", fails=True)
    if "No space left on device" not in output:
        raise Failure(f"the disk is not full:\n{output}")
    audit = f"dpkg --audit {package}; dpkg --verify {package} | sed '/ c /d'"  # without conffiles
    if wrong := machine.run(audit):
        raise Failure(f"the old version is damaged:\n{wrong}")


def refused_upgrade(machine: Machine) -> str:
    """Fill the disk of the backups."""
    folder = "/var/lib/fieldpost/before-upgrade"
    machine.run(f"mount -t tmpfs -o size=64k,uid=fieldpost,mode=700 tmpfs {folder}")
    machine.run(f"{APT_INSTALL} /root/fieldpost-{NEWEST}.deb", fails=True)
    machine.run(f"umount {folder}")
    _active(machine)
    return f"{_version(machine, 'fieldpost')} goes on"


def failed_upgrade(machine: Machine) -> str:
    _send(machine, "after-the-failure")
    version = _version(machine, "fieldpost")
    output = machine.run(f"{APT_INSTALL} /root/fieldpost-{NEWEST}.deb")
    if f"fieldpost.service does not start: {REFUSAL}" not in output:
        raise Failure(f"no reason why it does not start:\n{output}")
    machine.run(f"ln /root/fieldpost-{NEWER}.deb /root/fieldpost_{version}_amd64.deb")
    return _go_back(machine, output, "after-the-failure")


def _go_back(machine: Machine, output: str, text: str) -> str:
    """Run the command that the package has written, and return what was seen."""
    _before, found, command = output.partition("fieldpost: to go back: ")
    if not found:
        raise Failure(f"no command that goes back:\n{output}")
    command = command.splitlines()[0]
    done = command.replace("sudo ", "").replace("apt install", "apt-get install -y")
    machine.run(f"cd /root && {done}")
    return f"after `{command}`: {_active(machine)}; {_received(machine, text)}"


def go_back(machine: Machine) -> str:
    older = f"{APT_INSTALL} /root/fieldpost.deb"
    output = machine.run(older)
    if "install the newer fieldpost" not in output:
        raise Failure(f"no reason why it does not start:\n{output}")
    machine.run(f"{APT_INSTALL} /root/fieldpost-{NEWER}.deb")
    _active(machine)
    machine.run(older)
    return _go_back(machine, output, "after-the-upgrade")


def remove(machine: Machine) -> str:
    machine.run("apt-get remove -y fieldpost")
    machine.run("! command -v fieldpost && ! pgrep -u fieldpost")
    machine.run(f"test -e {FOLDER}/fieldpost.db")
    machine.run(f"{APT_INSTALL} /root/fieldpost.deb")
    version = _active(machine)
    return f"{version} with the devices {machine.run('fieldpost device list | tail -n +2 | wc -l')}"


def purge(machine: Machine) -> str:
    return _purge(machine, "fieldpost")


def upgrade_older(machine: Machine) -> str:
    machine.run(f"{APT_INSTALL} /root/fieldpost-older.deb")
    older = _version(machine, "fieldpost")
    seen = ""
    initialise(machine)
    machine.run(f"echo '# {EDITED}' >> {CONFIGURATION}")
    for name, text in (("", "upgraded"), ("-older", "taken-back"), ("", "upgraded-again")):
        _send(machine, text)
        machine.run(f"{APT_INSTALL} /root/fieldpost{name}.deb")
        machine.run(f"grep {EDITED} {CONFIGURATION}")
        _active(machine)
        seen += f"; {_version(machine, 'fieldpost')}: {_received(machine, text)}"
    return f"{older}{seen}; {_purge(machine, 'fieldpost')}"


def _purge(machine: Machine, package: str, *folders: str) -> str:
    machine.run(f"apt-get purge -y {package}")
    machine.run(f"! getent passwd {package} && ! getent group {package} && ! pgrep -u {package}")
    for folder in folders:
        machine.run(f"test ! -e {folder}")
    elsewhere = "-not -path '/root/*' -not -path '/tmp/*'"
    found = machine.run(f"find / -xdev -name '*{package}*' {elsewhere}")
    units = machine.run(f"systemctl list-units --all --no-legend '{package}*'")
    if found or units:
        raise Failure(f"left:\n{found}\n{units}")
    return "no file, unit, process, user or group is left"


CENTRE_SERVICES: Final = ("serve", "ingest", "alerts")
CENTRE_UNITS: Final = " ".join(
    [
        *(f"fieldpost-fleet-{name}.service" for name in CENTRE_SERVICES),
        *("fieldpost-fleet-report.timer", "fieldpost-fleet-compact.timer"),
    ]
)


def _centre_active(machine: Machine) -> str:
    _centre_units_active(machine)
    machine.expect(f"{CENTRE_PYTHON} -c '{GET_HEALTH}'", "200")
    return "receiver, ingest, alerts and timers are active"


def _centre_units_active(machine: Machine) -> None:
    for unit in CENTRE_UNITS.split():
        machine.expect(f"systemctl is-active {unit}", "active")


CENTRE_PYTHON: Final = "/opt/fieldpost-fleet/bin/python3"
GET_HEALTH: Final = (
    "import urllib.request as r; "
    'print(r.urlopen("http://127.0.0.1:9100/health", timeout=60).status)'
)


def install_centre(machine: Machine) -> str:
    machine.run(f"{APT_INSTALL} /root/fieldpost-fleet.deb")
    machine.run(f"systemctl is-active {CENTRE_UNITS}", fails=True)
    return machine.run("dpkg-query -W fieldpost-fleet") + "; nothing runs"


CONFFILE: Final = "/etc/fieldpost-fleet/alerts.env"


def enrol(machine: Machine) -> str:
    machine.run(f"echo '# {EDITED}' >> {CONFFILE}")
    machine.run("fieldpost-fleet gateway add gw1.example --url https://localhost:8443 > /root/gw1")
    machine.run("systemctl enable --now fieldpost-fleet.target")
    return _centre_active(machine)


def ship(machine: Machine) -> str:
    machine.run(f"{APT_INSTALL} /root/fieldpost.deb")
    machine.run("fieldpost init --domain gw1.example")
    machine.run(f"install -m 600 -o fieldpost /root/gw1 {FOLDER}/enrolment.json")
    enrolment = r's/^enrolment = .*/enrolment = "enrolment.json"/'
    age = "s/^segment_age = .*/segment_age = 5/"
    machine.run(f"sed -i -e '{enrolment}' -e '{age}' {CONFIGURATION}")
    machine.run(f"systemctl enable --now {SERVICE}")
    _active(machine)
    machine.expect("fieldpost-fleet gateway list", "gw1.example")
    machine.expect("find /srv/fleet -name '*.parquet'", ".parquet")
    return "segments arrived and are in the tables"


def report(machine: Machine) -> str:
    machine.run("systemctl start fieldpost-fleet-report")
    return machine.run("stat -c '%U %a %n' /srv/fleet-report/index.html")


def reboot_centre(machine: Machine) -> str:
    machine.reboot()
    return _centre_active(machine)


def kill_centre(machine: Machine) -> str:
    for name in CENTRE_SERVICES:
        unit = f"fieldpost-fleet-{name}.service"
        count = int(_show(machine, "NRestarts", unit))
        machine.run(f"kill -KILL {_show(machine, 'MainPID', unit)}")
        machine.expect(f"systemctl show --value -p NRestarts {unit}", str(count + 1))
    return _centre_active(machine)


def full_disk_centre(machine: Machine) -> str:
    _refuse_without_room(machine, "fieldpost-fleet")
    _centre_units_active(machine)
    machine.run("rm /ballast")  # the receiver is not healthy until 512 MiB are free
    return f"{_version(machine, 'fieldpost-fleet')} goes on: {_centre_active(machine)}"


def upgrade_centre(machine: Machine) -> str:
    """Upgrade, at first with a receiver that does not start."""
    drop_in = "/etc/systemd/system/fieldpost-fleet-serve.service.d"
    refuse = f'[Service]\\nExecStartPre=/bin/sh -c "echo {REFUSAL}; exit 1"\\n'
    machine.run(f"mkdir -p {drop_in} && printf '{refuse}' > {drop_in}/refuse.conf")
    output = machine.run(f"{APT_INSTALL} /root/fieldpost-fleet-{NEWER}.deb")
    for text in (f"fleet-serve.service does not start: {REFUSAL}", "to go back: sudo apt install"):
        if text not in output:
            raise Failure(f"no {text!r}:\n{output}")
    machine.run(f"rm -r {drop_in} && systemctl daemon-reload")
    _centre_active(machine)
    machine.run(f"grep {EDITED} {CONFFILE} && grep {NEWER} {CONFFILE}.dpkg-dist")
    return f"{_version(machine, 'fieldpost-fleet')}; all active; {CONFFILE} kept"


def go_back_centre(machine: Machine) -> str:
    machine.run(f"{APT_INSTALL} /root/fieldpost-fleet.deb")
    _centre_active(machine)
    machine.run(f"grep {EDITED} {CONFFILE}")
    return machine.run("fieldpost-fleet gateway list | tail -n 1")


def purge_centre(machine: Machine) -> str:
    _purge(machine, "fieldpost-fleet", "/srv/fleet", "/srv/fleet-report")
    return _purge(machine, "fieldpost")


CENTRE: Final[list[Step]] = [
    ("`apt install ./fieldpost-fleet_*.deb`", install_centre),
    ("`fieldpost-fleet gateway add`, `systemctl enable --now fieldpost-fleet.target`", enrol),
    ("a gateway on the same machine ships", ship),
    ("`systemctl start fieldpost-fleet-report`", report),
    ("reboot", reboot_centre),
    ("`kill -9` of each service", kill_centre),
    (f"upgrade to {NEWER}: the disk is full while the package is unpacked", full_disk_centre),
    (f"upgrade to {NEWER}", upgrade_centre),
    ("go back to the first version", go_back_centre),
    ("`apt purge`", purge_centre),
]

GATEWAY: Final[list[Step]] = [
    ("`apt install ./fieldpost_*.deb`", install),
    ("`fieldpost init`, `systemctl enable --now fieldpost`, two devices", initialise),
    ("a message at level 2 from one device to the other", exchange),
    ("`systemctl reload`", reload),
    ("a message, reboot", reboot),
    ("a message, power cut (the machine is killed)", power_cut),
    ("a message, `kill -9`", kill),
    ("a message, `kill -STOP`: the watchdog", hang),
    (f"a message, upgrade to {NEWER}: the disk is full while it is unpacked", full_disk),
    (f"a message, upgrade to {NEWER}, which migrates the database", upgrade),
    (f"upgrade to {NEWEST} without room for the backup", refused_upgrade),
    (f"upgrade to {NEWEST}, which migrates the database and does not start", failed_upgrade),
    (f"go back to the first version, again to {NEWER}, and back for good", go_back),
    ("`apt remove`, `apt install`", remove),
    ("`apt purge`", purge),
]
OLDER: Final[Step] = (
    "an older version: upgrade, go back, upgrade, each with a message; `apt purge`", upgrade_older,
)  # fmt: skip


def changed_package(package: Path, place: Path, version: str) -> None:
    """Write the package of a newer version, which migrates the database and changes conffiles."""
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        subprocess.run(["dpkg-deb", "--raw-extract", package, tree], check=True)
        control = tree / "DEBIAN" / "control"
        lines = control.read_text("utf-8").splitlines()
        new = [f"Version: {version}" if line.startswith("Version:") else line for line in lines]
        control.write_text("\n".join(new) + "\n", "utf-8")
        [first] = tree.rglob("edge/engine/migrations/0001_*.sql")
        names = ("9998_later", "9999_latest") if version.startswith(NEWEST) else ("9998_later",)
        for name in names:
            migration = f"CREATE TABLE {name[5:]} (id INTEGER PRIMARY KEY) STRICT"
            first.with_name(f"{name}.sql").write_text(migration, "utf-8")
        if version.startswith(NEWEST):
            [app] = tree.rglob("edge/app.py")
            text = app.read_text("utf-8")
            changed = text.replace(STARTED, f'{STARTED}\n        raise SetupError("{REFUSAL}")')
            if changed == text:
                raise Failure(f"{app} has no {STARTED}")
            app.write_text(changed, "utf-8")
        for conffile in (path for path in tree.glob("etc/*/*") if path.is_file()):
            conffile.write_text(f"{conffile.read_text('utf-8')}# {version}\n", "utf-8")
        build = ["dpkg-deb", "--root-owner-group", "-Znone", "--build"]
        subprocess.run([*build, tree, place], check=True, stdout=subprocess.DEVNULL)


def debian_tree(trees: Path, debian: str) -> Path:
    """Return a tree of Debian in which apt has what the packages depend on."""
    suite, python = RELEASES[debian]
    tree = trees / suite
    if not tree.exists():
        command = ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", suite]
        subprocess.run([*command, tree], check=True, stdout=subprocess.DEVNULL)
        download = ["apt-get", "install", "-y", "-qq", "--download-only", "--no-install-recommends"]
        subprocess.run(["chroot", tree, *download, python, *DEPENDENCIES], check=True)
    # Debian's installer writes this.
    (tree / "etc/hosts").write_text("127.0.0.1 localhost\n127.0.1.1 vm\n", "utf-8")
    (tree / "etc/hostname").write_text("vm\n", "utf-8")
    return tree


def packages(options: argparse.Namespace, root: Path) -> None:
    """Copy the packages, and newer ones that are made of them, to `root`, the home of root."""
    shutil.copy(options.gateway, root / "fieldpost.deb")
    if options.older is not None:
        shutil.copy(options.older, root / "fieldpost-older.deb")
    name, package = "fieldpost", options.gateway
    if options.centre is not None:
        shutil.copy(options.centre, root / "fieldpost-fleet.deb")
        name, package = "fieldpost-fleet", options.centre
    for number in (NEWER, NEWEST) if options.centre is None else (NEWER,):
        changed = root / f"{name}-{number}.deb"
        changed_package(package, changed, f"{number}+deb{options.debian}")


def run_steps(machine: Machine, steps: list[Step]) -> bool:
    """Run steps in their order until one fails; return whether all succeeded."""
    for name, step in steps:
        began = time.monotonic()
        try:
            seen = step(machine)
        except Failure as error:
            print(f"| {name} | FAILED |\n\n{error}\n", flush=True)  # noqa: T201
            print(machine.execute("journalctl -b -n 80 --no-pager")[1])  # noqa: T201
            return False
        print(f"| {name} | {seen} | {time.monotonic() - began:.0f} |", flush=True)  # noqa: T201
    return True


def main() -> int:
    """Run the proof of the command line; return 0 if every step succeeded."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("debian", choices=sorted(RELEASES))
    parser.add_argument("gateway", type=Path, help="the package fieldpost for that Debian, amd64")
    parser.add_argument("centre", type=Path, nargs="?", help="fieldpost-fleet for it: prove this")
    parser.add_argument("--older", type=Path, help="an older package fieldpost, to upgrade from")
    parser.add_argument("--container", action="store_true", help="in systemd-nspawn, not in QEMU")
    parser.add_argument("--trees", type=Path, help="a folder that keeps Debian's tree for later")
    parser.add_argument("--accelerator", default="tcg", help="of QEMU: kvm, or tcg (emulation)")
    options = parser.parse_args()
    if os.geteuid() != 0:
        parser.error("this needs root")
    steps = CENTRE if options.centre else [*GATEWAY, *([OLDER] if options.older else [])]
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        source = debian_tree(options.trees or folder, options.debian)
        disk = folder / "disk.img"
        # Nothing is reserved for root, so that a full disk is full for root and the services.
        create = ["mke2fs", "-q", "-t", "ext4", "-m", "0", "-d"]
        subprocess.run([*create, source, disk, DISK], check=True, stdout=subprocess.DEVNULL)
        with mounted(disk, folder) as tree:
            packages(options, tree / "root")
        machine: Machine
        if options.container:
            machine = Container(stack.enter_context(mounted(disk, folder)), folder)
        else:
            machine = VirtualMachine(source / "boot", disk, folder, options.accelerator)
        machine.start()
        try:
            print(machine.run("systemctl --version | head -n 1; uname -r"), flush=True)  # noqa: T201
            return 0 if run_steps(machine, steps) else 1
        finally:
            machine.cut_power()


if __name__ == "__main__":
    sys.exit(main())
