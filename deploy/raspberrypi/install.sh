#!/usr/bin/env bash
# Installs or upgrades the Fieldpost gateway on 64-bit Raspberry Pi OS or Debian, 12 or newer.
#
#   sudo ./install.sh [--domain NAME] [--listen HOST:PORT]... [--constraint FILE] [--dry-run] PACKAGE
#
# PACKAGE is what pip installs: the path of a wheel, or a requirement. --constraint is pip's: the exact
# versions of all that the package needs. --domain is needed the first time. --listen is for the first
# time too, and may be given several times; if it is not given, the gateway listens on port 5222 of all
# addresses, of IPv6 where the machine has it. TLS from the first byte is on the port after each.
#
# Run it again to upgrade: each version goes into a folder of its own below /opt/fieldpost/releases,
# and `current` is switched only when the new one is whole, so that a power cut in the middle leaves
# the old one. Configuration and data in /var/lib/fieldpost are never changed once they are there.
#
# --dry-run tells what it would do. --root DIR works below DIR, without root and without touching the
# machine's users and services: for tests, since an environment knows the path that it was made at.
# $PYTHON names another Python than python3.
set -euo pipefail
umask 022       # the gateway's user reads what root installs
exec 3>&1

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly HERE
readonly OPT=/opt/fieldpost
readonly STATE=/var/lib/fieldpost
readonly UNIT=/etc/systemd/system/fieldpost.service
readonly COMMAND=/usr/local/bin/fieldpost
readonly ACCOUNT=fieldpost
readonly PYTHON=${PYTHON:-python3}
readonly KEPT_RELEASES=2        # the one that runs and the one before it
readonly NEEDED_MIB=250         # an environment is some 80 MB, and pip unpacks it once more

package='' constraint='' domain='' listen=() root='' dry=no release='' unfinished=''

usage() { sed -nE '/^#!/d; /^#/!q; s/^# ?//p' "${BASH_SOURCE[0]}"; }
say() { printf 'fieldpost: %s\n' "$*"; }
die() { printf 'fieldpost: %s\n' "$*" >&2; exit 1; }
misused() { printf 'fieldpost: %s (see --help)\n' "$*" >&2; exit 2; }

# Runs a command, or tells of it.
run() {
    if [ "$dry" = no ]; then "$@"; return; fi
    { printf 'would run:'; printf ' %q' "$@"; echo; } >&3
}

# Runs a command that changes the machine beyond files: never below another root.
on_machine() {
    if [ -z "$root" ]; then run "$@"; else say "below $root, left out: $*"; fi
}

# Runs a command as the gateway's user, so that it owns what it makes.
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
            *) [ -z "$package" ] || misused "one package, not $package and $1"; package=$1 ;;
        esac
        shift
    done
    [ -n "$package" ] || misused "name the package: the path of a wheel, or a requirement"
    [ "${#listen[@]}" -gt 0 ] || listen_everywhere
    [ -z "$root" ] || [ -d "$root" ] || misused "--root $root is no folder"
    case $package in *.whl) package=$(existing "$package") ;; esac
    [ -z "$constraint" ] || constraint=$(existing "$constraint")
}

listen_everywhere() {
    listen=(--listen 0.0.0.0:5222)
    [ ! -e /proc/net/if_inet6 ] || listen+=(--listen '[::]:5222')
}

# existing FILE: its full path.
existing() {
    [ -f "$1" ] || die "$1 is not there"
    realpath "$1"
}

# os_release KEY: what the system says of itself, or nothing.
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
    # A 64-bit kernel under a 32-bit system, as older images of Raspberry Pi OS have it.
    [ "$(getconf LONG_BIT)" = 64 ] || die "this is a 32-bit system; flash the 64-bit Raspberry Pi OS"
    local name version
    name=$(os_release ID) version=$(os_release VERSION_ID)
    case " $name $(os_release ID_LIKE) " in
        *' debian '*) [ "${version%%.*}" -ge 12 ] 2> /dev/null \
            || die "this is $name ${version:-without a version}; it takes Debian 12 or newer" ;;
        *) die "this is ${name:-unknown}, not Debian or Raspberry Pi OS" ;;
    esac
    [ -n "$root" ] || [ "$dry" = yes ] || [ "$(id -u)" = 0 ] || die "run it as root: sudo $0"
}

