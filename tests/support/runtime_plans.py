"""Plans of one step, written by hand: what the kernel tests run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fqfuse.ir.types import DType, TensorType
from fqfuse.plan.attributes import PrimitiveAttr
from fqfuse.plan.types import Plan, Step


def one_step(
    primitive: str,
    op: str,
    args: Sequence[tuple[str, np.ndarray]],
    dst: DType,
    *,
    params: Mapping[str, object] | None = None,
    attr: PrimitiveAttr | None = None,
    operands: Mapping[str, np.ndarray] | None = None,
    constants: Sequence[str] = ("weights", "bias"),
    target: str = "onednn-v3",
) -> tuple[Plan, Step, dict[str, np.ndarray]]:
    """A plan of one step named `step` with the output `y`; arguments are named after their roles,
    those in `constants` are constants.
    """
    data = dict(args) | dict(operands or {})
    fixed = {name: array for name, array in data.items() if name in constants}
    live = {name: array for name, array in data.items() if name not in constants}
    step = Step(
        "step",
        primitive,
        op,
        tuple((role, role) for role, _ in args),
        ("y",),
        dict(params or {}),
        attr or PrimitiveAttr(),
        ("step",),
    )
    values = {
        name: TensorType(DType.from_numpy(array.dtype), tuple(array.shape))
        for name, array in live.items()
    }
    values["y"] = TensorType(dst, None)
    plan = Plan("one step", target, tuple(live), ("y",), values, fixed, (step,))
    return plan, step, live
