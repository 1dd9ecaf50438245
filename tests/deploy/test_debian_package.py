"""The Debian package: built offline, and installed for real above this machine's files."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.helpers.wheel import ROOT

SECONDS = 600
DEBIAN = {(3, 11): "12", (3, 13): "13"}.get(sys.version_info[:2], "")
"""The Debian whose Python has the version of the tests' Python."""
ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), "")
NEEDED = (f"python3.{sys.version_info[1]}", "adduser")

# An overlay of this machine's files, in a mount namespace of its own: what is written is in memory
# and is gone at the end. The dependencies are those of the tests.
INSTALL = r"""
work=$1 site=$2 minor=$3
mount -t tmpfs tmpfs "$work" || exit 77
mkdir "$work/up" "$work/own" "$work/root"
cp "$4" "$work/1.deb"
cp "$5" "$work/2.deb"
mount -t overlay overlay -o "lowerdir=/,upperdir=$work/up,workdir=$work/own" "$work/root" || exit 77
mount -t proc proc "$work/root/proc"
mount --rbind /dev "$work/root/dev"
mount -t tmpfs tmpfs "$work/root/run"
mkdir "$work/root/deps"
mount --bind "$site" "$work/root/deps"
mv "$work"/?.deb "$work/root/tmp"
chroot "$work/root" bash -euc '
    echo /deps > /tmp/deps.pth
    opt=/opt/fieldpost/lib/python$1/site-packages
    with_dependencies() { cp /tmp/deps.pth "$opt"; }
    fails() { if "$@"; then echo "no failure: $*"; exit 1; fi; }
    dpkg() { command dpkg --no-triggers "$@"; } # man-db would read all pages each time
    dpkg --install /tmp/1.deb
    with_dependencies
    fieldpost --version
    fieldpost init --domain gw1.example
    fieldpost device add pump1
    stat --format "%U %a %N" /var/lib/fieldpost/gateway /var/lib/fieldpost/gateway/fieldpost.toml
    head -n 1 /opt/fieldpost/bin/fieldpost
    FIELDPOST_DIR=/nowhere dpkg --install /tmp/2.deb
    fieldpost device add pump2 # migrates the database
    dpkg --install /tmp/1.deb # its bytecode is that of this version
    fails fieldpost device list
    dpkg --install /tmp/2.deb
    fieldpost device list
    dpkg --install /tmp/1.deb
    export SYSTEMD_OFFLINE=1 # systemctl does nothing
    sed -i "1i later = 1" /etc/fieldpost/fieldpost.toml
    fails fieldpost-go-back
    sed -i 1d /etc/fieldpost/fieldpost.toml
    fieldpost-go-back
    fieldpost device list
    fieldpost-go-back
    ls -A /var/lib/fieldpost/before-upgrade
    dpkg --remove fieldpost
    fails test -e /usr/bin/fieldpost
    ls /var/lib/fieldpost/gateway
    rm "$opt/deps.pth"
    dpkg --purge fieldpost
    fails getent passwd fieldpost
' chroot "$minor"
umount "$work/root/deps" "$work/root/run"
find "$work/up" -xdev -name "*fieldpost*" -printf "left: %P\n"
"""


