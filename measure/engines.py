"""ONNX Runtime and OpenVINO, each opened in one function, and the engines under measurement, which worker
processes open.

Every engine gets the same thread count, the lowest latency it offers and f32 for what is not int8.
With weights in 4 or 8 bits alone an engine may make codes of activations as it runs; whether it
shall can be said (``coded``), so that all compute the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import MappingProxyType
from typing import Any

from .arrays import Array, Feeds

Run = Callable[[Feeds], Sequence[Array]]


# it names a state of the machine, as FqfuseError's BackendUnavailable does
class Unavailable(Exception):
    """The engine's package is not installed, or lacks what is needed."""


@dataclass(frozen=True)
class Opened:
    """A ready session: ``run`` maps a feed to the outputs in the model's order (arrays may be
    reused); ``session`` is that of fqfuse.
    """

    run: Run
    note: str = ""
    session: Any = None


@dataclass(frozen=True)
class Engine:
    """How to load an engine's library (``entry`` of ``module``), and how to open a model with it: path,
    threads, and whether sources of products with packed weights become codes (None: as the engine
    does by itself; ONNX Runtime reads it in the model, as accuracy_level).
    """

    name: str
    module: str
    entry: str
    open: Callable[[Path, int, bool | None], Opened]

    def load_library(self) -> None:
        """Import the engine's package, or raise Unavailable.

        The entry is touched too: a package may put off its own imports until then, and they are no
        part of compilation.
        """
        try:
            found = hasattr(import_module(self.module), self.entry)
        except ImportError as error:
            raise Unavailable(str(error)) from error
        if not found:
            raise Unavailable(f"{self.module} has no {self.entry}")

    def version(self) -> str:
        """The version that the engine's package was installed as, or gives itself; empty where it
        has none.
        """
        try:
            return version(self.module)
        except PackageNotFoundError:  # a checkout on the path, or a package of another name
            return str(getattr(import_module(self.module), "__version__", ""))


def _open_fqfuse(
    backend: str, path: Path, threads: int, coded: bool | None, *, exact: bool = True
) -> Opened:
    fqfuse: Any = import_module("fqfuse")
    model = fqfuse.compile(str(path), dynamic="matmul") if coded else str(path)
    options = {} if exact else {"exact": False}  # which earlier versions do not know
    session = fqfuse.InferenceSession(model, backend=backend, threads=threads, **options)
    note = "sources of packed products in s8, by blocks" if coded else ""
    return Opened(lambda feeds: session.run(None, feeds), note, session)


def onnxruntime_session(
    model: str | bytes,
    threads: int | None = None,
    *,
    optimized: bool = True,
    settings: Mapping[str, str] = MappingProxyType({}),
) -> Any:
    """A session of ONNX Runtime on the CPU.

    Args:
        model: a path, or the file's bytes.
        threads: how many compute; None: as it chooses.
        optimized: it may fuse; else it computes what the file says, node by node.
        settings: further ones, by their names.
    """
    runtime: Any = import_module("onnxruntime")
    options = runtime.SessionOptions()
    if threads is not None:
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
    if not optimized:
        options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    for name, value in settings.items():
        options.add_session_config_entry(name, value)
    options.log_severity_level = 4  # what goes wrong is raised, too
    return runtime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def openvino_model(model: str | bytes, **config: object) -> Any:
    """A model that OpenVINO has compiled for the CPU, with f32 for what is not int8: by itself it takes
    bf16 silently where the CPU has it.

    Args:
        model: a path, or the file's bytes.
        config: further properties.
    """
    core: Any = import_module("openvino").Core()
    read = (
        core.read_model(model)
        if isinstance(model, str)
        else core.read_model(model=model, weights=b"")
    )
    return core.compile_model(read, "CPU", {"INFERENCE_PRECISION_HINT": "f32", **config})


def _open_onnxruntime(path: Path, threads: int, coded: bool | None) -> Opened:
    session = onnxruntime_session(str(path), threads)
    note = "" if coded is None else "sources of packed products as accuracy_level says"
    return Opened(lambda feeds: session.run(None, dict(feeds)), note)


def _open_openvino(path: Path, threads: int, coded: bool | None) -> Opened:
    config: dict[str, object] = {
        "NUM_STREAMS": 1,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": threads,
    }
    if coded is False:  # by default sources become codes in groups of 32
        config["DYNAMIC_QUANTIZATION_GROUP_SIZE"] = 0
    compiled = openvino_model(str(path), **config)
    request = compiled.create_infer_request()
    outputs = list(compiled.outputs)

    def run(feeds: Feeds) -> list[Array]:
        results = request.infer(dict(feeds), share_inputs=True, share_outputs=True)
        return [results[output] for output in outputs]

    note = f"precision {compiled.get_property('INFERENCE_PRECISION_HINT').to_string()}"
    if coded is not None:
        group = compiled.get_property("DYNAMIC_QUANTIZATION_GROUP_SIZE")
        note += f", sources of packed products {f'in s8, by {group}' if group else 'in f32'}"
    return Opened(run, note)


AUTO = "fqfuse-auto"
"""fqfuse as it chooses its runtime itself."""

INEXACT = "fqfuse-inexact"
"""fqfuse with oneDNN's own int8 kernels, which saturate on a CPU without VNNI."""

ENGINES: Mapping[str, Engine] = {
    engine.name: engine
    for engine in (
        Engine(AUTO, "fqfuse", "InferenceSession", partial(_open_fqfuse, "auto")),
        Engine("fqfuse-onednn", "fqfuse", "InferenceSession", partial(_open_fqfuse, "onednn")),
        Engine(INEXACT, "fqfuse", "InferenceSession", partial(_open_fqfuse, "onednn", exact=False)),
        Engine("fqfuse-numpy", "fqfuse", "InferenceSession", partial(_open_fqfuse, "numpy")),
        Engine("onnxruntime", "onnxruntime", "InferenceSession", _open_onnxruntime),
        Engine("openvino", "openvino", "Core", _open_openvino),
        Engine("onnxruntime-f32", "onnxruntime", "InferenceSession", _open_onnxruntime),
    )
}
PEERS = ("onnxruntime", "openvino")
