"""The benchmark's command line: ``python -m benchmarks`` at the root, or ``python -m
fqfuse.benchmarks`` where it is installed.
"""

from __future__ import annotations

import argparse
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import onnx

from fqfuse.measure.engines import AUTO, ENGINES, INEXACT, PEERS
from fqfuse.measure.process import WorkerFailed
from fqfuse.measure.turns import Row, Settings, busy_note

from .build import Case, build_all, cases
from .compile_time import (
    CHAINS,
    PLAIN_NODES,
    Timing,
    compile_cases,
    compile_chains,
    compile_plain_chains,
)
from .counts import count_macs
from .environment import describe_environment
from .exported import FILES, exports, exports_table
from .measure import REFERENCE, measure_case, measure_peak
from .remedies import TRIALS, remedies, remedies_table
from .report import write_compile, write_speed
from .shapes import OURS, costs_of_sizes, sizes_table
from .summary import NUMPY, summarize, summarize_file
from .versus import versus
from .without_vnni import costs, costs_table

# The NumPy runtime is the definition, not the fast path: two files tell how it stands.
NUMPY_FILES = ("resnet50-ort", "bert-ort")
QUICK = Settings(rounds=3, turn_seconds=0.1, accuracy_inputs=8)
# Of processes. The interval of the median ratio then lies between the second smallest and the
# second largest of 9.
PAIRS, PAIR_ROUNDS = 9, 3
# six at least, for an interval; 16 inputs settle a SQNR to some hundredths of a dB
EXPORT_ROUNDS, EXPORT_INPUTS = 9, 16
QUICK_CHAINS = tuple(size for size in CHAINS if size <= 300)
QUICK_NODES = tuple(size for size in PLAIN_NODES if size <= 1000)
# A file of each network, those that take least time first: what would go beyond the time is left
# out, and said, and on a busy machine these are then few.
QUICK_FILES = (
    "yolo-nncf",
    "lstm-qdq",
    "gpt2-int4",
    "llama-int4-dynamic",
    "mobilenet_v2-ort",
    "regnet_y_400mf-nncf",
    "efficientnet_b0-nncf",
    "swin-nncf",
    "unet-ort",
    "vit_small-ort",
    "densenet121-ort",
    "resnet50-nncf",
    "bert-ort",
)
QUICK_SECONDS = 240.0
# On two idle cores, without the building of models, which is done once and takes some minutes.
TIMES = {
    "all": "about an hour",
    "build": "some minutes",
    "run": "about 24 minutes",
    "compile": "about 11 minutes",
    "versus": "about 2 minutes a file",
    "remedies": "about a quarter of an hour",
    "export": "about 4 minutes",
    "without-vnni": "about 12 minutes",
    "shapes": "about 2 minutes",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code: 0, or 2 for wrong options or missing
    packages.
    """
    options = _parser().parse_args(arguments)
    started = time.monotonic()
    files = options.files or _files(options)
    try:
        wanted = sorted(cases(options.build_dir, files), key=_place_of(files))
    except ValueError as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    _log(_time_told(options, wanted))
    try:
        if options.what not in ("remedies", "shapes"):  # they are files of their own
            build_all(wanted, _log)
            started = time.monotonic()
        if options.what == "remedies" or (options.what == "all" and not options.quick):
            print(_remedies(options).read_text())
    except ImportError as error:
        print(
            f"benchmarks: {error}\nbuilding the models needs the packages in benchmarks/requirements.txt",
            file=sys.stderr,
        )
        return 2
    scratch = options.build_dir / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    if options.what == "versus":
        return _versus(wanted, options, scratch)
    if options.what in ("all", "run"):
        deadline = started + QUICK_SECONDS if options.quick else math.inf
        print(_speed(wanted, options, scratch, deadline).read_text())
    if options.what == "compile" or (options.what == "all" and not options.quick):
        print(_compile(wanted, options, scratch).read_text())
    exported = [case for case in wanted if options.what == "export" or case.name in FILES]
    if options.what == "export" or (options.what == "all" and not options.quick and exported):
        print(_exports(exported, options).read_text())
    if options.what == "without-vnni" or (options.what == "all" and not options.quick):
        print(_without_vnni(wanted, options, scratch).read_text())
    if options.what == "shapes" or (options.what == "all" and not options.quick):
        print(_shapes(options).read_text())
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="benchmarks", description="Measure fqfuse side by side with ONNX Runtime and OpenVINO."
    )
    parser.add_argument(
        "what", nargs="?", default="all", choices=tuple(TIMES), help="what to do (default: all)"
    )
    parser.add_argument(
        "--other",
        type=Path,
        help="versus: the root of another checkout of fqfuse, an earlier commit's say",
    )
    parser.add_argument(
        "--quick",
        action="store_true",
        help="a look, not a result: 3 short rounds; of `all` and `run` one file of each network, in under 5 minutes; short chains",
    )
    parser.add_argument(
        "--files",
        type=_names,
        default=(),
        help="comma-separated, such as resnet50-ort,bert-nncf (default: all)",
    )
    parser.add_argument(
        "--engines",
        type=_engines,
        default=tuple(name for name in ENGINES if name not in (AUTO, INEXACT)),
        help=f"comma-separated, of {', '.join(ENGINES)}",
    )
    parser.add_argument(
        "--numpy-files",
        type=_names,
        default=NUMPY_FILES,
        help=f"where {NUMPY} runs (default: {','.join(NUMPY_FILES)})",
    )
    parser.add_argument(
        "--threads", type=int, default=2, help="threads of each engine (default: 2)"
    )
    parser.add_argument("--rounds", type=int, help="rounds of turns (default: 7, quick: 3)")
    parser.add_argument(
        "--repeats", type=int, default=3, help="fresh processes for each compile time (default: 3)"
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=300.0,
        help="seconds an engine may take for one answer (default: 300)",
    )
    parser.add_argument(
        "--build-dir",
        type=Path,
        default=Path(__file__).resolve().parent / "build",
        help="where models are cached",
    )
    parser.add_argument(
        "--out", type=Path, help="where the report goes (default: <build-dir>/report)"
    )
    parser.add_argument("--label", default="", help="a remark for the report's head")
    return parser


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)


def _engines(text: str) -> tuple[str, ...]:
    names = _names(text)
    unknown = [name for name in names if name not in ENGINES]
    if unknown:
        raise argparse.ArgumentTypeError(
            f"no such engine: {', '.join(unknown)}; choose from {', '.join(ENGINES)}"
        )
    return names


def _files(options: argparse.Namespace) -> tuple[str, ...]:
    """The files that nobody named; none for all."""
    if options.what == "export":
        return FILES
    return QUICK_FILES if options.quick and options.what in ("all", "run") else ()


def _place_of(files: Sequence[str]) -> Callable[[Case], int]:
    """Where a file stands among those that are asked for; 0 where all are."""
    return lambda case: files.index(case.name) if files else 0


def _time_told(options: argparse.Namespace, wanted: Sequence[Case]) -> str:
    """What is going to happen, and how long it takes."""
    quick = options.quick and options.what in ("all", "run")
    takes = "less than 5 minutes" if quick else f"{TIMES[options.what]} on two idle cores"
    missing = [case.name for case in wanted if not case.path.exists()]
    built = f"; before that {len(missing)} models are built, once, which takes some minutes"
    return f"{options.what}: {takes}" + built * bool(
        missing and options.what not in ("remedies", "shapes")
    )


def _speed(
    wanted: Sequence[Case], options: argparse.Namespace, scratch: Path, deadline: float
) -> Path:
    settings = _settings(options)
    environment = describe_environment()
    label = options.label or ("quick: a look, not a result" if options.quick else busy_note())
    peak = measure_peak(settings.threads, scratch)
    rows: list[Row] = []
    summaries = []
    longest = 0.0
    for case in wanted:
        begun = time.monotonic()
        if begun + longest > deadline:
            _log(f"{case.name}: left out, for the time is up")
            continue
        engines = [
            name for name in options.engines if name != NUMPY or case.name in options.numpy_files
        ]
        found = measure_case(case, engines, settings, scratch, _log)
        rows += found
        longest = max(longest, time.monotonic() - begun)
        summaries.append(
            summarize_file(
                found, count_macs(onnx.load(case.float_path)), peak.get("operations_per_second")
            )
        )
    if left_out := len(wanted) - len(summaries):
        label = "; ".join(
            filter(
                None, (label, f"{left_out} of {len(wanted)} files left out, for the time was up")
            )
        )
    result = {
        "environment": environment,
        "settings": asdict(settings),
        "label": label,
        "peak": peak,
        "summary": summarize(summaries),
    }
    return write_speed(_out(options), result, rows)


def _remedies(options: argparse.Namespace) -> Path:
    rounds = options.rounds or (3 if options.quick else Settings().rounds)
    _log(
        f"{len(TRIALS)} files: about a quarter of an hour on an idle machine, a third of it where they are built"
    )
    outcomes = remedies(options.build_dir / "remedies", options.threads, rounds, _log)
    label = options.label or busy_note()
    path = _out(options) / "remedies.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{label}\n\n" * bool(label) + remedies_table(outcomes), encoding="utf-8")
    return path


def _exports(wanted: Sequence[Case], options: argparse.Namespace) -> Path:
    rounds = options.rounds or (6 if options.quick else EXPORT_ROUNDS)
    settings = replace(_settings(options), rounds=rounds, accuracy_inputs=EXPORT_INPUTS)
    engines = [name for name in options.engines if name in PEERS]
    label = options.label or busy_note()  # before this makes it busy
    gains = exports(wanted, engines, settings, options.build_dir / "exported", _log)
    path = _out(options) / "export.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{label}\n\n" * bool(label) + exports_table(gains), encoding="utf-8")
    return path


def _without_vnni(wanted: Sequence[Case], options: argparse.Namespace, scratch: Path) -> Path:
    label = options.label or busy_note()  # before this makes it busy
    found = costs(wanted, _settings(options), scratch, _log)
    path = _out(options) / "without-vnni.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{label}\n\n" * bool(label) + costs_table(found), encoding="utf-8")
    return path


def _shapes(options: argparse.Namespace) -> Path:
    label = options.label or busy_note()  # before this makes it busy
    engines = [name for name in options.engines if name in (OURS, *PEERS)]
    found = costs_of_sizes(options.build_dir, engines, _log)
    path = _out(options) / "shapes.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{label}\n\n" * bool(label) + sizes_table(found), encoding="utf-8")
    return path


def _compile(wanted: Sequence[Case], options: argparse.Namespace, scratch: Path) -> Path:
    engines = [name for name in options.engines if name != REFERENCE]
    timing = Timing(engines, options.threads, options.repeats, options.timeout, scratch, _log)
    result = {
        "environment": describe_environment(),
        "settings": {
            "threads": options.threads,
            "repeats": options.repeats,
            "timeout": options.timeout,
        },
        "label": options.label or busy_note(),
    }
    files = compile_cases(timing, wanted)
    chains = compile_chains(timing, QUICK_CHAINS if options.quick else CHAINS)
    plain = compile_plain_chains(timing, QUICK_NODES if options.quick else PLAIN_NODES)
    return write_compile(_out(options), result, files, chains, plain)


def _versus(wanted: Sequence[Case], options: argparse.Namespace, scratch: Path) -> int:
    if options.other is None:
        print(
            "benchmarks: versus needs --other FOLDER, such as a worktree of an earlier commit",
            file=sys.stderr,
        )
        return 2
    try:
        versus(
            options.other,
            wanted,
            replace(_settings(options), rounds=options.rounds or PAIR_ROUNDS),
            PAIRS,
            scratch,
            print,
        )
    except (ValueError, WorkerFailed) as error:
        print(f"benchmarks: {error}", file=sys.stderr)
        return 2
    return 0


def _settings(options: argparse.Namespace) -> Settings:
    base = asdict(QUICK if options.quick else Settings())
    base.update(threads=options.threads, timeout=options.timeout)
    if options.rounds:
        base["rounds"] = options.rounds
    return Settings(**base)


def _out(options: argparse.Namespace) -> Path:
    return Path(options.out or options.build_dir / "report")


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
