"""The summary at the end of a run: p50 and p95 of every case, on 80 columns and in a log without colour."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from pytest_rtax.records.schema import Trial
from pytest_rtax.stats.metrics import measured, succeeded, values
from pytest_rtax.stats.quantiles import certifiable, quantiles
from pytest_rtax.units import format_duration
from pytest_rtax.untrusted import one_line

COLUMNS: Final = {
    "cold_start": "cold",
    "setup": "setup",
    "action": "action",
    "dispatch": "dispatch",
    "cleanup": "cleanup",
    "total": "total",
    "tax_share": "tax",
}
"""The metrics of the table and their headings."""
UNKNOWN: Final = "-"
_WIDTHS: Final = {metric: max(6, len(heading)) for metric, heading in COLUMNS.items()}
_FIGURES_WIDTH: Final = sum(_WIDTHS.values()) + len(_WIDTHS)


class Line(NamedTuple):
    """One line, and whether it stands out."""

    text: str
    bold: bool = False


def summary(trials: Sequence[Trial], width: int) -> Iterator[Line]:
    """The table: one test after the other, two lines for each of its cases."""
    tests: dict[str, dict[str, list[Trial]]] = {}
    for trial in trials:
        tests.setdefault(trial.test, {}).setdefault(trial.case, []).append(trial)
    names = [_name(of_case[0], width - 2) for cases in tests.values() for of_case in cases.values()]
    room = max((len(name) for name in names if len(name) <= width - _FIGURES_WIDTH - 11), default=12)
    headings = "".join(f" {heading:>{_WIDTHS[metric]}}" for metric, heading in COLUMNS.items())
    yield Line(f"  {'':{room}} {'n':>4} {'':3}{headings}")
    for test, cases in tests.items():
        tier = next(iter(cases.values()))[0].tier
        yield Line(one_line(f"{test.rpartition('::')[2]} ({tier})", width), bold=True)
        for of_case in sorted(cases.values(), key=lambda of_case: (of_case[0].length, of_case[0].case)):
            yield from _case(of_case, room, width)
    if not all(certifiable(0.95, len(succeeded(of_case))) for cases in tests.values() for of_case in cases.values()):
        yield Line("p95 of fewer than 59 trials is an estimate that no bound can be stated for.")


def _name(trial: Trial, room: int) -> str:
    """Substrate, transport and length; if there is not enough room, the substrate's options give way."""
    rest = f" {trial.transport} {trial.length}"
    return one_line(trial.substrate, max(1, room - len(rest))) + rest


def _case(trials: Sequence[Trial], room: int, width: int) -> Iterator[Line]:
    counted = measured(trials)
    failed = len(counted) - len(succeeded(trials))
    figures = [_figures(trials, metric) for metric in COLUMNS]
    name = _name(trials[0], width - 2)
    if len(name) > room:  # on a line of its own: cut off, two variants of a substrate would look alike
        yield Line(f"  {name}")
        name = ""
    p50, p95 = ("".join(f" {pair[i]:>{w}}" for pair, w in zip(figures, _WIDTHS.values(), strict=True)) for i in (0, 1))
    yield Line(f"  {name:{room}} {len(counted):>4} p50{p50}")
    yield Line(f"  {'':{room}} {f'-{failed}' if failed else '':>4} p95{p95}")


def _figures(trials: Sequence[Trial], metric: str) -> tuple[str, str]:
    samples = values(trials, metric)
    if not samples.size:
        return UNKNOWN, UNKNOWN
    p50, p95 = quantiles(samples, (0.5, 0.95))
    show = _percent if metric == "tax_share" else format_duration
    return show(p50), show(p95)


def _percent(share: float) -> str:
    return f"{share:.1%}" if share < 0.9995 else f"{share:.0%}"


def failures(trials: Iterable[Trial]) -> Iterator[str]:
    """One line for each way in which trials of a case failed, warm-ups included."""
    alike: dict[tuple[str, str, str], list[int]] = {}
    for trial in trials:
        if trial.failure is not None:
            where = trial.failure.phase + ("" if trial.failure.action is None else f", action {trial.failure.action}")
            kind = "warm-up" if trial.warmup else "trial"
            alike.setdefault((trial.case, kind, f"{where}: {trial.failure.reason}"), []).append(trial.trial)
    for (case, kind, why), numbers in alike.items():
        yield f"{case}: {kind} {', '.join(map(str, numbers))} failed in {why}"
