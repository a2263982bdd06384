"""Other programs that run the int8 model: ONNX Runtime, OpenVINO. Neither is needed for anything else."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import numpy as np

from ..errors import BackendUnavailable, InvalidInput
from ..frontend import ModelSource
from ..frontend.parts import model_bytes, onnx_outputs, onnx_values
from ..ir.ops.spec import Array

__all__ = ["PEERS", "OnnxRuntime", "OpenVino", "Peer", "peer"]

_AT_ONCE = 64  # values that are in memory together


class Peer:
    """A program that runs the int8 model.

    Attributes:
        name: what it is called.
        tells_values: not only outputs.
    """

    name: str
    tells_values: bool

    def run(self, feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        """The outputs."""
        raise NotImplementedError

    def values(self, feeds: Mapping[str, Array]) -> Callable[[str], Array | None]:
        """What it computes for a value; None where it does not tell."""
        raise NotImplementedError


class OnnxRuntime(Peer):
    """ONNX Runtime on the CPU, with its optimizations off: it computes what the file says.

    Args:
        model: the int8 model.
        names: values that are asked for.

    Raises:
        BackendUnavailable: the package is missing.
        InvalidInput: it does not take the model.
    """

    name = "onnxruntime"
    tells_values = True

    def __init__(self, model: ModelSource, names: Sequence[str] = ()) -> None:
        package: Any = _imported("onnxruntime", "onnxruntime")
        state = vars(package.capi.onnxruntime_pybind11_state).values()
        # its errors have no class of their own in common
        self._errors = tuple(
            kind for kind in state if isinstance(kind, type) and issubclass(kind, Exception)
        )
        there = onnx_values(model)
        self._names = [name for name in dict.fromkeys(names) if name in there]
        options = package.SessionOptions()
        options.graph_optimization_level = package.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        try:
            data = model_bytes(model, extra=self._names)
            self._session = package.InferenceSession(
                data, options, providers=["CPUExecutionProvider"]
            )
        except self._errors as error:
            raise _refused(self.name, error) from error
        self._outputs = onnx_outputs(model)

    def run(self, feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        """The outputs."""
        return self._some(self._outputs, feeds)

    def _some(self, names: Sequence[str], feeds: Mapping[str, Array]) -> dict[str, Array]:
        try:
            return dict(zip(names, self._session.run(list(names), dict(feeds)), strict=True))
        except self._errors as error:
            raise _refused(self.name, error) from error

    def values(self, feeds: Mapping[str, Array]) -> Callable[[str], Array | None]:
        """What it computes for a value; some values at once, in the order in which they were named."""
        chunk: dict[str, Array] = {}

        def value(name: str) -> Array | None:
            if name not in self._names:
                return None
            if name not in chunk:
                start = self._names.index(name)
                chunk.clear()
                chunk.update(self._some(self._names[start : start + _AT_ONCE], feeds))
            return chunk[name]

        return value


class OpenVino(Peer):
    """OpenVINO on the CPU, as it runs the model by itself. It fuses across layers, so it tells outputs only.

    Args:
        model: the int8 model.
        names: not asked for.

    Raises:
        BackendUnavailable: the package is missing.
        InvalidInput: it does not take the model.
    """

    name = "openvino"
    tells_values = False

    def __init__(self, model: ModelSource, names: Sequence[str] = ()) -> None:
        del names
        package: Any = _imported("openvino", "openvino")
        try:
            core = package.Core()
            read = core.read_model(model=model_bytes(model), weights=b"")
            self._outputs = [output.get_any_name() for output in read.outputs]
            self._model = core.compile_model(read, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
        except RuntimeError as error:
            raise _refused(self.name, error) from error

    def run(self, feeds: Mapping[str, Array]) -> Mapping[str, Array]:
        """The outputs."""
        try:
            found = self._model(dict(feeds))
        except RuntimeError as error:
            raise _refused(self.name, error) from error
        return {name: np.array(found[index]) for index, name in enumerate(self._outputs)}

    def values(self, feeds: Mapping[str, Array]) -> Callable[[str], Array | None]:
        """Nothing: it tells outputs only."""
        del feeds
        return lambda _: None


PEERS: Mapping[str, type[OnnxRuntime | OpenVino]] = {
    OnnxRuntime.name: OnnxRuntime,
    OpenVino.name: OpenVino,
}


def peer(name: str, model: ModelSource, names: Sequence[str] = ()) -> Peer:
    """A program that runs the int8 model.

    Raises:
        InvalidInput: there is no such program, or it does not take the model.
        BackendUnavailable: its package is missing.
    """
    if name not in PEERS:
        raise InvalidInput(
            f"there is nothing called {name!r} to compare with",
            where="against",
            hint=f"choose one of {', '.join(PEERS)}",
        )
    return PEERS[name](model, names)


def _imported(module: str, package: str) -> Any:
    try:
        return import_module(module)
    except ImportError as error:
        raise BackendUnavailable(
            f"{package} is not installed",
            where="against",
            hint=f"install it: pip install {package}",
        ) from error


def _refused(name: str, error: BaseException) -> InvalidInput:
    lines = str(error).strip().splitlines() or ["it does not say why"]
    return InvalidInput(
        f"{name} cannot run the int8 model: {lines[-1].strip()}",
        where="against",
        hint="leave it out, or compare with another program",
    )
