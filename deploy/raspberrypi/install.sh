#!/usr/bin/env bash
# Install or upgrade the Fieldpost gateway on 64-bit Raspberry Pi OS or Debian, 12 or newer.
#
#   sudo ./install.sh [--domain NAME] [--listen HOST:PORT]... [--constraint FILE] [--dry-run] PACKAGE
#
# PACKAGE is what pip installs: the path of a wheel, or a requirement. With a wheel, those of the firmware
# library beside it, fieldpost_device-*.whl, are installed too. --constraint is passed to pip: a file with
# the exact versions of the dependencies. --domain is required the first time. --listen is
# used the first time too, and may be repeated; the default is port 5222 of all IPv4 addresses, and of
# all IPv6 addresses if the machine has IPv6. Direct TLS uses the next port.
#
# Run it again to upgrade: each version gets its own folder below /opt/fieldpost/releases, and
# `current` is switched only when the new one is complete, so that a power cut leaves the old one in
# place. If the new version changes the database (a migration), the gateway is stopped first and backed
# up to /var/lib/fieldpost/before-upgrade.backup, in place of the backup of the last such upgrade. If
# the new version does not start, the old version is started again, with its database, and the database
# of the new version is kept in /var/lib/fieldpost/failed-upgrade. The existing configuration in
# /var/lib/fieldpost is never changed.
#
# --dry-run prints what would be done. --root DIR installs below DIR, without root privileges and
# without touching users and services; it is meant for tests, which may set $SYSTEMCTL to a command that
# starts and stops the gateway there. $PYTHON names another Python than python3.
set -euo pipefail
umask 022       # the gateway's user must be able to read the files
exec 3>&1

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly HERE
readonly OPT=/opt/fieldpost
readonly STATE=/var/lib/fieldpost
readonly UNIT=/etc/systemd/system/fieldpost.service
readonly COMMAND=/usr/local/bin/fieldpost
readonly ACCOUNT=fieldpost
readonly PYTHON=${PYTHON:-python3}
readonly BACKUP=$STATE/before-upgrade.backup
readonly FAILED=$STATE/failed-upgrade   # the database of a new version that did not start
readonly KEPT_RELEASES=2        # the current one and the previous one
readonly NEEDED_MIB=250         # an environment takes 80 MB, and pip needs temporary copies

package='' packages=() constraint='' domain='' listen=() root='' dry=no release='' unfinished='' previous='' backup=''
old_unit=''

usage() { sed -nE '/^#!/d; /^#/!q; s/^# ?//p' "${BASH_SOURCE[0]}"; }
say() { printf 'fieldpost: %s\n' "$*"; }
die() { printf 'fieldpost: %s\n' "$*" >&2; exit 1; }
misused() { printf 'fieldpost: %s (see --help)\n' "$*" >&2; exit 2; }

# Run a command, or print it in a dry run.
run() {
    if [ "$dry" = no ]; then "$@"; return; fi
    { printf 'would run:'; printf ' %q' "$@"; echo; } >&3
}

# Run a command that changes more than files, unless --root is given.
on_machine() {
    if [ -z "$root" ]; then run "$@"; else say "skipped because of --root: $*"; fi
}

service() {
    if [ -n "${SYSTEMCTL:-}" ]; then run "$SYSTEMCTL" "$@"; else on_machine systemctl "$@"; fi
}

# Run a command as the gateway's user, so that it owns the created files.
as_gateway() {
    if [ -z "$root" ]; then run runuser -u "$ACCOUNT" -- "$@"; else run "$@"; fi
}

arguments() {
    while [ $# -gt 0 ]; do
        case $1 in
            --domain | --listen | --constraint | --root)
                [ $# -ge 2 ] || misused "$1 needs a value"
                case $1 in
                    --domain) domain=$2 ;;
                    --listen) listen+=(--listen "$2") ;;
                    --constraint) constraint=$2 ;;
                    --root) root=${2%/} ;;
                esac
                shift ;;
            --dry-run) dry=yes ;;
            --help | -h) usage; exit 0 ;;
            -*) misused "unknown option $1" ;;
            *) [ -z "$package" ] || misused "give one package, not $package and $1"; package=$1 ;;
        esac
        shift
    done
    [ -n "$package" ] || misused "the package is missing: give the path of a wheel, or a requirement"
    [ "${#listen[@]}" -gt 0 ] || listen_everywhere
    [ -z "$root" ] || [ -d "$root" ] || misused "--root $root is not a folder"
    packages=("$package")
    case $package in
        *.whl)
            package=$(existing "$package")
            mapfile -t packages < <(compgen -G "${package%/*}/fieldpost_device-*.whl")
            packages+=("$package") ;;
    esac
    [ -z "$constraint" ] || constraint=$(existing "$constraint")
}

listen_everywhere() {
    listen=(--listen 0.0.0.0:5222)
    [ ! -e /proc/net/if_inet6 ] || listen+=(--listen '[::]:5222')
}

# existing FILE: print its full path.
existing() {
    [ -f "$1" ] || die "$1 does not exist"
    realpath "$1"
}

