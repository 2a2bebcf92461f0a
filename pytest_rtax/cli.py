"""`rtax`: what is usable here, a start for your own repository, images, and what dead runs have left behind."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pytest_rtax import __version__
from pytest_rtax.substrates.protocol import Needs, SubstrateError, SubstrateUnavailable
from pytest_rtax.substrates.registry import NotInstalled, Registry, SubstrateSpec, parse_specs
from pytest_rtax.workloads.repository import RepositoryUnavailable, prepare_repository

_CONFIGURATION = """\
# Settings of pytest-rtax for the suites in this directory; `pytest suites/` finds them here.
# Each is the default of a command-line option: rtax_trials is --rtax-trials, and so on.
[pytest]
# Substrates to measure, interleaved: rtax_substrate = local,docker:image=...
rtax_substrate = local
# quick: 10 trials, 10 actions; paper: 100 trials, 10, 50 and 150 actions
rtax_profile = quick
# One call per command, or one connection for the whole rollout, or both:
# rtax_transport = exec,session
# rtax_trials = 30
# rtax_actions = 10,50,150
# rtax_warmup = 1
# The share of failed trials that a case may have:
# rtax_failure_limit = 0
# rtax_seed = 0
# Where runs are written, relative to this file:
rtax_out = ../reports
# Where T1 and T2 get the repository: auto, github, sdist, or PATH@COMMIT
# rtax_repository = auto
# Where T2 clones from: mirror, public or image
# rtax_clone_from = mirror
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point of the console script; returns the exit code."""
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.command(arguments))
    except (ValueError, OSError, RepositoryUnavailable, SubstrateError) as error:
        print(f"rtax: error: {error}", file=sys.stderr)
        return 4


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="rtax", description="Measure the rollout infrastructure tax.")
    parser.add_argument("--version", action="version", version=f"pytest-rtax {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    doctor = commands.add_parser("doctor", help="say which substrates can be used here, and what the others lack")
    doctor.add_argument("--substrate", default=None, help="only these, with options as for pytest")
    doctor.set_defaults(command=_doctor)
    init = commands.add_parser("init", help="write the suites and a commented configuration into a repository")
    init.add_argument("directory", nargs="?", type=Path, default=Path(), help="the repository (default: here)")
    init.set_defaults(command=_init)
    reap = commands.add_parser("reap", help="remove environments that dead runs have left behind")
    reap.add_argument("--substrate", default=None, help="only these, with options as for pytest (default: all)")
    reap.add_argument("--run", default=None, help="everything of this run, dead or not")
    reap.set_defaults(command=_reap)
    _add_image(commands.add_parser("image", help="the image that holds the tools and the repository of the workloads"))
    return parser


def _add_image(parser: argparse.ArgumentParser) -> None:
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    build = commands.add_parser("build", help="build the image, unless the engine has it, and print its tag")
    tag = commands.add_parser("tag", help="print the tag that the image has or would have")
    for command in (build, tag):
        command.add_argument("--base", metavar="IMAGE", help="the image it starts from")
        command.add_argument("--repository", metavar="SOURCE", default="auto", help="as --rtax-repository of pytest")
    build.add_argument("--tag", metavar="NAME", help="a further name for the image")
    build.add_argument("--force", action="store_true", help="build it even if the engine has it, and every step anew")
    build.add_argument("--host", metavar="DOCKER_HOST", help="the engine (default: as the environment says)")
    build.set_defaults(command=_image_build)
    tag.set_defaults(command=_image_tag)


def _specs(registry: Registry, text: str | None) -> tuple[SubstrateSpec, ...]:
    if text is not None:
        return parse_specs(text)
    return tuple(SubstrateSpec(name, name, {}) for name in registry.names())


def _doctor(arguments: argparse.Namespace) -> int:
    """Exit code 1 if one that was asked for by name cannot be used."""
    registry = Registry()
    unusable = 0
    for spec in _specs(registry, arguments.substrate):
        try:
            substrate = registry.build(spec)
            substrate.preflight(_needs())
        except (SubstrateUnavailable, NotInstalled) as error:
            unusable += 1
            print(f"{spec.label:10}  not usable: {error.reason}")
            print(f"{'':10}  to do: {error.remedy}")
        else:
            isolates = ", ".join(sorted(substrate.isolates)) or "nothing: trusted workloads only"
            kind = "simulated, for calibration" if substrate.simulated else f"isolates {isolates}"
            print(f"{spec.label:10}  usable ({kind})")
    return 1 if unusable and arguments.substrate is not None else 0


def _needs() -> Needs:
    """What the tiers T0 to T2 need together."""
    from pytest_rtax.workloads.tiers import WORKLOADS

    needs = Needs()
    for workload in WORKLOADS.values():
        needs |= workload.needs
    return needs


def _init(arguments: argparse.Namespace) -> int:
    target = arguments.directory / "suites"
    files = {path.name: path.read_text() for path in sorted(_suites().glob("test_*.py"))}
    files["pytest.ini"] = _CONFIGURATION
    existing = [name for name in files if (target / name).exists()]
    if existing:
        raise ValueError(f"{target / existing[0]} exists already: move it away or choose another directory")
    target.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (target / name).write_text(text)
        print(f"wrote {target / name}")
    print(f"now run: pytest {target}/")
    return 0


def _suites() -> Path:
    """Beside the modules in a wheel; beside the package in a checkout."""
    package = Path(__file__).parent
    return next(path for path in (package / "suites", package.parent / "suites") if path.is_dir())


def _reap(arguments: argparse.Namespace) -> int:
    registry = Registry()
    for spec in _specs(registry, arguments.substrate):
        try:
            reaped = registry.build(spec).reap(run=arguments.run)
        except (SubstrateUnavailable, NotInstalled) as error:
            print(f"{spec.label:10}  not looked at: {error}")
            continue
        print(f"{spec.label:10}  {len(reaped)} removed" + "".join(f"\n{'':10}  {name}" for name in reaped))
    return 0


def _image_build(arguments: argparse.Namespace) -> int:
    """Only the tag goes to standard output, for scripts."""
    from pytest_rtax.images.build import build_image, connect, default_base

    with connect(arguments.host) as client:
        tag = build_image(
            client,
            base=arguments.base or default_base(),
            repository=prepare_repository(arguments.repository, announce=_tell),
            say=_tell,
            name=arguments.tag,
            force=arguments.force,
        )
    print(tag)
    return 0


def _image_tag(arguments: argparse.Namespace) -> int:
    from pytest_rtax.images.build import default_base, image_tag

    repository = prepare_repository(arguments.repository, announce=_tell)
    print(image_tag(arguments.base or default_base(), repository))
    return 0


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
