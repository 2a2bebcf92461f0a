"""What a run's figures depend on, read off the machine: commit, versions, processor, load."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pytest_rtax.untrusted import redact

_PACKAGES = (
    "pytest-rtax", "pytest", "pluggy", "pytest-benchmark", "pytest-xdist", "msgspec", "numpy", "scipy", "docker",
    "kubernetes", "e2b", "boto3",
)  # fmt: skip


def command_line(argv: Sequence[str]) -> list[str]:
    """How pytest was called, without credentials."""
    return ["pytest", *map(redact, argv)]


def git_state(directory: Path) -> dict[str, Any]:
    """The commit that is being measured, and whether the tree differs from it; empty outside a repository."""
    commit = _git(directory, "rev-parse", "HEAD")
    if commit is None:
        return {}
    status = _git(directory, "status", "--porcelain", "--untracked-files=no")
    branch = _git(directory, "rev-parse", "--abbrev-ref", "HEAD")
    return {"commit": commit, "dirty": None if status is None else bool(status), "branch": branch}


def _git(directory: Path, *arguments: str) -> str | None:
    try:
        answer = subprocess.run(
            ["git", *arguments],
            cwd=directory,
            capture_output=True,
            encoding="utf-8",
            errors="replace",  # a branch may be called anything
            timeout=10,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return answer.stdout.strip() if answer.returncode == 0 else None


def versions() -> dict[str, str]:
    """Python and every installed package that a figure may depend on."""
    found = {"python": platform.python_version(), "implementation": sys.implementation.name}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def machine() -> dict[str, Any]:
    """Processor, cores, memory and kernel of the driver's machine."""
    return {
        "host": platform.node(),
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "usable_cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "kernel": platform.release(),
        "system": f"{platform.system()} {platform.machine()}",
    }


def _cpu_model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return platform.processor()
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    return match[1] if match else platform.processor()


def load() -> list[float]:
    """The load averages over 1, 5 and 15 minutes."""
    return list(os.getloadavg())