# os_release KEY: print a value of os-release, or nothing.
os_release() {
    local file=$root/etc/os-release
    [ -f "$file" ] || file=/etc/os-release
    sed -nE "s/^$1=\"?([^\"]*)\"?\$/\\1/p" "$file" 2> /dev/null || true
}

check_system() {
    case $(uname -m) in
        aarch64 | x86_64) ;;
        *) die "this is a $(uname -m); Fieldpost runs on aarch64 (64-bit Raspberry Pi OS) and x86-64" ;;
    esac
    # Older images of Raspberry Pi OS have a 64-bit kernel under a 32-bit system.
    [ "$(getconf LONG_BIT)" = 64 ] || die "this is a 32-bit system; install the 64-bit Raspberry Pi OS"
    local name version
    name=$(os_release ID) version=$(os_release VERSION_ID)
    case " $name $(os_release ID_LIKE) " in
        *' debian '*) [ "${version%%.*}" -ge 12 ] 2> /dev/null \
            || die "this is $name ${version:-without a version}; Fieldpost needs Debian 12 or newer" ;;
        *) die "this system is ${name:-unknown}, not Debian or Raspberry Pi OS" ;;
    esac
    [ -n "$root" ] || [ "$dry" = yes ] || [ "$(id -u)" = 0 ] || die "run this as root: sudo $0"
}

check_python() {
    command -v "$PYTHON" > /dev/null || die "$PYTHON is not installed: apt-get install python3 python3-venv"
    "$PYTHON" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
        || die "$("$PYTHON" -V) is not supported; set PYTHON to Python 3.11, 3.12 or 3.13: PYTHON=/path/to/python3 $0"
    "$PYTHON" -c 'import ensurepip, venv' 2> /dev/null \
        || die "$PYTHON cannot create virtual environments: apt-get install python3-venv"
}

check_room() {
    local free
    free=$(df --output=avail -m "${root:-/opt}" | tail -n 1)
    [ "$free" -ge "$NEEDED_MIB" ] || die "$OPT needs $NEEDED_MIB MiB, but only $free MiB are free"
}

initialised() { [ -e "$root$STATE/fieldpost.toml" ]; }

check_state() {
    initialised || [ -n "$domain" ] \
        || misused "give the permanent address of the gateway with --domain NAME (such as gw1.example.org)"
    if ! initialised && [ -n "$(ls -A "$root$STATE" 2> /dev/null)" ]; then
        die "$STATE has files but no fieldpost.toml; restore a backup there, or move the files away"
    fi
    if initialised && [ -n "$domain" ]; then
        say "$STATE exists already: --domain and --listen have no effect"
    fi
}

make_account() {
    if [ -z "$root" ] && id "$ACCOUNT" > /dev/null 2>&1; then return; fi
    on_machine useradd --system --user-group --home-dir "$STATE" --no-create-home \
        --shell /usr/sbin/nologin "$ACCOUNT"
}

install_release() {
    release=$OPT/releases/$(date -u +%Y%m%dT%H%M%SZ)
    unfinished=$root$release
    [ ! -e "$unfinished" ] || die "$release exists; try again"
    [ "$dry" = yes ] || trap 'rm -rf "$unfinished"' EXIT
    say "installing $package into $release"
    run mkdir -p "$root$OPT/releases"
    run "$PYTHON" -m venv "$unfinished"
    run "$unfinished/bin/python" -m pip install --quiet --no-input --disable-pip-version-check \
        ${constraint:+--constraint "$constraint"} "${packages[@]}" \
        || die "pip could not install $package; the current version is untouched"
    # Check that the new version starts. pip has compiled it, because the service cannot write there.
    run "$unfinished/bin/fieldpost" --help > /dev/null || die "the new version does not start"
    run sync -f "$root$OPT/releases"
    trap - EXIT
}

# switch_release RELEASE
switch_release() {
    run ln -sfn "$1" "$root$OPT/next"
    run mv -T "$root$OPT/next" "$root$OPT/current"
    run sync -f "$root$OPT"
}

