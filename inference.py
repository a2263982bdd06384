"""Sessions over plans and models alike."""

from __future__ import annotations

from os import PathLike
from typing import Literal

from .compiler import compile as compile_model
from .composer.plan import Plan
from .composer.plan_file import is_plan, read_plan
from .runtime.session import InferenceSession as PlanSession

__all__ = ["InferenceSession"]


class InferenceSession(PlanSession):
    """Runs a plan, in the shape of ONNX Runtime's session.

    Args:
        model: a Plan, a plan file, or an ONNX model, which is compiled with the default options first.
        backend: `numpy`, `onednn`, or `auto`: oneDNN where it is installed and exact on this CPU, NumPy otherwise.
        threads: how many threads a run may use; None: as many as the process may run on.

    Raises:
        FqfuseError: what `compile` or `load_plan` raise, or BackendUnavailable.
    """

    def __init__(
        self,
        model: Plan | str | PathLike[str] | bytes,
        backend: Literal["auto", "numpy", "onednn"] = "auto",
        threads: int | None = None,
    ) -> None:
        super().__init__(_plan_of(model), backend, threads)


def _plan_of(model: Plan | str | PathLike[str] | bytes) -> Plan:
    if isinstance(model, Plan):
        return model
    return read_plan(model) if is_plan(model) else compile_model(model)
