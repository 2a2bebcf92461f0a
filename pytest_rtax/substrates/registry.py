"""Which substrates there are, and how `--substrate=name:key=value,…` becomes one."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pytest_rtax.untrusted import redact

if TYPE_CHECKING:
    from pytest_rtax.substrates.protocol import Substrate

ENTRY_POINTS: Final = "pytest_rtax.substrates"
"""The entry-point group of third-party substrates."""

_BUILT_IN: Final = {
    "docker": "pytest_rtax.substrates.docker:DockerSubstrate",
    "local": "pytest_rtax.substrates.local:LocalSubstrate",
    "null": "pytest_rtax.substrates.null:NullSubstrate",
}
_STARTS_A_SPEC = re.compile(r"[A-Za-z][\w.-]*(:|$)")


class NotInstalled(ValueError):
    """A substrate that exists and lacks a library; the text says which, and how to get it."""

    def __init__(self, name: str, error: ImportError) -> None:
        remedy = f"pip install 'pytest-rtax[{name}]'" if name in _BUILT_IN else "install what its package needs"
        super().__init__(f"substrate {name!r} cannot be imported: {error}; {remedy}")
        self.reason = str(error)
        self.remedy = remedy


class UnknownName(ValueError):
    """A name that nobody knows; the text says which, and the nearest that somebody does."""


def suggest(what: str, name: str, known: Iterable[str]) -> str:
    """One line for a misspelt name: what is wrong, and what was probably meant."""
    import difflib  # half a millisecond, for somebody who has made a mistake

    known = sorted(known)
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]!r}?" if nearest else f"known: {', '.join(known)}"
    return f"unknown {what} {name!r}: {hint}"


@dataclass(frozen=True)
class SubstrateSpec:
    """One substrate as the user asked for it."""

    label: str
    """As it was written, less credentials; names the substrate in node ids, records and reports."""
    name: str
    options: Mapping[str, str]
    clone_from: str | None = None


def parse_specs(text: str) -> tuple[SubstrateSpec, ...]:
    """``local,docker:image=python:3.12,cpus=1`` is two substrates: an item ``key=value`` belongs to the one before."""
    specs: list[list[str]] = []
    for piece in (piece.strip() for piece in text.split(",")):
        if _STARTS_A_SPEC.match(piece):
            specs.append([piece])
        elif specs and "=" in piece:
            specs[-1].append(piece)
        else:
            raise ValueError(f"{piece!r} in {text!r} is neither a substrate nor a key=value of the one before")
    parsed = tuple(_parse_spec(pieces) for pieces in specs)
    labels = [spec.label for spec in parsed]
    for label in labels:
        if labels.count(label) > 1:
            raise ValueError(f"{label!r} is named twice in {text!r}")
    return parsed


def _parse_spec(pieces: list[str]) -> SubstrateSpec:
    label = redact(",".join(pieces))
    name, _, first = pieces[0].partition(":")
    options = {}
    for piece in [first, *pieces[1:]] if first else pieces[1:]:
        key, equals, value = piece.partition("=")
        if not equals or not key:
            raise ValueError(f"{piece!r} in {label!r} is not key=value")
        if key in options:
            raise ValueError(f"{key!r} is given twice in {label!r}")
        options[key] = value
    return SubstrateSpec(label, name, options, options.pop("clone_from", None))


def _identity(cls: type[Substrate]) -> type[Substrate]:
    return cls


class Registry:
    """Finds substrate classes by name: built in, registered by a plugin, or installed with an entry point."""

    def __init__(self, registered: Callable[[], Iterable[type[Substrate]]] = tuple) -> None:
        """*registered* is asked, once and late, for what plugins add."""
        self._registered = registered
        self._found: dict[str, Callable[[], Any]] | None = None

    def names(self) -> list[str]:
        """All known substrates."""
        return sorted({*_BUILT_IN, *self._third_party()})

    def find(self, name: str) -> type[Substrate]:
        """The class of that name; raises UnknownName or NotInstalled."""
        try:
            if name in _BUILT_IN:
                module, _, attribute = _BUILT_IN[name].partition(":")
                found = getattr(importlib.import_module(module), attribute)
            elif name in self._third_party():
                found = self._third_party()[name]()
            else:
                raise UnknownName(suggest("substrate", name, self.names()))
        except ImportError as error:
            raise NotInstalled(name, error) from None
        assert isinstance(found, type)
        return found

    def check(self, spec: SubstrateSpec) -> None:
        """Raise ValueError if :meth:`build` would; imports nothing for a built-in substrate without options."""
        if spec.name not in _BUILT_IN or spec.options:
            self.build(spec)

    def build(self, spec: SubstrateSpec) -> Substrate:
        """A substrate with the options of *spec*; raises ValueError with one line if one is wrong."""
        cls = self.find(spec.name)
        values = {}
        for key, text in spec.options.items():
            option = cls.options.get(key)
            if option is None:
                known = [*cls.options, "clone_from"]
                raise UnknownName(f"{suggest('option', key, known)} (in {spec.label!r})")
            try:
                values[key] = option.parse(text)
            except ValueError as error:
                raise ValueError(f"{key} of {spec.label!r}: {error}") from None
        return cls(**values)

    def _third_party(self) -> Mapping[str, Callable[[], Any]]:
        # Reading the installed distributions takes milliseconds: only for a name that is not built in.
        if self._found is None:
            from importlib.metadata import entry_points

            self._found = {point.name: point.load for point in entry_points(group=ENTRY_POINTS)}
            for cls in self._registered():
                self._found[cls.name] = partial(_identity, cls)
        return self._found
