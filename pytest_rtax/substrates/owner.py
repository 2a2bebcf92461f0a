"""Who owns an environment, in terms that another process can check later: plain text, fit for labels and tags."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path


def signature(run: str, ttl: float) -> dict[str, str]:
    """Names this process for good, and the time after which the environment may be removed in any event."""
    return {
        "run": run,
        "pid": str(os.getpid()),
        "start": start_time(os.getpid()) or "",
        "boot": _boot(),
        "namespace": _pid_namespace(),
        "deadline": str(round(time.time() + ttl)),
    }


def is_alive(owner: Mapping[str, str]) -> bool:
    """As far as can be seen from here.

    Of a process on another machine or in another container nothing can: it counts as alive until its deadline.
    """
    if owner.get("boot") == _boot() and owner.get("namespace") == _pid_namespace():
        pid = owner.get("pid", "")
        return pid.isdecimal() and start_time(int(pid)) == owner.get("start")
    deadline = owner.get("deadline", "")
    return not deadline.isdecimal() or time.time() < int(deadline)


def start_time(pid: int) -> str | None:
    """The kernel's start time of a process: with boot and pid, it names a process for good."""
    stat = read_stat(pid)
    return None if stat is None else stat[19]


def read_stat(pid: int) -> list[str] | None:
    """The fields of a process from its state on: the name before them may hold anything."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def _pid_namespace() -> str:
    return str(Path("/proc/self/ns/pid").readlink())
