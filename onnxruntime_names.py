"""The names of ONNX Runtime's module that scripts use around a session, so that `import fqfuse as ort`
runs them (docs/onnxruntime.md). What they ask for is what fqfuse does, or makes no difference to it.
"""

from __future__ import annotations

import enum

from .runtime.like_onnxruntime import CPU

__all__ = [
    "ExecutionMode",
    "ExecutionOrder",
    "GraphOptimizationLevel",
    "RunOptions",
    "get_all_providers",
    "get_available_providers",
    "get_device",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
    "set_seed",
]


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


class RunOptions:
    """For `session.run(names, feeds, run_options)`: any attribute may be set, and none means anything."""

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
