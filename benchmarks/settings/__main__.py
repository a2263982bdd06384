"""``python -m fqfuse.benchmarks.settings``: tries settings, and writes the tables of the guides."""

from __future__ import annotations

import argparse
import json
import logging
import re
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import onnx

from .setting import Setting, figures, outputs_of
from .subjects import SUBJECTS
from .tables import filled, places, table

Settings = Callable[[str, Path, Sequence[Mapping[str, Any]]], Iterator[tuple[str, Setting]]]
_TOOLS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "ort": ("with_ort.ort_settings", ("onnxruntime", "onnx_ir", "sympy")),
    "nncf": ("with_nncf.nncf_settings", ("nncf", "onnxruntime", "sympy")),
    "torch": ("with_torch.torch_settings", ("onnxruntime", "onnxscript", "torch", "torchao")),
    "brevitas": ("with_brevitas.brevitas_settings", ("brevitas", "onnxruntime", "torch")),
}
"""Where the settings of each tool are, and the packages that they need."""

_NOTABLE = 0.3  # dB between the two runtimes: two roundings of the same codes differ by less


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code: 0, or 2 where nothing can be tried here."""
    options = _parser().parse_args(arguments)
    tools = []
    for tool in options.tools or _TOOLS:
        missing = [name for name in _TOOLS[tool][1] if find_spec(name) is None]
        if missing:
            packages = ", ".join(missing)
            print(f"settings: {tool} is left out: it needs {packages}", file=sys.stderr)
        else:
            tools.append(tool)
    logging.disable(logging.WARNING)  # quantizers say much
    warnings.simplefilter("ignore")
    options.build_dir.mkdir(parents=True, exist_ok=True)
    for tool in tools:
        for network in SUBJECTS:
            if not options.networks or network in options.networks:
                _try(tool, network, options.build_dir, options.only)
    if options.docs:
        _fill(options.docs, options.build_dir)
    return 0 if tools or options.docs else 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="settings", description=__doc__)
    parser.add_argument("tools", nargs="*", choices=[*_TOOLS, []], help="quantizers (default: all)")
    parser.add_argument(
        "--networks", type=lambda text: text.split(","), help=f"of {', '.join(SUBJECTS)}"
    )
    parser.add_argument("--only", default="", help="settings whose words match this pattern")
    parser.add_argument(
        "--build-dir",
        type=Path,
        default=Path(__file__).resolve().parents[1] / "build" / "settings",
        help="where files and outcomes go, one <table>.json each",
    )
    parser.add_argument("--docs", type=Path, help="the folder whose guides get the tables")
    return parser


def _try(tool: str, network: str, folder: Path, only: str) -> None:
    subject = SUBJECTS[network]
    source = folder / f"{network}-f32.onnx"
    if not source.exists():
        onnx.save(subject.build(), source)
    feeds = subject.tried()
    reference = outputs_of(source, feeds)
    tried = list(_settings(tool)(network, source, subject.calibration()))
    for number, (name, setting) in enumerate(tried):
        if not re.search(only, setting.shown):
            continue
        target = folder / f"{name}-{number}.onnx"
        row = figures(setting, target, feeds, reference).as_json()
        print(f"{name}: {_line(row)}", file=sys.stderr, flush=True)
        file = folder / f"{name}.json"
        known = _read(file) | {setting.shown: row}
        order = [item.shown for where, item in tried if where == name and item.shown in known]
        file.write_text(json.dumps([known[shown] for shown in order], indent=1) + "\n")


def _read(path: Path) -> dict[str, dict[str, Any]]:
    """The outcomes that are known already, by their settings."""
    rows = json.loads(path.read_text()) if path.exists() else []
    return {row["shown"]: row for row in rows}


def _settings(tool: str) -> Settings:
    module, function = _TOOLS[tool][0].split(".")
    found: Settings = getattr(import_module(f".{module}", __package__), function)
    return found


def _line(row: Mapping[str, Any]) -> str:
    """What is said while it goes on; a runtime that disagrees is part of it."""
    if row["failed"]:
        return f"{row['shown']}: {row['failed']}"
    text = f"{row['shown']}: {row['sqnr_db']} dB"
    if row["foreign"]:
        return f"{text}; ONNX Runtime: {row['foreign']}"
    if None not in (row["sqnr_db"], row["peer_db"]):
        apart = abs(row["sqnr_db"] - row["peer_db"])
        if apart > _NOTABLE:
            return f"{text}; ONNX Runtime: {row['peer_db']} dB, {apart:.2f} apart"
    return text


def _fill(docs: Path, folder: Path) -> None:
    for guide in sorted(docs.glob("quantize-*.md")):
        text = guide.read_text(encoding="utf-8")
        tables = {
            name: table(json.loads((folder / f"{name}.json").read_text()))
            for name in places(text)
            if (folder / f"{name}.json").exists()
        }
        guide.write_text(filled(text, tables), encoding="utf-8")
        print(f"{guide.name}: {len(tables)} tables", file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
