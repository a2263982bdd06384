"""Small plans for the oneDNN runtime's tests, put together step by step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fqfuse.ir.types import DType, TensorType
from fqfuse.plan.attributes import PrimitiveAttr, Scale, ZeroPoint
from fqfuse.plan.types import Plan, Step

U8, S8, F32 = DType.U8, DType.S8, DType.F32


def scales(**values: float | Sequence[float]) -> dict[str, Scale]:
    """Role -> scale; several values are one for each output channel of ungrouped convolution
    weights.
    """
    found = {}
    for role, value in values.items():
        array = np.atleast_1d(np.asarray(value, np.float32))
        found[role] = Scale(tuple(array.tolist()), int(array.size > 1))
    return found


class Builder:
    """Collects values, constants and steps; names are the caller's."""

    def __init__(self, seed: int = 0) -> None:
        self.rng = np.random.default_rng(seed)
        self.values: dict[str, TensorType] = {}
        self.constants: dict[str, np.ndarray] = {}
        self.steps: list[Step] = []
        self.inputs: list[str] = []

    def input(self, name: str, shape: tuple[int | str, ...], dtype: DType = F32) -> str:
        self.inputs.append(name)
        self.values[name] = TensorType(dtype, shape)
        return name

    def constant(self, name: str, data: np.ndarray) -> str:
        self.constants[name] = data
        return name

    def step(
        self,
        primitive: str,
        op: str,
        args: Mapping[str, str],
        out: str,
        dtype: DType,
        shape: tuple[int | str, ...] | None = None,
        params: Mapping[str, object] | None = None,
        attr: PrimitiveAttr | None = None,
    ) -> str:
        self.values[out] = TensorType(dtype, shape)
        self.steps.append(
            Step(
                out,
                primitive,
                op,
                tuple(args.items()),
                (out,),
                dict(params or {}),
                attr or PrimitiveAttr(),
                (f"node of {out}",),
            )
        )
        return out

    def quantize(
        self, src: str, out: str, dtype: DType = U8, scale: float = 0.02, zero: int = 0
    ) -> str:
        points = {"dst": ZeroPoint((zero,))} if zero else {}
        attr = PrimitiveAttr(scales(dst=scale), points)
        return self.step(
            "reorder", "Identity", {"src": src}, out, dtype, self.values[src].shape, attr=attr
        )

    def convolution(
        self,
        src: str,
        out: str,
        weights: tuple[int, ...],
        dtype: DType = U8,
        *,
        params: Mapping[str, object] | None = None,
        attr: PrimitiveAttr | None = None,
    ) -> str:
        name = self.constant(
            f"{out}/weights", self.rng.integers(-127, 128, weights).astype(np.int8)
        )
        chosen = attr or PrimitiveAttr(
            scales(src=0.02, weights=0.004, **({} if dtype is F32 else {"dst": 0.05}))
        )
        return self.step(
            "convolution", "Conv", {"src": src, "weights": name}, out, dtype, None, params, chosen
        )

    def plan(self, *outputs: str) -> Plan:
        """The plan that the steps make."""
        return Plan(
            "test",
            "onednn-v3",
            tuple(self.inputs),
            outputs,
            self.values,
            self.constants,
            tuple(self.steps),
        )

    def feeds(self, sizes: Mapping[str, int] | None = None) -> dict[str, np.ndarray]:
        """Random arrays for the inputs."""
        found = {}
        for name in self.inputs:
            kind = self.values[name]
            assert kind.shape is not None
            shape = [(sizes or {}).get(d, 2) if isinstance(d, str) else d for d in kind.shape]
            low, high = (-3, 3) if kind.dtype is F32 else kind.dtype.range
            data = (
                self.rng.normal(0, 1, shape)
                if kind.dtype is F32
                else self.rng.integers(low, high, shape)
            )
            found[name] = data.astype(kind.dtype.numpy)
        return found
