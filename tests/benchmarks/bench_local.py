"""What the local substrate adds to starting a program."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pytest_rtax.substrates.local import LocalSubstrate
from pytest_rtax.substrates.protocol import Environment, EnvironmentSpec

if TYPE_CHECKING:
    from tests.benchmarks.conftest import Figures

# One fork and exec per byte it reads; answers each with a byte, so that Python only times it.
FORK_EXEC = r"""
#include <sys/wait.h>
#include <unistd.h>
int main(void) {
    char c;
    while (read(0, &c, 1) == 1) {
        int status;
        pid_t child = fork();
        if (child == 0) { execl("/bin/true", "/bin/true", (char *)0); _exit(127); }
        waitpid(child, &status, 0);
        if (write(1, &c, 1) != 1) return 1;
    }
    return 0;
}
"""


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[Environment]:
    substrate = LocalSubstrate(root=tmp_path / "environments")
    environment = substrate.create(EnvironmentSpec(run="bench", id="bench"))
    yield environment
    environment.destroy()


@pytest.fixture
def fork_exec(tmp_path: Path) -> Iterator[Callable[[], object]]:
    """Bare fork and exec, by a C program of one page: nothing in it makes the fork dearer than it has to be."""
    if shutil.which("cc") is None:
        pytest.fail("the bar is a bare fork and exec in C: install a C compiler (cc)")
    program = tmp_path / "fork_exec"
    subprocess.run(["cc", "-O2", "-x", "c", "-", "-o", str(program)], input=FORK_EXEC.encode(), check=True)
    with subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdin is not None and process.stdout is not None
        to, back = process.stdin.fileno(), process.stdout.fileno()

        def run() -> object:
            os.write(to, b".")
            return os.read(back, 1)

        yield run
        process.stdin.close()


def side_by_side(contenders: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """The median seconds of each, measured in turns so that a noisy moment slows all of them alike."""
    samples: dict[str, list[int]] = {name: [] for name in contenders}
    for run in contenders.values():
        for _ in range(20):
            run()
    for _ in range(rounds):
        for name, run in contenders.items():
            start = time.perf_counter_ns()
            run()
            samples[name].append(time.perf_counter_ns() - start)
    return {name: float(np.median(taken)) / 1e9 for name, taken in samples.items()}


def spawn() -> object:
    return os.waitpid(os.posix_spawn("/bin/true", ["/bin/true"], {}), 0)


def test_session(environment: Environment, fork_exec: Callable[[], object], figures: Figures) -> None:
    session = environment.open_session()
    taken = side_by_side(
        {
            "fork": fork_exec,
            "spawn": spawn,
            "session": lambda: session.run(["/bin/true"]),
            "exec": lambda: environment.run(["/bin/true"]),
            "session, string": lambda: session.run("/bin/true"),
            "exec, string": lambda: environment.run("/bin/true"),
        },
        rounds=1500,
    )
    bare = taken["fork"]
    figures.add("bare fork/exec of `/bin/true` in C, p50", f"{bare * 1e6:.0f} µs")
    figures.add("`os.posix_spawn` of it from Python, p50", f"{taken['spawn'] * 1e6:.0f} µs")
    ratio = taken["session"] / bare
    figures.add(
        "`local` session `/bin/true`, p50", f"{taken['session'] * 1e6:.0f} µs = {ratio:.2f} × fork/exec", "≤ 1.3 ×"
    )
    for name in ("exec", "session, string", "exec, string"):
        figures.add(
            f"`local` {name} `/bin/true`, p50", f"{taken[name] * 1e6:.0f} µs = {taken[name] / bare:.2f} × fork/exec"
        )
    assert ratio <= 1.3
