"""The names of ONNX Runtime's module that scripts use around a session, so that `import fqfuse as ort`
runs them (docs/onnxruntime.md). What they ask for is what fqfuse does, or makes no difference to it.
"""

from __future__ import annotations

import enum
import sys
from types import SimpleNamespace

from .errors import BackendUnavailable, FqfuseError, InvalidInput, InvalidModel, UnsupportedOp
from .runtime.like_onnxruntime import CPU, SessionOptions, without
from .runtime.ort_values import IOBinding, OrtValue

__all__ = [
    "DeviceReset",
    "EPFail",
    "EngineError",
    "ExecutionMode",
    "ExecutionOrder",
    "Fail",
    "GraphOptimizationLevel",
    "IOBinding",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "ModelLoadCanceled",
    "ModelLoaded",
    "ModelRequiresCompilation",
    "NoModel",
    "NoSuchFile",
    "NotFound",
    "NotImplemented",
    "OrtValue",
    "RunOptions",
    "RuntimeException",
    "SessionOptions",
    "capi",
    "get_all_providers",
    "get_available_providers",
    "get_device",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_seed",
]


# What scripts catch: the kind of error that fqfuse raises in its place, or any where it raises none for it.
InvalidArgument = NoSuchFile = NoModel = NotFound = InvalidInput
InvalidGraph = InvalidProtobuf = InvalidModel
NotImplemented = UnsupportedOp  # noqa: A001  (its name there)
EPFail = EngineError = DeviceReset = BackendUnavailable
Fail = RuntimeException = FqfuseError
ModelLoaded = ModelLoadCanceled = ModelRequiresCompilation = FqfuseError

capi = SimpleNamespace(onnxruntime_pybind11_state=sys.modules[__name__])
"""For `except ort.capi.onnxruntime_pybind11_state.Fail`."""


class GraphOptimizationLevel(enum.IntEnum):
    """For `SessionOptions.graph_optimization_level`: fqfuse compiles a model in one way."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.IntEnum):
    """For `SessionOptions.execution_mode`: steps run one after the other, each on all threads."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(enum.IntEnum):
    """For `SessionOptions.execution_order`: the order is the plan's."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


@without(add_active_adapter="export the model with the adapter merged into its weights")
class RunOptions:
    """For `session.run(names, feeds, run_options)`. Any attribute may be set; `terminate` counts.

    Attributes:
        terminate: another thread sets it to True, and the run ends with an error behind the step that it is in.
    """

    log_severity_level, log_verbosity_level, logid = -1, 0, ""
    only_execute_path_to_fetches = terminate = False

    def __init__(self) -> None:
        self._entries: dict[str, str] = {}

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Keeps an entry; none means anything here."""
        self._entries[key] = value

    def get_run_config_entry(self, key: str) -> str:
        """The entry (KeyError when there is none)."""
        return self._entries[key]


def get_available_providers() -> list[str]:
    """Who can run a session: the CPU."""
    return [CPU]


def get_all_providers() -> list[str]:
    """The same: there is no other."""
    return [CPU]


def get_device() -> str:
    """`CPU`."""
    return "CPU"


def set_default_logger_severity(severity: int) -> None:
    """Does nothing: fqfuse logs nothing."""
    del severity


def set_default_logger_verbosity(verbosity: int) -> None:
    """Does nothing: fqfuse logs nothing."""
    del verbosity


def set_seed(seed: int) -> None:
    """Does nothing: random operators of a model draw as its attribute `seed` says."""
    del seed
