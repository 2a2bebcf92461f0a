"""Speed bars: ratios and differences of things measured side by side in one run. Run alone on an idle machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


class Figures:
    """Collects what was measured and prints it as a table for docs/benchmarks.md."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, str, str]] = []

    def add(self, what: str, figure: str, bar: str = "") -> None:
        self.rows.append((what, figure, bar))

    def __str__(self) -> str:
        lines = ["| what | measured | bar |", "| --- | --- | --- |"]
        return "\n".join([*lines, *(f"| {what} | {figure} | {bar} |" for what, figure, bar in self.rows)])


@pytest.fixture(scope="session")
def figures() -> Iterator[Figures]:
    collected = Figures()
    yield collected
    print(f"\n\n{collected}\n")