def build(dist: Path) -> Path:
    """Build the package from the wheel in `dist`, without its dependencies."""
    offline = {"PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1", "PYTHON": sys.executable}
    done = subprocess.run(
        [ROOT / "deploy/debian/build", "fieldpost", DEBIAN, ARCHITECTURE],
        env={**os.environ, **offline, "DIST": str(dist)},
        capture_output=True, text=True, check=False, timeout=SECONDS,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return Path(done.stdout.strip())


def with_compiled_module(wheel: Path, machine: str) -> None:
    """Write a wheel for a machine and the tests' Python beside the pure one."""
    python = f"cp3{sys.version_info[1]}"
    tags = f"{python}-{python}-manylinux2014_{machine}"
    compiled = wheel.with_name(wheel.name.replace("py3-none-any", tags))
    shutil.copy(wheel, compiled)
    with zipfile.ZipFile(compiled, "a") as file:
        file.writestr(f"fieldpost/lib/{machine}.so", b"")


def newer(package: Path) -> Path:
    """Return a copy of the package with a higher version, a new folder, and a new migration."""
    tree = package.with_name("tree")
    subprocess.run(["dpkg-deb", "--raw-extract", package, tree], check=True)
    control = tree / "DEBIAN" / "control"
    control.write_text(control.read_text("utf-8").replace("\nVersion: ", "\nVersion: 9."), "utf-8")
    [first] = tree.rglob("edge/engine/migrations/0001_*.sql")
    first.with_name("9999_later.sql").write_text("CREATE TABLE later (id INTEGER)", "utf-8")
    new_folder = first.parents[5] / "later"
    new_folder.mkdir()
    (new_folder / "__init__.py").touch()
    place = package.with_name("newer.deb")
    build = ["dpkg-deb", "--root-owner-group", "-Znone", "--build"]
    subprocess.run([*build, tree, place], check=True, stdout=subprocess.DEVNULL)
    return place


@pytest.fixture(scope="module")
def package(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not DEBIAN or not ARCHITECTURE or shutil.which("dpkg-deb") is None:
        pytest.skip("this needs dpkg-deb and the version of Python of Debian 12 or 13")
    dist = tmp_path_factory.mktemp("dist")
    copy_wheels(wheel.parent, dist)
    for machine in ("aarch64", "x86_64"):
        with_compiled_module(dist / wheel.name, machine)
    return build(dist)


def copy_wheels(source: Path, target: Path) -> None:
    for path in source.glob("*.whl"):
        shutil.copy(path, target)


@pytest.mark.long
def test_two_builds_are_the_same_bytes(package: Path, tmp_path: Path) -> None:
    copy_wheels(package.parent, tmp_path)
    assert build(tmp_path).read_bytes() == package.read_bytes()


def files_of(package: Path, folder: str) -> set[str]:
    """Return the paths of the package's files in a folder, relative to it."""
    listing = subprocess.run(
        ["dpkg-deb", "--contents", package], capture_output=True, text=True, check=True
    )
    found = [line.partition(folder)[2] for line in listing.stdout.splitlines()]
    return {name for name in found if name and not name.endswith("/")}


def test_compiled_wheel_of_the_machine_is_chosen(package: Path) -> None:
    files = files_of(package, f"/opt/fieldpost/lib/python3.{sys.version_info[1]}/site-packages/")
    compiled = {name for name in files if name.endswith(".so")}
    assert compiled == {f"fieldpost/lib/{platform.machine()}.so"}


def test_shared_files_are_those_of_the_command(package: Path) -> None:
    assert files_of(package, "./usr/share/") == {
        "bash-completion/completions/fieldpost",
        "doc/fieldpost/copyright",
        "fieldpost/monitoring/fieldpost.dashboard.json",
        "fieldpost/monitoring/fieldpost.rules.yml",
        "fish/vendor_completions.d/fieldpost.fish",
        "man/man1/fieldpost.1.gz",
        "zsh/vendor-completions/_fieldpost",
    }


def is_installed(name: str) -> bool:
    query = ["dpkg-query", "--show", "--showformat", "${db:Status-Status}", name]
    done = subprocess.run(query, capture_output=True, text=True, check=False)
    return done.stdout == "installed"


def test_install_upgrade_remove_and_purge(package: Path, tmp_path: Path) -> None:
    missing = [name for name in NEEDED if not is_installed(name)]
    if os.geteuid() != 0 or missing:
        pytest.skip(f"this needs root and Debian's packages; missing: {missing}")
    work = tmp_path / "work"
    work.mkdir()
    site, minor = sysconfig.get_path("purelib"), f"3.{sys.version_info[1]}"
    command = ["unshare", "--mount", "--fork", "bash", "-euc", INSTALL, "install"]
    done = subprocess.run(
        [*command, str(work), site, minor, str(package), str(newer(package))],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=SECONDS,
    )  # fmt: skip
    if done.returncode == 77 or "unshare failed" in done.stderr:
        pytest.skip(f"this needs a mount namespace and overlayfs: {done.stderr}")
    assert done.returncode == 0, done.stdout + done.stderr
    for line in (
        "fieldpost, version ",
        "created gw1.example in /var/lib/fieldpost/gateway",
        "pump1@gw1.example",
        "fieldpost 700 '/var/lib/fieldpost/gateway'\n",
        "/var/lib/fieldpost/gateway/fieldpost.toml' -> '/etc/fieldpost/fieldpost.toml'\n",
        "#!/opt/fieldpost/bin/python3\n",
        f"+deb{DEBIAN}.backup\n",
        "\nfieldpost.db\n",
    ):
        assert line in done.stdout, line
    left = {line for line in done.stdout.splitlines() if line.startswith("left: ")}
    assert left == set(), "a purge leaves nothing"
