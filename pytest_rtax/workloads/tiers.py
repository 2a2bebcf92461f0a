"""The tiers of the paper: T0 starts a minimal command, T1 inspects a repository, T2 repairs one.

Every file, pattern and test named here exists both at the GitHub commit and in the sdist. Choices are made by
arithmetic on ``rng.random()`` alone: the other methods of Random may draw differently in another Python.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from pytest_rtax.substrates.protocol import Needs
from pytest_rtax.workloads.actions import Action, RepositoryUse, Workload

_T = TypeVar("_T")
_Maker = Callable[[random.Random], Action]

_SOURCES = tuple(
    f"src/attr/{name}.py"
    for name in ("__init__", "_cmp", "_compat", "_funcs", "_make", "_next_gen", "converters", "setters", "validators")
)
_TEST_FILES = tuple(
    f"tests/test_{name}.py" for name in ("converters", "filters", "funcs", "hooks", "make", "slots", "validators")
)
_DIRECTORIES = (".", "src", "src/attr", "src/attrs", "tests", "docs")
_PATTERNS = ("retain_collection_types", "__attrs_attrs__", "def asdict", "NOTHING", "value_serializer", "Factory")
_DEFINED = ("asdict", "astuple", "fields", "has", "evolve", "attrib", "attrs", "Attribute", "Factory")
_CALLED = ("asdict", "astuple", "fields", "isinstance", "getattr", "Factory")

# Quick, without hypothesis' examples, and passing before and after the patch.
_QUICK_TESTS = ("config", "converters", "filters", "hooks", "init_subclass", "next_gen", "setattr", "version_info")

_AST_SEARCH = """\
import ast, pathlib, sys

what, name, *roots = sys.argv[1:]


def matches(node):
    if what == "definition":
        return isinstance(node, (ast.FunctionDef, ast.ClassDef)) and node.name == name
    called = node.func if isinstance(node, ast.Call) else None
    return name in (getattr(called, "id", None), getattr(called, "attr", None))


