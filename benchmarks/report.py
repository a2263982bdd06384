"""Writes the measurements as Markdown and JSON, and the compile-time curve as a picture where
matplotlib is installed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from itertools import cycle
from pathlib import Path
from typing import Any

from fqfuse.measure.engines import PEERS
from fqfuse.measure.turns import Row

from .compile_time import CompileRow

PLOTTED = "fqfuse-onednn"


def write_speed(folder: Path, result: Mapping[str, Any], rows: Sequence[Row]) -> Path:
    """Write ``speed.json`` and ``speed.md``; return the latter. ``result`` holds environment,
    settings, peak, summary.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _write_json(
        folder / "speed.json",
        {"schema": "fqfuse-bench-speed/1", **result, "rows": [row.as_json() for row in rows]},
    )
    parts = [
        "# Speed and accuracy",
        _environment(result),
        _summary(result["summary"]),
        _rows(rows, result["summary"]["files"]),
    ]
    target = folder / "speed.md"
    target.write_text("\n\n".join(parts) + "\n")
    return target


def write_compile(
    folder: Path,
    result: Mapping[str, Any],
    files: Sequence[CompileRow],
    chains: Sequence[CompileRow],
    plain: Sequence[CompileRow] = (),
) -> Path:
    """Write ``compile.json``, ``compile.md`` and, with matplotlib, ``compile.svg`` and
    ``compile.png``; return the Markdown.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lists = {"files": [row.as_json() for row in files], "chains": [row.as_json() for row in chains]}
    lists["plain_chains"] = [row.as_json() for row in plain]
    _write_json(folder / "compile.json", {"schema": "fqfuse-bench-compile/1", **result, **lists})
    parts = ["# Compile time", _environment(result)]
    if files:
        parts += ["## From file to ready session\n\n" + _compile_table(files)]
    if chains:
        parts += [
            "## Chains of quantized convolutions\n\n" + _compile_table(chains),
            _growth(chains),
        ]
    if plain:
        parts += [
            "## Chains of elementwise operations, quantizers and moved data\n\n"
            + _compile_table(plain),
            _doubling(plain),
        ]
    if (chains or plain) and _plot(folder, chains, plain):
        parts.append("![Compile time over nodes](compile.svg)")
    target = folder / "compile.md"
    target.write_text("\n\n".join(part for part in parts if part) + "\n")
    return target


def _write_json(path: Path, value: Mapping[str, Any]) -> None:
    """Strict JSON: infinities and NaN, which it has not, become null."""
    path.write_text(json.dumps(_strict(value), indent=1, allow_nan=False) + "\n")


def _strict(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _strict(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _environment(result: Mapping[str, Any]) -> str:
    env, settings = result["environment"], result["settings"]
    packages = ", ".join(f"{name} {version}" for name, version in env["packages"].items())
    lines = [
        f"- {env['cpu']} ({', '.join(env['flags'])}), {env['cpus']} CPUs, {settings['threads']} threads for each engine",
        f"- {packages}, Python {env['python']}, commit {env['commit']}",
        f"- {env['time']}, load average at the start {env['load_average'][0]}",
    ]
    if "rounds" in settings:
        lines.append(
            f"- {settings['rounds']} rounds in turns, {settings['pause']} s pause between turns; accuracy over "
            f"{settings['accuracy_inputs']} random inputs"
        )
    peak = result.get("peak")
    if peak:
        rate = peak.get("operations_per_second")
        lines.append(
            f"- int8 peak of a oneDNN matmul: {rate / 1e12:.3f} Tops/s"
            if rate
            else f"- int8 peak: {peak['reason']}"
        )
    if result.get("label"):
        lines.append(f"- **{result['label']}**")
    return "\n".join(lines)


def _summary(summary: Mapping[str, Any]) -> str:
    header = [
        "file",
        "fqfuse-onednn ms",
        *(f"{name} ms" for name in PEERS),
        "ratio to faster peer",
        "SQNR below better peer dB",
    ]
    header += ["limit ms", "fqfuse-numpy ms", "onnxruntime f32 ms", "numpy / f32"]
    table = [
        [
            f["file"],
            _number(f["onednn_ms"], 2),
            *(_number(f["peers_ms"][name], 2) for name in PEERS),
            _number(f["ratio"], 2),
            _number(f["sqnr_gap_db"], 2),
            _number(f["limit_ms"], 2),
            _number(f["numpy_ms"], 1),
            _number(f["float_ms"], 2),
            _number(f["numpy_ratio"], 2),
        ]
        for f in summary["files"]
    ]
    over = [
        (
            f"Geometric mean of the ratios over the {summary['files_both_peers']} files that both peers run",
            summary["geometric_mean_both_peers"],
        ),
        ("Worst ratio of a file", summary["worst_ratio"]),
        ("Worst SQNR gap of a quantized file, dB", summary["worst_sqnr_gap_db"]),
    ]
    return (
        _markdown(header, table)
        + "\n\n"
        + "\n".join(f"- {text}: {_number(value, 3)}" for text, value in over)
    )


def _rows(rows: Sequence[Row], files: Sequence[Mapping[str, Any]]) -> str:
    limits = {f["file"]: f["limit_ms"] for f in files}
    header = [
        "file",
        "engine",
        "median ms",
        "spread",
        "limit / time",
        "SQNR dB",
        "top-1",
        "peak MiB",
        "load s",
        "first run s",
        "note",
    ]
    table = []
    for row in rows:
        limit = limits[row.file]
        table.append(
            [
                row.file,
                row.engine,
                _number(row.median_ms, 3),
                _percent(row.spread),
                _percent(limit / row.median_ms if limit and row.median_ms else None),
                _number(row.sqnr_db, 2),
                _percent(row.top1),
                _number(row.memory_peak / 2**20 if row.memory_peak and not row.reason else None, 0),
                _number(row.load_s, 3),
                _number(row.first_run_s, 3),
                row.reason or row.note,
            ]
        )
    return "## Every engine on every file\n\n" + _markdown(header, table)


def _compile_table(rows: Sequence[CompileRow]) -> str:
    header = ["file", "nodes", "engine", "ready s", "first run s", "import s", "note"]
    table = [
        [
            r.file,
            f"{r.nodes:,}",
            r.engine,
            _number(r.ready_s, 3),
            _number(r.first_run_s, 3),
            _number(r.import_s, 2),
            r.reason,
        ]
        for r in rows
    ]
    return _markdown(header, table)


def _growth(chains: Sequence[CompileRow]) -> str:
    """How many times longer each engine needs for ten times the chain."""
    seconds = {(row.engine, row.file): row.ready_s for row in chains}
    lines = []
    for engine in dict.fromkeys(row.engine for row in chains):
        short, long = seconds.get((engine, "chain-1000")), seconds.get((engine, "chain-10000"))
        if short and long:
            lines.append(
                f"- {engine}: 10,000 convolutions take {long / short:.1f} times as long as 1,000"
            )
    return "\n".join(lines)


def _doubling(plain: Sequence[CompileRow]) -> str:
    """How many times longer each engine needs for twice the chain, on average from the first length
    to the last: 2 is linear.
    """
    lines = []
    for engine in dict.fromkeys(row.engine for row in plain):
        found = []
        for kind, rows in _kinds(plain, engine).items():
            (short, first), (long, last) = rows[0], rows[-1]
            if short < long:
                found.append(f"{kind} {2 ** (math.log(last / first) / math.log(long / short)):.2f}")
        if found:
            lines.append(f"- {engine}, time for twice the length: {', '.join(found)}")
    return "\n".join(lines)


def _kinds(plain: Sequence[CompileRow], engine: str) -> dict[str, list[tuple[int, float]]]:
    """(length, seconds) of the chains that the engine has compiled, by kind: nodes, or pieces of
    the one Split of `many-pieces`.
    """
    found: dict[str, list[tuple[int, float]]] = {}
    for row in plain:
        if row.engine == engine and row.ready_s:
            kind, _, length = row.file.rpartition("-")
            found.setdefault(kind, []).append((int(length), row.ready_s))
    return found


def _plot(folder: Path, chains: Sequence[CompileRow], plain: Sequence[CompileRow]) -> bool:
    """Draw the curves: of the chains of convolutions by engine, and beside them fqfuse's by kind of
    chain; False without matplotlib.
    """
    if find_spec("matplotlib") is None:
        return False
    import_module("matplotlib").use("Agg")
    pyplot: Any = import_module("matplotlib.pyplot")
    figure, (left, right) = pyplot.subplots(1, 2, figsize=(15, 4.5), sharey=True)
    for engine in dict.fromkeys(row.engine for row in chains):
        points = [
            (row.nodes, row.ready_s)
            for row in chains
            if row.engine == engine and row.ready_s is not None
        ]
        if points:
            left.loglog(*zip(*points, strict=True), marker="o", label=engine)
    left.set_title("quantized convolutions")
    left.set_ylabel("file to ready session, s")
    left.set_xlabel("nodes in the ONNX file")
    colours = pyplot.get_cmap("tab20").colors
    # colours begin again
    for (kind, points), colour in zip(_kinds(plain, PLOTTED).items(), cycle(colours), strict=False):
        right.loglog(*zip(*points, strict=True), marker="o", label=kind, color=colour)
    right.set_title(f"without weights, {PLOTTED}")
    right.set_xlabel("nodes in the ONNX file (many-pieces: outputs of one)")
    for axes in (left, right):
        axes.grid(True, which="both", alpha=0.3)
        if axes.lines:
            axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1.0, 0.5))
    figure.tight_layout()
    for suffix in ("svg", "png"):
        figure.savefig(folder / f"compile.{suffix}")
    pyplot.close(figure)
    return True


def _markdown(header: Sequence[str], table: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *table]
    return "\n".join(
        "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
    )


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}f}"


def _percent(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"
