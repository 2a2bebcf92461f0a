"""Every setting once: its option, its ini key, its marker argument, how it is read, what it is by default.

Precedence: command line, then the `trajectory` marker, then the ini file, then the profile.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pytest_rtax.substrates.registry import SubstrateSpec, parse_specs, suggest
from pytest_rtax.transports import TRANSPORTS
from pytest_rtax.units import parse_duration

PROFILES: Final[Mapping[str, Mapping[str, str]]] = {
    "quick": {"trials": "10", "actions": "10"},
    "paper": {"trials": "100", "actions": "10,50,150"},
}
CLONE_FROM: Final = ("mirror", "public", "image")
"""The driver's read-only HTTP mirror; the public URL; a bare mirror inside the image."""


class SettingsError(ValueError):
    """A setting is wrong; the text says which, where and what to write instead."""


@dataclass(frozen=True)
class Setting:
    """One setting in all its places."""

    name: str
    parse: Callable[[str], Any]
    default: str | None
    """None: the profile says."""
    metavar: str
    help: str
    marker: bool = False
    """Whether the `trajectory` marker may set it."""

    @property
    def flag(self) -> str:
        """The command-line option."""
        return "--substrate" if self.name == "substrate" else f"--rtax-{self.name.replace('_', '-')}"

    @property
    def ini(self) -> str:
        """The ini key."""
        return f"rtax_{self.name}"

    def read(self, value: object, where: str) -> Any:
        """Parse a value; *where* it stands is part of the message if it is wrong."""
        try:
            return self.parse(_text(value))
        except ValueError as error:
            raise SettingsError(f"{where}: {error}") from None


