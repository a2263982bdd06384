"""Other programs that run the int8 model: ONNX Runtime, OpenVINO. Neither is needed for anything else."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import BackendUnavailable, FqfuseError, InvalidInput
from ..exporting import export
from ..frontend import ModelSource
from ..frontend.parts import model_bytes, onnx_outputs, onnx_values
from ..ir.ops.spec import Array
from ..measure.arrays import save_arrays
from ..measure.engines import onnxruntime_session, openvino_model
from ..measure.process import WorkerFailed, WorkerProcess
from ..runtime.processors import default_threads
from .layers import Run, Values, no_values

TELLS_VALUES = "onnxruntime"
"""The program that tells values, not only outputs."""

_PRECISE = {"session.x64quantprecision": "1"}
_AT_ONCE = 64  # values that are in memory together
_TRIED = ("openvino",)
TRIAL_SECONDS = 300.0
"""What a program may take to compile the int8 model and run it once."""
_HINT = (
    "leave it out, take another program, or compare with what `fqfuse export` writes of the model:"
    " it has only operators that ONNX Runtime knows"
)

Feeds = Mapping[str, Array]
Errors = tuple[type[BaseException], ...]


@dataclass(frozen=True)
class Peer:
    """A program that runs the int8 model.

    Attributes:
        run: gives the outputs.
        values: gives what it computes for a value, or None where it does not tell.
        optimized: gives the outputs as its users get them, where `run` leaves its optimizations out.
        refusal: what it says where its optimizations keep it from loading the model.
    """

    run: Run
    values: Values = no_values
    optimized: Run | None = None
    refusal: str = ""


def peer(
    name: str,
    model: ModelSource,
    names: Sequence[str] = (),
    feeds: Feeds | None = None,
    seconds: float = TRIAL_SECONDS,
) -> Peer:
    """A program that runs the int8 model.

    Args:
        name: of `PEERS`.
        model: the int8 model.
        names: values that will be asked for.
        feeds: for a run that tries the program out before it runs in this process.
        seconds: what that run may take.

    Raises:
        InvalidInput: there is no such program, or it does not take the model.
        BackendUnavailable: its package is missing.
    """
    if str(name) not in PEERS:  # also of what has no hash
        raise InvalidInput(
            f"there is nothing called {name!r} to compare with",
            where="against",
            hint=f"choose one of {', '.join(PEERS)}",
        )
    try:
        package = import_module(name)
    except ImportError as error:
        raise BackendUnavailable(
            f"{name} is not installed", where="against", hint=f"install it: pip install {name}"
        ) from error
    if feeds is not None and name in _TRIED:
        _try_out(name, model, feeds, seconds)
    return PEERS[name](package, model, names)


def cures(
    name: str, model: ModelSource, feeds: Feeds, seconds: float = TRIAL_SECONDS
) -> Iterator[tuple[str, Run]]:
    """What may make a program that computes another thing right: how it is called, and a run with it; what the
    program or the export refuses is left out.

    Args:
        name: of `PEERS`.
        model: the int8 model.
        feeds, seconds: as for `peer`.
    """
    if name == TELLS_VALUES:
        session = onnxruntime_session(model_bytes(model), settings=_PRECISE)
        outputs = onnx_outputs(model)
        yield (
            f'the session option {next(iter(_PRECISE))}, "1", with optimizations on (products of codes do not saturate)',
            lambda feeds: dict(zip(outputs, session.run(outputs, dict(feeds)), strict=True)),
        )
    with tempfile.TemporaryDirectory() as folder, suppress(FqfuseError):
        path = Path(folder) / "exported.onnx"
        export(model, path)
        other = peer(name, path, (), feeds, seconds)
        yield "what fqfuse export MODEL --to qdq -o OUT writes", other.optimized or other.run


def _try_out(name: str, model: ModelSource, feeds: Feeds, seconds: float) -> None:
    """One run in a process of its own: on some models OpenVINO ends its process, or never ends (2026.4.1
    on concatenations of codes), which no handler of errors sees.
    """
    threads = default_threads()
    with tempfile.TemporaryDirectory() as folder:
        path, arrays = Path(folder) / "model.onnx", Path(folder) / "feeds.npz"
        path.write_bytes(model_bytes(model))
        save_arrays(arrays, feeds)
        asked = {"engine": name, "path": str(path), "feeds": str(arrays), "stacked": False}
        try:
            with WorkerProcess(threads, Path(folder) / "log") as worker:
                worker.ask("load", seconds, threads=threads, **asked)
        except WorkerFailed as error:
            raise InvalidInput(
                f"{name} cannot run the int8 model: {error}", where="against", hint=_HINT
            ) from error


def _onnxruntime(package: Any, model: ModelSource, names: Sequence[str]) -> Peer:
    """ONNX Runtime with its optimizations off, where it computes what the file says, and as it runs by itself."""
    state = vars(package.capi.onnxruntime_pybind11_state).values()
    # its errors have no class of their own in common
    errors = tuple(kind for kind in state if isinstance(kind, type) and issubclass(kind, Exception))
    there, outputs = onnx_values(model), onnx_outputs(model)
    known = [name for name in dict.fromkeys(names) if name in there]
    data = model_bytes(model, extra=known)
    with _refusals("onnxruntime", errors):
        session = onnxruntime_session(data, optimized=False)

    def optimized(feeds: Feeds) -> dict[str, Array]:
        with _refusals("onnxruntime", errors):
            return dict(zip(outputs, fused.run(outputs, dict(feeds)), strict=True))

    def some(names: Sequence[str], feeds: Feeds) -> dict[str, Array]:
        with _refusals("onnxruntime", errors):
            return dict(zip(names, session.run(list(names), dict(feeds)), strict=True))

    def values(feeds: Feeds) -> Callable[[str], Array | None]:
        """Some values at once, in the order in which they were named."""
        chunk: dict[str, Array] = {}

        def value(name: str) -> Array | None:
            if name not in known:
                return None
            if name not in chunk:
                start = known.index(name)
                chunk.clear()
                chunk.update(some(known[start : start + _AT_ONCE], feeds))
            return chunk[name]

        return value

    def run(feeds: Feeds) -> dict[str, Array]:
        return some(outputs, feeds)

    try:  # the model as it is: more outputs would keep it from fusing
        fused = onnxruntime_session(model_bytes(model))
    except errors as error:
        return Peer(run, values, refusal=_last_line(error))
    return Peer(run, values, optimized)


def _openvino(_package: Any, model: ModelSource, _names: Sequence[str]) -> Peer:
    """OpenVINO, as it runs the model by itself. It fuses across layers, so it tells outputs only."""
    data = model_bytes(model)
    with _refusals("openvino", (RuntimeError,)):
        compiled = openvino_model(data)
    names = [output.get_any_name() for output in compiled.outputs]

    def run(feeds: Feeds) -> Mapping[str, Array]:
        with _refusals("openvino", (RuntimeError,)):
            found = compiled(dict(feeds))
        return {name: np.array(found[index]) for index, name in enumerate(names)}

    return Peer(run)


PEERS: Mapping[str, Callable[[Any, ModelSource, Sequence[str]], Peer]] = {
    "onnxruntime": _onnxruntime,
    "openvino": _openvino,
}


@contextmanager
def _refusals(name: str, kinds: Errors) -> Iterator[None]:
    """A program's own errors become errors of the input."""
    try:
        yield
    except kinds as error:
        raise InvalidInput(
            f"{name} cannot run the int8 model: {_last_line(error)}",
            where="against",
            hint=_HINT,
        ) from error


def _last_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines() or ["it does not say why"]
    return lines[-1].strip()
