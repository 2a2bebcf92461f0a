"""The one writer of a run: with xdist the controller, else the driver itself."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from pytest_rtax.records import provenance
from pytest_rtax.records.schema import Run, Trial
from pytest_rtax.records.store import RunStore
from pytest_rtax.settings import Settings
from pytest_rtax.untrusted import redact


class Recorder:
    """Opens the store when there is something to record, and keeps the trials for the summary."""

    def __init__(self, run_id: str, settings: Settings, argv: Sequence[str], rootdir: Path, workers: int) -> None:
        self.run_id = run_id
        self.trials: list[Trial] = []
        self.notes: list[str] = []
        """Sentences that a reader of the figures must know."""
        self._settings = settings
        self._argv = argv
        self._rootdir = rootdir
        self._workers = workers
        self._store: RunStore | None = None

    @property
    def directory(self) -> Path | None:
        """Where the run is written; None while nothing has been."""
        return self._store.directory if self._store is not None else None

    def open(self) -> RunStore:
        """Create the run's directory; raises StoreError. Idempotent."""
        if self._store is None:
            plain = self._settings.plain()
            self._store = RunStore(
                self._settings.out,
                Run(
                    id=self.run_id,
                    started=time.time(),
                    command=provenance.command_line(self._argv),
                    seed=self._settings.seed,
                    profile=self._settings.profile,
                    settings={**plain, "repository": redact(plain["repository"])},
                    git=provenance.git_state(self._rootdir),
                    versions=provenance.versions(),
                    machine=provenance.machine(),
                    load_before=provenance.load(),
                    workers=self._workers,
                ),
            )
        return self._store

    def record(self, trial: Trial) -> None:
        """Write a trial down."""
        self.open().append(trial)
        self.trials.append(trial)

    def describe(self, substrates: dict[str, dict[str, Any]], repository: dict[str, Any] | None) -> None:
        """Add what the driver found out about its substrates."""
        store = self.open()
        store.run.substrates = {**store.run.substrates, **substrates}
        store.run.repository = repository or store.run.repository
        store.write_run()

    def note(self, text: str) -> None:
        """Add a sentence, once; it goes on record with the end of the run."""
        if text not in self.notes:
            self.notes.append(text)

    def _cautions(self) -> Iterator[str]:
        """What the trials themselves say against comparing them."""
        sources = {trial.clone_from for trial in self.trials if trial.clone_from is not None}
        if len(sources) > 1:
            yield f"the substrates cloned from different places ({', '.join(sorted(sources))}): setup does not compare"
        if not all(trial.interleaved for trial in self.trials):
            yield "cases were not interleaved: this --dist spreads them over workers, and noise may favour one"

    def finish(self, status: Literal["complete", "interrupted"]) -> None:
        """Write the end of the run down."""
        if self._store is None:
            return
        for caution in self._cautions():
            self.note(caution)
        self._store.run.notes = self.notes
        self._store.run.status = status
        self._store.run.finished = time.time()
        self._store.run.load_after = provenance.load()
        self._store.write_run()
        self._store.close()
