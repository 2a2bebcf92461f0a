# shellcheck shell=bash disable=SC2034
# What the commands and the parts share. Sourced, never run.
set -euo pipefail

TESTBED=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

# All state lives here, outside every checkout: one directory per part, `cache` for what is slow to make, `lock`.
if [[ $EUID -eq 0 ]]; then
    STATE=${RTAX_TESTBED:-/var/lib/rtax-testbed}
else
    STATE=${RTAX_TESTBED:-${XDG_STATE_HOME:-$HOME/.local/state}/rtax-testbed}
fi
CACHE=$STATE/cache
PART=$(basename "$0")
DIR=$STATE/$PART
# Debian puts daemons there, and a user's PATH may lack it.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin

say() { printf 'testbed: %s: %s\n' "$PART" "$*" >&2; }

die() {
    say "$*"
    exit 1
}

need_root() { [[ $EUID -eq 0 ]] || die "$1 needs root"; }

known_parts() { ls "$TESTBED/parts"; }

# The parts named, or all; an unknown one is a usage error.
chosen_parts() {
    local part
    for part in "$@"; do
        [[ $part != */* && -x $TESTBED/parts/$part ]] || {
            echo "testbed: unknown part '$part'; known: $(known_parts | paste -sd ' ')" >&2
            exit 2
        }
    done
    if [[ $# -gt 0 ]]; then printf '%s\n' "$@"; else known_parts; fi
}

# One change at a time. `flock -o`: the daemons that are started must not inherit the lock.
locked() {
    mkdir -p "$STATE" || exit 1
    flock -o -n -E 75 "$STATE/lock" true || echo "testbed: waiting for another up or down" >&2
    flock -o "$STATE/lock" "$@"
}

# COMMAND=PACKAGE…: installs the packages whose command is missing, without starting their services.
apt_install() {
    local pair missing=() guard=/usr/sbin/policy-rc.d
    for pair in "$@"; do
        command -v "${pair%%=*}" >/dev/null || missing+=("${pair#*=}")
    done
    [[ ${#missing[@]} -gt 0 ]] || return 0
    need_root "installing ${missing[*]}"
    command -v apt-get >/dev/null || die "please install ${missing[*]}: there is no apt-get here"
    say "installing ${missing[*]}"
    (
        if [[ ! -e $guard ]]; then
            trap 'rm -f "$guard"' EXIT
            printf '#!/bin/sh\nexit 101\n' >"$guard"
            chmod +x "$guard"
        fi
        export DEBIAN_FRONTEND=noninteractive
        apt-get update -qq || true # a broken extra source must not matter if the packages can be had
        apt-get install -y -qq --no-install-recommends -o DPkg::Lock::Timeout=300 "${missing[@]}"
    ) >"$STATE/apt.log" 2>&1 || die "apt-get failed: $(tail -n 5 "$STATE/apt.log")"
}

# SECONDS COMMAND…: repeats the command until it succeeds.
wait_for() {
    local end=$((SECONDS + $1))
    shift
    until "$@" >/dev/null 2>&1; do
        [[ $SECONDS -lt $end ]] || return 1
        sleep 0.1
    done
}

# PIDFILE WORD: prints the id if that process lives and has WORD in its command line (ids are reused).
pid_of() {
    local pid
    pid=$(cat "$1" 2>/dev/null) && [[ -n $pid ]] && grep -qsF -- "$2" "/proc/$pid/cmdline" && echo "$pid"
}

# WORD: ids of the processes with WORD in their command line, this script and its parents apart.
pids_with() {
    local file pid
    for file in /proc/[0-9]*/cmdline; do
        pid=${file//[!0-9]/}
        [[ $pid -ne $$ && $pid -ne $BASHPID && $pid -ne $PPID ]] || continue
        if grep -qsF -- "$1" "$file"; then echo "$pid"; fi
    done
}

# Kills what still runs in a cgroup of the testbed, under v1 and v2, and removes the cgroup.
remove_cgroup() {
    local top procs pid
    for top in "/sys/fs/cgroup/$1" /sys/fs/cgroup/*/"$1"; do
        [[ -d $top ]] || continue
        while read -r procs; do
            while read -r pid; do kill -KILL "$pid" 2>/dev/null || true; done <"$procs"
        done < <(find "$top" -name cgroup.procs)
        wait_for 5 eval "find '$top' -depth -type d -exec rmdir {} + ; [[ ! -d '$top' ]]" || say "cgroup $top is still in use"
    done
}

# Unmounts everything at or below a directory, the deepest first.
unmount_below() {
    local point
    awk '{print $5}' /proc/self/mountinfo | { grep -E "^$1(/|\$)" || true; } | sort -r | while read -r point; do
        umount "$point" 2>/dev/null || umount -l "$point" || true
    done
}

# What iptables held before the part was up.
remember_iptables() {
    local table
    for table in filter nat; do
        [[ -e $DIR/iptables.$table ]] || iptables -t "$table" -S >"$DIR/iptables.$table"
    done
}

# PATTERN: deletes the rules and chains that match it and were not there before.
restore_iptables() {
    local table line words
    for table in filter nat; do
        iptables -t "$table" -S | { grep -vxFf "$DIR/iptables.$table" || true; } | { grep -E "$1" || true; } >"$DIR/iptables.new"
        # Rules first, since a chain that is referred to cannot be deleted. iptables quotes what it prints for a shell.
        while read -r line; do
            case $line in -A*) eval "words=(${line//!/\\!})" && iptables -t "$table" -D "${words[@]:1}" ;; esac
        done < <(grep -- ^-A "$DIR/iptables.new")
        while read -r line; do
            case $line in -N*) iptables -t "$table" -F "${line#-N }" && iptables -t "$table" -X "${line#-N }" ;; esac
        done <"$DIR/iptables.new"
    done
}

# What every part ends with: its subcommands are its functions.
part_main() {
    case ${1-} in
        install | up | down | status | env) "part_$1" ;;
        *) echo "usage: $PART install|up|down|status|env" >&2; exit 2 ;;
    esac
}
