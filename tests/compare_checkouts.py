"""This checkout against another one: the same plans, and the same bytes from both runtimes?

    python tests/compare_checkouts.py --other FOLDER [MODEL.onnx ...]

Compiles the graphs of the laws and of the golden plans, and the models that are named, for each
target in both checkouts, runs them
on the NumPy and the oneDNN runtime, and prints what differs: the number of steps, a step (its
primitive, types, attributes and post-ops), bytes of an output. A refactoring prints nothing but the
last line. Exits with 1 where a plan has more steps or bytes differ.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
TARGETS = ("onednn-v3", "onednn-v2", "unified")
BACKENDS = ("numpy", "onednn")


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="compare_checkouts", description=(__doc__ or "").split("\n", 1)[0]
    )
    parser.add_argument("--other", type=Path, help="the root of the other checkout")
    parser.add_argument("--worker", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("models", nargs="*", type=Path)
    options = parser.parse_args()
    if options.worker:
        json.dump(dict(_described(options.worker, options.models)), sys.stdout)
        return 0
    if not (options.other and (options.other / "inference.py").is_file()):
        parser.error("--other names no checkout of fqfuse")
    return _compare(options.other.resolve(), [model.resolve() for model in options.models])


def _compare(other: Path, models: list[Path]) -> int:
    with tempfile.TemporaryDirectory() as folder:
        graphs = Path(folder) / "graphs"
        graphs.mkdir()
        _write_graphs(graphs)
        here, there = (
            _ask(root, graphs, models, Path(folder) / name)
            for name, root in (("here", ROOT), ("there", other))
        )
    worse = 0
    for name in sorted({*here, *there}):
        mine, theirs = here.get(name), there.get(name)
        if mine == theirs:
            continue
        differences = list(_differences(mine, theirs))
        worse += any(bad for bad, _ in differences)
        print(name, *(f"  {text}" for _, text in differences), sep="\n")
    same = sum(here.get(name) == there.get(name) for name in here)
    print(
        f"{len(here)} plans: {same} the same, {len(here) - same} not, {worse} with more steps or other bytes"
    )
    return 1 if worse else 0


def _write_graphs(folder: Path) -> None:
    sys.path.insert(0, str(ROOT / "tests"))
    from laws.corpus import CORPUS  # the parent alone needs the tests

    from fqfuse.ir.text_print import print_graph

    for name, make in CORPUS.items():
        (folder / f"{name}.txt").write_text(print_graph(make()))
    for golden in (ROOT / "tests" / "golden" / "plans").glob("*.txt"):
        (folder / f"golden-{golden.name}").write_text(golden.read_text().split("# -----\n")[0])


def _ask(root: Path, graphs: Path, models: list[Path], scratch: Path) -> dict[str, Any]:
    scratch.mkdir()
    (scratch / "fqfuse").symlink_to(root, target_is_directory=True)
    command = [sys.executable, __file__, "--worker", str(graphs), *map(str, models)]
    found = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": str(scratch)}, stdout=subprocess.PIPE, check=True
    )
    answer: dict[str, Any] = json.loads(found.stdout)
    return answer


def _differences(
    mine: dict[str, Any] | None, theirs: dict[str, Any] | None
) -> Iterator[tuple[bool, str]]:
    """What differs, and whether that is worse here."""
    if mine is None or theirs is None or "error" in mine or "error" in theirs:
        texts = [
            "missing" if one is None else one.get("error", "compiles") for one in (mine, theirs)
        ]
        yield mine is None or "error" in mine, f"here: {texts[0]}; there: {texts[1]}"
        return
    if len(mine["steps"]) != len(theirs["steps"]):
        yield (
            len(mine["steps"]) > len(theirs["steps"]),
            f"{len(mine['steps'])} steps, there {len(theirs['steps'])}",
        )
    elif mine["steps"] != theirs["steps"]:
        first = next(
            pair for pair in zip(mine["steps"], theirs["steps"], strict=True) if pair[0] != pair[1]
        )
        yield False, f"here  {first[0]}\n  there {first[1]}"
    for backend in BACKENDS:
        if mine[backend] != theirs[backend]:
            yield True, f"{backend}: other bytes ({mine[backend]}, there {theirs[backend]})"


# -- in each checkout ------------------------------------------------------------------------------


def _described(graphs: Path, models: list[Path]) -> Iterator[tuple[str, dict[str, Any]]]:
    from fqfuse.frontend import graph_from_onnx  # of the checkout that PYTHONPATH names

    try:
        from fqfuse.ir.text_parse import parse_graph  # where a checkout has it itself
    except ImportError:
        from support.graph_text import parse_graph

    sources = [
        (path.stem, lambda path=path: parse_graph(path.read_text()))
        for path in sorted(graphs.glob("*.txt"))
    ]
    sources += [(path.stem, lambda path=path: graph_from_onnx(path)) for path in models]
    for name, make in sources:
        for target in TARGETS:
            try:
                yield f"{name} {target}", _plan(make(), target)
            except Exception as error:  # noqa: BLE001  # what it is, the other checkout must have, too
                yield f"{name} {target}", {"error": f"{type(error).__name__}: {error}"}


def _plan(graph: Any, target: str) -> dict[str, Any]:
    from fqfuse.composer.compose import plan_from_graph
    from fqfuse.passes import optimize

    plan = plan_from_graph(optimize(graph), target)
    runs = {
        backend: None if backend == "onednn" and target == "unified" else _run(plan, backend)
        for backend in BACKENDS
    }
    return {"steps": [_step(plan, step) for step in plan.steps], **runs}


def _step(plan: Any, step: Any) -> str:
    names: dict[
        str, int
    ] = {}  # values by the order in which the step names them: a name may differ
    types = [str(plan.type(value)) for value in (*step.inputs, *step.outputs) if value]
    for value in (*step.inputs, *step.outputs):
        names.setdefault(value, len(names))
    post_ops = [type(op).__name__ for op in step.attr.post_ops]
    return (
        f"{step.primitive} {' '.join(types)} scales {sorted(step.attr.scales)} post-ops {post_ops}"
    )


def _run(plan: Any, backend: str) -> str:
    import fqfuse

    session = fqfuse.InferenceSession(plan, backend=backend, threads=2)
    rng = np.random.default_rng(0)
    feeds = {one.name: _feed(one, rng) for one in session.get_inputs()}
    digest = hashlib.sha256()
    for output in session.run(None, feeds):
        digest.update(
            repr((output.dtype, output.shape)).encode() + np.ascontiguousarray(output).tobytes()
        )
    return digest.hexdigest()[:16]


def _feed(one: Any, rng: np.random.Generator) -> np.ndarray:
    kinds = {
        "tensor(float)": np.float32,
        "tensor(uint8)": np.uint8,
        "tensor(int8)": np.int8,
        "tensor(int64)": np.int64,
        "tensor(bool)": np.bool_,
    }
    shape = [size if isinstance(size, int) else 2 for size in one.shape]
    dtype = kinds[one.type]
    if dtype == np.float32:
        return (rng.integers(-64, 65, shape) / 16).astype(np.float32)
    return rng.integers(*((0, 2) if dtype in (np.int64, np.bool_) else (0, 100)), shape).astype(
        dtype
    )


if __name__ == "__main__":
    sys.exit(main())
