"""Sessions over plans and models alike."""

from __future__ import annotations

from os import PathLike
from typing import Literal

from .compiler import check_budgets
from .compiler import compile as compile_model
from .frontend import DEFAULT, Budgets, ModelSource
from .plan.file import is_plan, read_plan
from .plan.types import Plan
from .runtime.session import InferenceSession as PlanSession
from .runtime.session import check_backend

__all__ = ["InferenceSession", "plan_of"]


class InferenceSession(PlanSession):
    """Runs a plan, in the shape of ONNX Runtime's session.

    Args:
        model: a Plan, a plan file, or an ONNX model (path, bytes or `onnx.ModelProto`), which is
            compiled for the default target first.
        backend: `numpy`, `onednn`, or `auto`: oneDNN where it is installed and exact on this CPU,
            NumPy otherwise.
        threads: how many threads a run may use; None: as many as the process may run on.
        budgets: limits on what the model may ask for, `run_bytes` on what a run may.

    Raises:
        FqfuseError: what `compile` or `load_plan` raise, or BackendUnavailable.
    """

    def __init__(
        self,
        model: Plan | ModelSource,
        backend: Literal["auto", "numpy", "onednn"] = "auto",
        threads: int | None = None,
        *,
        budgets: Budgets = DEFAULT,
    ) -> None:
        check_backend(backend)
        plan = plan_of(model, budgets)
        super().__init__(plan, backend, threads, run_bytes=budgets.run_bytes)


def plan_of(model: Plan | ModelSource, budgets: Budgets = DEFAULT) -> Plan:
    """The plan itself, that in a file or bytes, or of a model, which is compiled.

    Raises:
        FqfuseError: what `compile` or `load_plan` raise.
    """
    check_budgets(budgets)
    if isinstance(model, Plan):
        return model
    if isinstance(model, (str, PathLike, bytes)) and is_plan(model):
        return read_plan(model)
    return compile_model(model, budgets=budgets)
