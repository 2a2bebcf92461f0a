"""Is the instrument true, and what does it cost itself?"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pytest_rtax.measure.case import Case
from pytest_rtax.measure.engine import Engine
from pytest_rtax.records.recorder import Recorder
from pytest_rtax.records.schema import Trial
from pytest_rtax.settings import Settings
from pytest_rtax.stats.metrics import values
from pytest_rtax.substrates.null import Delay, NullSubstrate
from pytest_rtax.workloads.checkout import Checkout
from pytest_rtax.workloads.tiers import WORKLOADS

if TYPE_CHECKING:
    from tests.benchmarks.conftest import Figures

MS = 1_000_000


def measure(substrate: NullSubstrate, out: Path, *, length: int, trials: int) -> list[Trial]:
    """As the plugin does it, records written."""
    recorder = Recorder("bench", Settings.read({}, {}, out, out), [], out, workers=0)
    engine = Engine(
        run="bench",
        seed=0,
        substrates={"null": substrate},
        workloads=WORKLOADS,
        checkout=Checkout(),
        emit=recorder.record,
    )
    case = Case("null", "exec", "T0", length, trials, 1, 0.0, id="bench", test="bench")
    engine.measure([case])
    recorder.finish("complete")
    return recorder.trials


def test_calibration(tmp_path: Path, figures: Figures) -> None:
    told = {"create": 20, "ready": 50, "action": 5, "inside": 3, "cleanup": 10}
    delays = {name: Delay(milliseconds * MS) for name, milliseconds in told.items()}
    trials = measure(NullSubstrate(**delays), tmp_path, length=10, trials=40)  # type: ignore[arg-type]
    for metric, truth in {**told, "dispatch": 2, "cold_start": 70, "total": 130}.items():
        seen = float(np.median(values(trials, metric))) / MS
        figures.add(f"calibration: {metric}, told {truth} ms", f"{seen:.3f} ms", "within 1 ms")
        assert abs(seen - truth) <= 1.0


def test_calibration_of_long_delays(tmp_path: Path, figures: Figures) -> None:
    told = {"create": 100, "ready": 400, "action": 100, "cleanup": 150}
    delays = {name: Delay(milliseconds * MS) for name, milliseconds in told.items()}
    trials = measure(NullSubstrate(**delays), tmp_path, length=3, trials=10)  # type: ignore[arg-type]
    for metric, truth in {**told, "cold_start": 500, "total": 950}.items():
        seen = float(np.median(values(trials, metric))) / MS
        figures.add(f"calibration: {metric}, told {truth} ms", f"{seen:.2f} ms", "within 2 %")
        assert abs(seen - truth) <= 0.02 * truth


def test_cost_of_an_action(tmp_path: Path, figures: Figures) -> None:
    trials = measure(NullSubstrate(), tmp_path, length=1000, trials=30)
    cost = statistics.median(trial.phases["actions"] / trial.length for trial in trials) / 1000
    figures.add("harness time per action on `null`, p50", f"{cost:.1f} µs", "≤ 30 µs")
    assert cost <= 30


def test_cost_of_a_trial(tmp_path: Path, figures: Figures) -> None:
    """From the end of one trial to the end of the next, record written, less its one action."""
    ends: list[int] = []
    recorder = Recorder("bench", Settings.read({}, {}, tmp_path, tmp_path), [], tmp_path, workers=0)

    def emit(trial: Trial) -> None:
        recorder.record(trial)
        ends.append(time.perf_counter_ns())

    engine = Engine(
        run="bench",
        seed=0,
        substrates={"null": NullSubstrate()},
        workloads=WORKLOADS,
        checkout=Checkout(),
        emit=emit,
    )
    engine.measure([Case("null", "exec", "T0", 1, 500, 1, 0.0, id="bench", test="bench")])
    actions = [trial.phases["actions"] for trial in recorder.trials[1:]]
    cost = float(np.median(np.diff(ends) - np.array(actions))) / MS
    figures.add("harness time per trial apart from actions, p50", f"{cost:.3f} ms", "≤ 1 ms")
    assert cost <= 1.0


MEMORY = """
import pathlib, sys
sys.path.insert(0, sys.argv[2])
from bench_instrument import measure
from pytest_rtax.substrates.null import NullSubstrate
from pytest_rtax.stats.metrics import values

def resident():
    return int(pathlib.Path("/proc/self/statm").read_text().split()[1]) * 4096

out = pathlib.Path(sys.argv[1])
measure(NullSubstrate(), out / "first", length=10, trials=2)
before = resident()
trials = measure(NullSubstrate(), out / "second", length=100, trials=1000)
assert sum(len(trial.actions) for trial in trials) >= 100_000
print((resident() - before) / 1e6)
"""


def test_memory(tmp_path: Path, figures: Figures) -> None:
    answer = subprocess.run(
        [sys.executable, "-c", MEMORY, str(tmp_path), str(Path(__file__).parent)],
        capture_output=True,
        text=True,
        check=True,
    )
    megabytes = float(answer.stdout)
    figures.add("growth of RSS over 100,000 recorded actions", f"{megabytes:.0f} MB", "< 200 MB")
    assert megabytes < 200


def test_start_up_of_a_project_that_does_not_use_it(tmp_path: Path, figures: Figures) -> None:
    (tmp_path / "test_plain.py").write_text("def test_plain(): pass\n")
    without: list[float] = []
    with_it: list[float] = []
    for _ in range(25):
        for taken, arguments in ((without, ["-p", "no:rtax"]), (with_it, [])):
            start = time.perf_counter()
            subprocess.run(
                [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments],
                cwd=tmp_path,
                check=True,
                capture_output=True,
            )
            taken.append(time.perf_counter() - start)
    added = (statistics.median(with_it) - statistics.median(without)) * 1000
    figures.add("pytest start-up with the plugin installed and unused", f"+{added:.1f} ms", "≤ 15 ms")
    assert added <= 15