check_python() {
    command -v "$PYTHON" > /dev/null || die "no $PYTHON: apt-get install python3 python3-venv"
    "$PYTHON" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' \
        || die "$("$PYTHON" -V) is not 3.11 to 3.13; name another: PYTHON=/path/to/python3 $0"
    "$PYTHON" -c 'import ensurepip, venv' 2> /dev/null \
        || die "$PYTHON makes no virtual environments: apt-get install python3-venv"
}

check_room() {
    local free
    free=$(df --output=avail -m "${root:-/opt}" | tail -n 1)
    [ "$free" -ge "$NEEDED_MIB" ] || die "only $free MiB free for $OPT; it needs $NEEDED_MIB"
}

initialised() { [ -e "$root$STATE/fieldpost.toml" ]; }

check_state() {
    initialised || [ -n "$domain" ] \
        || misused "name the gateway with --domain NAME: its address, for good (such as gw1.example.org)"
    if ! initialised && [ -n "$(ls -A "$root$STATE" 2> /dev/null)" ]; then
        die "$STATE holds files but no fieldpost.toml; restore a back-up there, or move them away"
    fi
    if initialised && [ -n "$domain" ]; then
        say "$STATE is initialised already: --domain and --listen change nothing there"
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
    [ ! -e "$unfinished" ] || die "$release was made this very second; try again"
    [ "$dry" = yes ] || trap 'rm -rf "$unfinished"' EXIT
    say "installing $package into $release"
    run mkdir -p "$root$OPT/releases"
    run "$PYTHON" -m venv "$unfinished"
    run "$unfinished/bin/python" -m pip install --quiet --no-input --disable-pip-version-check \
        ${constraint:+--constraint "$constraint"} "$package" \
        || die "pip could not install $package; what runs now is untouched"
    # It has to start at all. (pip compiled it: the service may not write there.)
    run "$unfinished/bin/fieldpost" --help > /dev/null || die "the new version does not start"
    run sync -f "$root$OPT/releases"
    trap - EXIT
}

switch_release() {
    run ln -sfn "$release" "$root$OPT/next"
    run mv -T "$root$OPT/next" "$root$OPT/current"
    run sync -f "$root$OPT"
}

# `fieldpost` on the path is the gateway's command, as the gateway's user, on the gateway's folder.
install_command() {
    run mkdir -p "$root${COMMAND%/*}"
    run install_text "$root$COMMAND" 755 "#!/bin/sh
# Written by Fieldpost's install.sh.
export FIELDPOST_DIR=\"\${FIELDPOST_DIR:-$STATE}\"
cd / || exit 1
[ \"\$(id -u)\" != 0 ] || exec runuser -u $ACCOUNT -- $OPT/current/bin/fieldpost \"\$@\"
exec $OPT/current/bin/fieldpost \"\$@\""
}

# install_text FILE MODE TEXT: the file appears whole or not at all.
install_text() {
    printf '%s\n' "$3" > "$1.new"
    chmod "$2" "$1.new"
    mv -T "$1.new" "$1"
}

# The folder is made as the gateway's user, in a place of its own, and appears whole or not at all.
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

start_service() {
    run mkdir -p "$root${UNIT%/*}"
    run install -m 644 "$HERE/fieldpost.service" "$root$UNIT"
    on_machine systemctl daemon-reload
    on_machine systemctl enable --quiet fieldpost.service
    # Returns when the gateway is `ready`.
    on_machine systemctl restart fieldpost.service \
        || die "it does not get ready; see: journalctl -u fieldpost -n 50"
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
    cd /        # a folder that the gateway's user may be in
    check_system
    check_python
    check_room
    check_state
    make_account
    install_release
    initialise
    switch_release
    install_command
    start_service
    drop_old_releases
    say "done. Devices: sudo fieldpost device add NAME. Log: journalctl -u fieldpost"
}

main "$@"