found = False
for root in roots:
    for path in sorted(pathlib.Path(root).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if matches(node):
                found = True
                print(f"{path}:{node.lineno}: {what} of {name}")
sys.exit(not found)
"""

_REPRODUCTION = """\
import collections

import attr

Size = collections.namedtuple("Size", ["width", "height"])
Box = attr.make_class("Box", ["size"])

for convert in (attr.asdict, attr.astuple):
    try:
        print(convert.__name__, convert(Box(Size(3, 4)), retain_collection_types=True))
    except TypeError as error:
        print(convert.__name__, "raises", error)
"""

_REGRESSION_TEST_FILE = "tests/test_retained_namedtuples.py"
_REGRESSION_TEST = """\
import collections

import attr
import pytest

Size = collections.namedtuple("Size", ["width", "height"])
Box = attr.make_class("Box", ["content"])


@pytest.mark.parametrize(
    "content", [Size(3, 4), [Size(3, 4), Size(5, 6)], {"inner": Size(3, 4)}], ids=["bare", "in a list", "in a dict"]
)
def test_asdict_keeps_the_class(content):
    kept = attr.asdict(Box(content), retain_collection_types=True)["content"]

    assert kept == content
    assert repr(kept) == repr(content)


def test_astuple_keeps_the_class():
    (kept,) = attr.astuple(Box(Size(3, 4)), retain_collection_types=True)

    assert isinstance(kept, Size)


@pytest.mark.parametrize("collection", [(1, 2), [1, 2], {1, 2}, frozenset({1, 2})])
def test_other_collections_are_as_before(collection):
    assert type(attr.asdict(Box(collection), retain_collection_types=True)["content"]) is type(collection)
"""

# A line or two of context: the file differs elsewhere between the two sources, and the hunks have to find their place.
_PATCH = """\
--- a/src/attr/_funcs.py
+++ b/src/attr/_funcs.py
@@ -11,2 +11,10 @@
+def _factory_of(cls):
+    \"""
+    What builds a *cls* from one iterable: ``_make`` if it is a named tuple,
+    because such a class wants its fields one by one.
+    \"""
+    return getattr(cls, "_make", cls)
+
+
 def asdict(
     inst,
@@ -73,3 +81,5 @@
             elif isinstance(v, (tuple, list, set, frozenset)):
-                cf = v.__class__ if retain_collection_types is True else list
+                cf = list
+                if retain_collection_types is True:
+                    cf = _factory_of(v.__class__)
                 rv[a.name] = cf(
@@ -140,3 +150,3 @@
         if retain_collection_types is True:
-            cf = val.__class__
+            cf = _factory_of(val.__class__)
         elif is_key:
@@ -242,3 +252,3 @@
             elif isinstance(v, (tuple, list, set, frozenset)):
-                cf = v.__class__ if retain is True else list
+                cf = _factory_of(v.__class__) if retain is True else list
                 rv.append(
"""


def _pick(rng: random.Random, options: Sequence[_T]) -> _T:
    return options[int(rng.random() * len(options))]


def _list(rng: random.Random) -> Action:
    directory = _pick(rng, _DIRECTORIES)
    commands = (
        ["ls", "-la", directory],
        ["find", directory, "-name", "*.py", "-size", "+1k"],
        ["git", "ls-files", directory],
    )
    return Action("list", _pick(rng, commands))


def _read(rng: random.Random) -> Action:
    file = _pick(rng, _SOURCES + _TEST_FILES)
    start = 1 + 50 * int(4 * rng.random())
    commands = (
        ["sed", "-n", f"{start},{start + 79}p", file],
        ["head", "-n", "60", file],
        ["cat", file],
    )
    return Action("read", _pick(rng, commands))


def _grep(rng: random.Random) -> Action:
    pattern = _pick(rng, _PATTERNS)
    commands = (
        ["grep", "-rn", pattern, "src"],
        ["git", "grep", "-n", pattern],
        ["grep", "-nE", "^(def|class) ", _pick(rng, _SOURCES[1:])],
    )
    return Action("grep", _pick(rng, commands))


def _ast(rng: random.Random) -> Action:
    queries = (("definition", _pick(rng, _DEFINED)), ("call", _pick(rng, _CALLED)))
    return Action("ast", ["python3", "-c", _AST_SEARCH, *_pick(rng, queries), "src"])


def _run_read_only(rng: random.Random) -> Action:
    commands = (
        ["git", "status", "--short"],
        ["git", "log", "-n", "5", "--stat"],
        ["git", "blame", "-L", "1,40", _pick(rng, _SOURCES)],
        ["wc", "-l", *_SOURCES],
    )
    return Action("run", _pick(rng, commands))


def _run(rng: random.Random) -> Action:
    if rng.random() < 0.5:
        return _run_read_only(rng)
    commands = (
        ["git", "diff", "--stat"],
        ["python3", "-m", "py_compile", "src/attr/_funcs.py"],
        ["python3", "-c", _REPRODUCTION],
    )
    return Action("run", _pick(rng, commands), env={"PYTHONPATH": "src"})


def _write(rng: random.Random) -> Action:
    note = f"- look at {_pick(rng, _SOURCES)} again: {_pick(rng, _PATTERNS)}\n".encode()
    writes = (
        Action("write", ["tee", "reproduce.py"], stdin=_REPRODUCTION.encode()),
        Action("write", ["tee", "-a", "notes.md"], stdin=note),
        Action("write", ["sed", "-i", "-e", "$a Named tuples keep their class.", "CHANGELOG.md"]),
    )
    return _pick(rng, writes)


def _test(file: str, *, expect: int = 0) -> Action:
    # Not the plugins of the environment: what a test run costs must not depend on what else is installed.
    env = {"PYTHONPATH": "src", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = ["python3", "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", file]
    return Action("test", command, env=env, expect=expect)


def _quick_test(rng: random.Random) -> Action:
    return _test(f"tests/test_{_pick(rng, _QUICK_TESTS)}.py")


# In hundredths.
_INSPECTION: Sequence[_Maker] = [_list] * 20 + [_read] * 40 + [_grep] * 20 + [_ast] * 10 + [_run_read_only] * 10
_CODING: Sequence[_Maker] = (
    [_list] * 10 + [_read] * 28 + [_grep] * 15 + [_ast] * 7 + [_run] * 15 + [_write] * 15 + [_quick_test] * 10
)


class T0(Workload):
    """A minimal command: isolates startup and the cost of launching a command."""

    name = "T0"
    needs = Needs()
    repository = RepositoryUse.NONE
    shortest = 1

    def setup(self) -> Sequence[Action]:
        """Nothing."""
        return ()

    def actions(self, length: int, rng: random.Random) -> Sequence[Action]:
        """The same command, again and again."""
        return [Action("run", ["true"])] * length


class T1(Workload):
    """Inspection and navigation of a preloaded repository; changes nothing."""

    name = "T1"
    needs = Needs(tools=frozenset("cat find git grep head ls python3 sed wc".split()))
    repository = RepositoryUse.PRELOADED
    shortest = 1

    def setup(self) -> Sequence[Action]:
        """Nothing."""
        return ()

    def actions(self, length: int, rng: random.Random) -> Sequence[Action]:
        """Mostly reading and searching."""
        return [replace(_pick(rng, _INSPECTION)(rng), cwd="attrs") for _ in range(length)]


class T2(Workload):
    """A repair: clone a buggy commit, inspect, show the bug with a test, patch it, see the test pass."""

    name = "T2"
    needs = T1.needs | Needs(tools=frozenset({"sh", "tee"}), modules=frozenset({"hypothesis", "pytest"}))
    repository = RepositoryUse.CLONED
    shortest = 4

    _REPAIR = (
        (0.3, Action("write", ["tee", _REGRESSION_TEST_FILE], stdin=_REGRESSION_TEST.encode())),
        (0.4, _test(_REGRESSION_TEST_FILE, expect=1)),
        (0.6, Action("patch", ["git", "apply"], stdin=_PATCH.encode())),
        (0.7, _test(_REGRESSION_TEST_FILE)),
    )
    """The steps that make it a repair, and after what share of the rest each comes, or up to a tenth later."""

    def setup(self) -> Sequence[Action]:
        """Clone over the network and check out the commit."""
        return (
            Action("clone", 'git clone -q "$RTAX_CLONE_URL" checkout'),
            Action("checkout", 'git checkout -q --detach "$RTAX_COMMIT"', cwd="checkout"),
        )

    def actions(self, length: int, rng: random.Random) -> Sequence[Action]:
        """The repair, with what a coding agent does meanwhile around its steps."""
        fillers = [_pick(rng, _CODING)(rng) for _ in range(length - len(self._REPAIR))]
        actions: list[Action] = []
        done = 0
        for share, step in self._REPAIR:
            upto = int((share + rng.random() / 10) * len(fillers))
            actions += [*fillers[done:upto], step]
            done = upto
        return [replace(action, cwd="checkout") for action in (*actions, *fillers[done:])]


WORKLOADS: dict[str, Workload] = {workload.name: workload for workload in (T0(), T1(), T2())}
"""The tiers by name."""
