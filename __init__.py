"""fqfuse compiles quantized ONNX models into plans of fused int8 primitives, says why each
quantizer fused or did not, and runs them.

    plan = fqfuse.compile("model.onnx")
    fqfuse.save_plan(plan, "model.plan.onnx")
    session = fqfuse.InferenceSession("model.plan.onnx")
    outputs = session.run(None, {"input": array})

What takes long to import is imported when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from fqfuse.errors import (
    BackendUnavailable,
    FqfuseError,
    InternalError,
    InvalidInput,
    InvalidModel,
    PlanError,
    UnsupportedOp,
)

if TYPE_CHECKING:
    from fqfuse.compiler import compile, load_plan
    from fqfuse.exporting import export
    from fqfuse.frontend.budgets import Budgets
    from fqfuse.inference import InferenceSession
    from fqfuse.plan.conversion.convert import convert
    from fqfuse.plan.file import save_plan
    from fqfuse.plan.types import Plan
    from fqfuse.report.verdict.findings import findings

__all__ = [
    "BackendUnavailable",
    "Budgets",
    "FqfuseError",
    "InferenceSession",
    "InternalError",
    "InvalidInput",
    "InvalidModel",
    "Plan",
    "PlanError",
    "UnsupportedOp",
    "compile",
    "convert",
    "export",
    "findings",
    "load_plan",
    "save_plan",
]

_LAZY = {
    "Budgets": "fqfuse.frontend.budgets",
    "InferenceSession": "fqfuse.inference",
    "Plan": "fqfuse.plan.types",
    "compile": "fqfuse.compiler",
    "convert": "fqfuse.plan.conversion.convert",
    "export": "fqfuse.exporting",
    "findings": "fqfuse.report.verdict.findings",
    "load_plan": "fqfuse.compiler",
    "save_plan": "fqfuse.plan.file",
}


def __getattr__(name: str) -> object:
    """Imports a public name at its first use (PEP 562)."""
    if name not in _LAZY:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_LAZY[name]), name)
    globals()[name] = value
    return value