# The command `fieldpost` runs as the gateway's user, on the gateway's folder.
install_command() {
    run mkdir -p "$root${COMMAND%/*}"
    run install_text "$root$COMMAND" 755 "#!/bin/sh
# Written by Fieldpost's install.sh.
export FIELDPOST_DIR=\"\${FIELDPOST_DIR:-$STATE}\"
cd / || exit 1
[ \"\$(id -u)\" != 0 ] || exec runuser -u $ACCOUNT -- $OPT/current/bin/fieldpost \"\$@\"
exec $OPT/current/bin/fieldpost \"\$@\""
}

# install_text FILE MODE TEXT: write a file atomically.
install_text() {
    printf '%s\n' "$3" > "$1.new"
    chmod "$2" "$1.new"
    mv -T "$1.new" "$1"
}

# Create the folder as the gateway's user under a temporary name, then rename it.
initialise() {
    if initialised; then return; fi
    local making=$root$STATE.making
    run rm -rf -- "$making"
    run install -d -m 700 "$making"
    on_machine chown "$ACCOUNT:$ACCOUNT" "$making"
    as_gateway "$root$release/bin/fieldpost" init --dir "$making/state" --domain "$domain" \
        "${listen[@]}"
    run mv -T "$making/state" "$root$STATE"
    run rmdir "$making"
}

# Remember what there is to go back to.
find_previous() {
    local current
    current=$(readlink "$root$OPT/current" || true)
    if initialised && [ -n "$current" ] && [ -x "$root$current/bin/fieldpost" ]; then
        previous=$current
        old_unit=$(cat "$root$UNIT" 2> /dev/null || true)
    fi
}

# Print whether the new version would migrate the database: True or False.
would_migrate() {
    as_gateway "$root$release/bin/python" -c '
import sys
from contextlib import closing
from pathlib import Path
import fieldpost
fieldpost.use_library()
from edge.engine.store import database
with closing(database.connect_reader(Path(sys.argv[1]))) as connection:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
print(version < database.migrations()[-1][0])' "$root$STATE/fieldpost.db"
}

# Back up before a migration. The gateway is stopped, so that a backup lacks nothing that it acknowledges.
back_up() {
    if [ -z "$previous" ] || [ "$dry" = yes ]; then return; fi
    local migration
    migration=$(would_migrate) || refuse "the database cannot be read"
    [ "$migration" = True ] || return 0
    say "the new version migrates the database: stopping the gateway, backing up to $BACKUP"
    # An interrupted upgrade, as by a lost SSH connection, must not leave the gateway stopped.
    trap 'service start fieldpost.service || true' EXIT
    service stop fieldpost.service || refuse "the gateway cannot be stopped"
    rm -f "$root$BACKUP.new"
    as_gateway "$root$previous/bin/fieldpost" backup --dir "$root$STATE" "$root$BACKUP.new" > /dev/null \
        || refuse "the backup has failed"
    mv -T "$root$BACKUP.new" "$root$BACKUP"
    backup=$root$BACKUP
}

# refuse REASON: end before anything was changed, with the current version running.
refuse() {
    trap - EXIT
    rm -rf "${root:?}$release" "$root$BACKUP.new"
    service start fieldpost.service || true
    die "$1; the current version is untouched"
}

start_service() {
    run mkdir -p "$root${UNIT%/*}"
    run install -m 644 "$HERE/fieldpost.service" "$root$UNIT"
    service daemon-reload
    service enable --quiet fieldpost.service
    # This returns when the gateway is ready.
    if service restart fieldpost.service; then trap - EXIT; return; fi
    trap - EXIT
    [ -n "$previous" ] || die "the gateway does not start; see: journalctl -u fieldpost -n 50"
    go_back
}

# Start the previous version again. Devices can connect to the new one some moments before it is ready,
# and the service manager may have started it again, so its database may have messages that the backup
# lacks: it is kept.
go_back() {
    local restored=$root$STATE/before-upgrade kept=''
    say "the new version does not start: going back to $previous" >&2
    service stop fieldpost.service || die "the gateway cannot be stopped; its backup is ${backup:-not needed}"
    if [ -n "$backup" ]; then
        rm -rf "$restored"
        as_gateway "$root$previous/bin/fieldpost" restore "$backup" --dir "$restored" > /dev/null \
            || die "$backup cannot be restored; the gateway is stopped"
        # The log goes with its database, because it must not be replayed into the old one. After a power
        # cut in between there is no database, which the gateway reports, and not a damaged one.
        rm -rf "${root:?}$FAILED"
        as_gateway mkdir -m 700 "$root$FAILED"
        mv -T "$root$STATE/fieldpost.db" "$root$FAILED/fieldpost.db"
        mv -t "$root$FAILED" "$root$STATE"/fieldpost.db-* 2> /dev/null || true
        sync -f "$root$STATE"
        mv -T "$restored/fieldpost.db" "$root$STATE/fieldpost.db"
        rm -rf "$restored"
        sync -f "$root$STATE"
        kept="; what the new version accepted, if anything, is in $FAILED"
    fi
    switch_release "$previous"
    [ -z "$old_unit" ] || install_text "$root$UNIT" 644 "$old_unit"
    service daemon-reload
    service start fieldpost.service \
        || die "the previous version does not start either; see: journalctl -u fieldpost -n 50"
    rm -rf "${root:?}$release"
    die "the new version did not start, and the previous one runs again$kept; see: journalctl -u fieldpost -n 50"
}

drop_old_releases() {
    [ "$dry" = no ] || return 0
    local releases=$root$OPT/releases current name
    current=$(basename "$(readlink "$root$OPT/current")")
    find "$releases" -mindepth 1 -maxdepth 1 -type d -printf '%f\n' | sort -r \
        | tail -n "+$((KEPT_RELEASES + 1))" | while read -r name; do
            [ "$name" = "$current" ] || rm -rf -- "${releases:?}/${name:?}"
        done
}

main() {
    arguments "$@"
    cd /        # a folder that the gateway's user can enter
    check_system
    check_python
    check_room
    check_state
    make_account
    find_previous
    install_release
    initialise
    back_up
    switch_release "$release"
    install_command
    start_service
    drop_old_releases
    say "done. Add a device: sudo fieldpost device add NAME. See the log: journalctl -u fieldpost"
}

main "$@"
