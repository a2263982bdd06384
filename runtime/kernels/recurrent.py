"""Recurrent layers: the row's arithmetic, one task a direction."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...errors import FqfuseError, InvalidInput
from ...ir.ops import OPS
from ...ir.ops.recurrent import Layer
from ...ir.ops.rows import A
from ...ir.ops.spec import Array
from .base import Binding, Kernel, Recorder, Result, Tasks, Values, nbytes

__all__ = ["bind_recurrent"]


class _Recurrent(Kernel):
    """A layer in f32."""

    def __init__(self, binding: Binding) -> None:
        self._step = step = binding.step
        spec = OPS[step.op]
        self._attrs = spec.known(step.params)
        names = ("src", *(param.name for param in spec.inputs[1:]))
        self._operands = [binding.arg(name) for name in names]
        self._named = [bool(value) for value in step.outputs]
        self.results = tuple(
            Result(dtype, shape)
            for dtype, shape in zip(binding.dtypes, binding.shapes, strict=True)
        )
        steps, self._directions, batch, _ = binding.shapes[0]
        self._rows = (steps * batch, binding.need("w").shape[1])
        self.local_bytes = nbytes(self._rows, np.float32)

    def tasks(self, values: Values, outputs: Sequence[Array]) -> Tasks:
        """One task for each direction."""
        arrays = [None if operand is None else operand.read(values) for operand in self._operands]
        layer = Layer(self._step.op, self._attrs, *arrays)  # type: ignore[arg-type]
        found = iter(outputs)
        targets = [next(found) if named else None for named in self._named]

        def record(d: int, record: Recorder) -> None:
            record(self._compute, layer, d, targets, record.take(self._rows, np.float32))

        return Tasks(self._directions, record)

    def _compute(self, layer: Layer, d: int, targets: Sequence[A | None], rows: A) -> None:
        y, *states = targets
        assert y is not None
        try:
            last = layer.direction(d, y[:, d], rows)
        except FqfuseError:
            raise
        except ValueError as error:
            step = self._step
            raise InvalidInput(
                f"{step.op} cannot be computed: {error}",
                where=", ".join(step.origin) or step.name,
                hint="feed lengths that fit the number of steps",
            ) from error
        for target, state in zip(states, last, strict=False):
            if target is not None:
                target[d] = state


def bind_recurrent(binding: Binding) -> Kernel:
    """A layer of an RNN, GRU or LSTM."""
    return _Recurrent(binding)
