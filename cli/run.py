"""Run a model or plan on arrays from files, and write what comes out.

Inputs are .npy files, named as NAME=FILE (or just FILE when the model has one input), or .npz
archives whose names are those of inputs. Outputs go to one .npz archive, to one .npy file, or as
.npy files into a folder; all of them are written, or none.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from .options import (
    Approximate,
    AsJson,
    Backend,
    BackendOption,
    Cache,
    Color,
    ColorOption,
    Dynamic,
    Inexact,
    ModelOrPlan,
    Target,
    Threads,
    option,
)

if TYPE_CHECKING:
    from ..ir.ops.spec import Array
    from ..plan.types import Plan
    from ..report.json import Json
    from ..runtime.session import InferenceSession
    from .feeds import Feed

Inputs = Annotated[
    list[str] | None, option("--input -i", "An .npy or .npz file; repeatable.", "NAME=FILE")
]
Output = Annotated[
    Path | None,
    option("--output -o", "*.npz, *.npy, or a folder; nothing is written without it.", "PATH"),
]


def command(
    model: ModelOrPlan,
    inputs: Inputs = None,
    output: Output = None,
    target: Target = None,
    dynamic: Dynamic = None,
    approximate: Approximate = None,
    cache: Cache = None,
    backend: BackendOption = Backend.AUTO,
    threads: Threads = None,
    inexact: Inexact = False,
    as_json: AsJson = False,
    color: ColorOption = Color.AUTO,
) -> None:
    """Runs a model once, and reports its outputs."""
    from ..runtime.session import InferenceSession
    from .feeds import read_feeds
    from .load import is_plan_file, plan_of
    from .outputs import check_destination, write_outputs
    from .progress import Progress

    plan = plan_of(model, target, dynamic, approximate, cache)
    if output is not None:
        check_destination(output, plan.outputs)
    feeds = read_feeds(inputs or (), plan.inputs)
    with Progress() as progress:
        progress.say(f"running {model.name}")
        session = InferenceSession(
            plan,
            backend.value,
            threads,
            exact=not inexact,
            apart=None if is_plan_file(model) else partial(_apart, model, plan),
        )
        started = time.perf_counter()
        arrays = _run(session, feeds)
        seconds = time.perf_counter() - started
    outputs = dict(zip(plan.outputs, arrays, strict=True))
    files = {} if output is None else write_outputs(outputs, output)
    _report(session, model, feeds, outputs, files, seconds, as_json=as_json, color=color)


def _apart(model: Path, plan: Plan) -> Plan:
    """The plan again, for inputs that give one size several values."""
    from ..frontend import DEFAULT, read_model
    from ..inference import plan_apart

    dynamic, approximate = (plan.options.get(key) for key in ("dynamic", "approximate"))
    return plan_apart(
        partial(read_model, model, DEFAULT),
        plan,
        target=plan.target,
        dynamic=dynamic,
        approximate=approximate or (),
    )


def _run(session: InferenceSession, feeds: Mapping[str, Feed]) -> list[Array]:
    from ..errors import InvalidInput

    try:
        with warnings.catch_warnings(record=True) as noted:
            warnings.simplefilter("always")
            found = session.run_carried(None, {name: feed.array for name, feed in feeds.items()})
    except InvalidInput as error:
        # The session knows the input, the command line knows the file.
        file = next(
            (feed.file for name, feed in feeds.items() if error.where.startswith(f"input {name}:")),
            None,
        )
        if file is None:
            raise
        raise InvalidInput(error.what, where=f"{file}, {error.where}", hint=error.hint) from error
    sys.stderr.writelines(f"note: {note.message}\n" for note in noted)
    return found


def _report(
    session: InferenceSession,
    model: Path,
    feeds: Mapping[str, Feed],
    outputs: Mapping[str, Array],
    files: Mapping[str, Path],
    seconds: float,
    *,
    as_json: bool,
    color: Color,
) -> None:
    from rich.console import Group

    from ..report.layout import Text, heading, plain_table
    from ..report.notation import title_text
    from .console import print_json, show

    given = [_row(name, feed.array, feed.file) for name, feed in feeds.items()]
    found = [_row(name, array, files.get(name)) for name, array in outputs.items()]
    if as_json:
        document: Json = {
            "schema": "fqfuse.run/1",
            "model": str(model),
            "target": session.plan.target,
            "backend": session.backend,
            "backend_reason": session.backend_reason,
            "threads": session.threads,
            "seconds": seconds,
            "inputs": given,
            "outputs": found,
            "steps": [
                {
                    "index": index,
                    "primitive": placed.step.primitive,
                    "origin": list(placed.step.origin),
                    "runtime": placed.runtime,
                    "implementation": placed.implementation,
                    "reason": placed.reason,
                }
                for index, placed in enumerate(session.placement())
            ],
        }
        print_json(document)
        return
    table = plain_table("", "name", "type", "file")
    for kind, rows in (("input", given), ("output", found)):
        for row in rows:
            name, type_, file = row.values()
            shown = Text(file or "not written: no --output")
            table.add_row("", Text(kind, style="dim"), Text(name or ""), type_, shown)
    note = f"one run: {1000 * seconds:.1f} ms on {session.backend}, target {session.plan.target}"
    reason = Text(f"  {session.backend}: {session.backend_reason}", style="dim")
    show(Group(heading(title_text(model.name), note), reason, table), color)


def _row(name: str, array: Array, file: Path | None) -> dict[str, str | None]:
    return {"name": name, "type": _type(array), "file": None if file is None else str(file)}


def _type(array: Array) -> str:
    from ..ir.types import DType, TensorType

    return (
        str(TensorType(DType.from_numpy(array.dtype), tuple(array.shape)))
        if array.dtype.kind != "U"
        else f"string{list(array.shape)}"
    )