def _text(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return ",".join(map(str, value))
    return str(value)


def _whole(least: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise ValueError(f"{text!r} is not a whole number") from None
        if number < least:
            raise ValueError(f"{number} is too small: {least} or more")
        return number

    return parse


def _each(parse: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    def parse_all(text: str) -> tuple[Any, ...]:
        values = tuple(parse(piece.strip()) for piece in text.split(","))
        if len(set(values)) < len(values):
            raise ValueError(f"{text!r} names a value twice")
        return values

    return parse_all


def _one_of(what: str, known: Iterable[str]) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in known:
            raise ValueError(suggest(what, text, known))
        return text

    return parse


def _share(text: str) -> float:
    try:
        share = float(text[:-1]) / 100 if text.endswith("%") else float(text)
    except ValueError:
        raise ValueError(f"{text!r} is not a share: write 5% or 0.05") from None
    if not 0 <= share <= 1:
        raise ValueError(f"{text!r} is not a share between 0 and 1")
    return share


def _seconds(text: str) -> float:
    seconds = parse_duration(text) / 1e9
    if seconds <= 0:
        raise ValueError(f"{text!r} leaves no time at all")
    return seconds


SETTINGS: Final = (
    Setting(
        "substrate",
        parse_specs,
        "local",
        "NAME[:KEY=VALUE,…],…",
        "substrates to measure, interleaved: local, docker, null or a third party's, with options",
    ),
    Setting(
        "profile",
        _one_of("profile", PROFILES),
        "quick",
        "NAME",
        "quick: 10 trials, 10 actions; paper: 100 trials, 10, 50 and 150 actions",
    ),
    Setting("trials", _whole(1), None, "N", "trials per case, without warm-up", marker=True),
    Setting("actions", _each(_whole(1)), None, "N,…", "trajectory lengths; one case each", marker=True),
    Setting(
        "transport", _each(_one_of("transport", TRANSPORTS)), "exec", "NAME,…", "exec, session or both", marker=True
    ),
    Setting("warmup", _whole(0), "1", "N", "discarded trials at the start of each case", marker=True),
    Setting("failure_limit", _share, "0", "SHARE", "share of failed trials a case may have: 0.05 or 5%%", marker=True),
    Setting("seed", _whole(0), "0", "N", "of the order of trials and of the actions"),
    Setting("out", Path, "reports", "DIR", "where runs are written, one directory each"),
    Setting("repository", str, "auto", "SOURCE", "of T1 and T2: auto, github, sdist, or PATH@COMMIT"),
    Setting(
        "clone_from",
        _one_of("clone source", CLONE_FROM),
        "mirror",
        "WHERE",
        "T2 clones from: mirror (the driver, over HTTP), public (the public URL) or image (inside it)",
    ),
    Setting("ready_timeout", _seconds, "300s", "TIME", "until an environment that is not ready has failed"),
    Setting("action_timeout", _seconds, "300s", "TIME", "until an action that has not ended has failed"),
)
_BY_NAME: Final = {setting.name: setting for setting in SETTINGS}


@dataclass(frozen=True)
class CaseSettings:
    """What one test's cases are to be like."""

    actions: tuple[int, ...]
    trials: int
    transport: tuple[str, ...]
    warmup: int
    failure_limit: float


@dataclass(frozen=True)
class Settings:
    """The settings of a run; validated once, never changed."""

    substrate: tuple[SubstrateSpec, ...]
    profile: str
    seed: int
    out: Path
    repository: str
    clone_from: str
    ready_timeout: float
    action_timeout: float
    _cli: Mapping[str, Any]
    _ini: Mapping[str, Any]

    @classmethod
    def read(
        cls, cli: Mapping[str, str | None], ini: Mapping[str, str | None], invoked_in: Path, rootdir: Path
    ) -> Settings:
        """From the raw texts of the command line and the ini file. A relative `out` starts where it was written."""
        from_cli = {s.name: s.read(cli[s.name], s.flag) for s in SETTINGS if cli.get(s.name) is not None}
        from_ini = {s.name: s.read(ini[s.name], f"ini key {s.ini}") for s in SETTINGS if ini.get(s.name)}
        values = {s.name: s.parse(s.default) for s in SETTINGS if s.default is not None} | from_ini | from_cli
        for spec in values["substrate"]:
            if spec.clone_from is not None and spec.clone_from not in CLONE_FROM:
                where = _BY_NAME["substrate"].flag if "substrate" in from_cli else "ini key rtax_substrate"
                wrong = suggest("clone source", spec.clone_from, CLONE_FROM)
                raise SettingsError(f"{where}: clone_from of {spec.label!r}: {wrong}")
        base = rootdir if "out" in from_ini and "out" not in from_cli else invoked_in
        return cls(
            substrate=values["substrate"],
            profile=values["profile"],
            seed=values["seed"],
            out=base / values["out"],
            repository=values["repository"],
            clone_from=values["clone_from"],
            ready_timeout=values["ready_timeout"],
            action_timeout=values["action_timeout"],
            _cli=from_cli,
            _ini=from_ini,
        )

    def for_case(self, marker: Mapping[str, object], where: str) -> CaseSettings:
        """What holds for a test whose `trajectory` marker has these arguments."""
        for name in marker:
            if name not in _BY_NAME or not _BY_NAME[name].marker:
                known = [setting.name for setting in SETTINGS if setting.marker]
                raise SettingsError(f"{where}: {suggest('argument of the trajectory marker', name, known)}")
        values = {}
        for setting in SETTINGS:
            if not setting.marker:
                continue
            name = setting.name
            if name in self._cli:
                values[name] = self._cli[name]
            elif name in marker:
                values[name] = setting.read(marker[name], f"{where}: {name} of the trajectory marker")
            elif name in self._ini:
                values[name] = self._ini[name]
            else:
                default = setting.default
                values[name] = setting.parse(PROFILES[self.profile][name] if default is None else default)
        return CaseSettings(**values)

    def plain(self) -> dict[str, Any]:
        """As it goes on record."""
        return {
            "substrate": [spec.label for spec in self.substrate],
            "repository": self.repository,
            "clone_from": {spec.label: spec.clone_from or self.clone_from for spec in self.substrate},
            "ready_timeout": self.ready_timeout,
            "action_timeout": self.action_timeout,
            **{name: value for name, value in {**self._ini, **self._cli}.items() if _BY_NAME[name].marker},
        }


def check_ini_keys(keys: Iterable[str]) -> None:
    """Raise SettingsError for a key that looks like one of ours and is none."""
    known = {setting.ini for setting in SETTINGS}
    for key in keys:
        if key.startswith("rtax") and key not in known:
            raise SettingsError(suggest("ini key", key, known))
