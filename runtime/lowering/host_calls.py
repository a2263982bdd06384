"""Host steps that come to a single call of NumPy or Python.

A step between two primitives starts with cold caches: what Python does around the work costs more
than the work itself, 60 to 150 us for the cast of a mask or a gather of embeddings. These steps
skip the row's general evaluation, and write straight into the memory that the
next primitive reads: new memory of every run would cost page faults on top.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from ...ir.ops.rows import INDICES
from ...ir.ops.spec import Array
from ...ir.types import DType
from ...onednn.call_loop import CCall
from ...onednn.enums import CpuIsa
from ...onednn.lookup_kernel import Kernel, lookup_kernel
from ...onednn.range_kernel import RangeKernel, range_kernel
from ...plan.types import Plan, Step
from ...plan.verify_shapes import OWN_PRIMITIVES

IntArray = NDArray[np.integer[Any]]
_ZERO, _LEVELS, _LARGEST = np.float32(0), np.float32(255), np.finfo(np.float32).max
SingleCall = Callable[[Array], bool]
"""Takes the one input that is no constant, in any strides; False where only the row's evaluation
can say what it comes to.
"""
MakeCall = Callable[..., SingleCall]
"""From the arrays that the results go to, one for each output; each run makes its own calls. They
are C-contiguous, and for `FOLLOWERS` dense in some order.
"""

FOLLOWERS = frozenset({"onnx.Cast", "onnx.Lookup"})
"""Steps whose result may lie in memory as their input does: channels last stays so, and nothing is
transposed there and back.
"""


def single_call(
    plan: Plan, step: Step, constants: Mapping[str, Array], isa: CpuIsa
) -> MakeCall | None:
    """What makes the call of a step; None where a step takes more than a call.

    Args:
        plan: the plan.
        step: an `onnx.<Op>` step of it, or one of a primitive of our own.
        constants: data of the constants among its inputs.
        isa: the instruction sets that may be used.
    """
    alone = step.primitive == f"onnx.{step.op}" or step.primitive in OWN_PRIMITIVES
    make = _MAKERS.get(step.op) if alone else None
    return None if make is None else make(plan, step, constants, isa)


def call_in_c(single: SingleCall, x: Array) -> CCall | None:
    """What a call does for an array that stays where it is, in C alone; None where that goes
    through Python. It keeps neither alive.
    """
    return single.on(x) if isinstance(single, _ByKernel) else None


def tried_in_c(single: SingleCall, x: Array) -> CCall | None:
    """As `call_in_c`; its status may be another one than 0, where the call itself says more."""
    return single.on(x) if isinstance(single, _ByKernel | _RangeByKernel) else None


def _cast(plan: Plan, step: Step, constants: Mapping[str, Array], isa: CpuIsa) -> MakeCall | None:  # noqa: ARG001
    """Integers and truth values to f32: the nearest f32 of each, as the row has it."""
    ((_, source),) = step.args
    if source in constants or step.params["to"] is not DType.F32:
        return None
    kind = plan.type(source).dtype
    if not (kind.is_integer or kind is DType.BOOL):
        return None

    def make(out: Array) -> SingleCall:
        def call(x: Array) -> bool:
            np.copyto(out, x, casting="unsafe")
            return True

        return call

    return make


def _gather(plan: Plan, step: Step, constants: Mapping[str, Array], isa: CpuIsa) -> MakeCall | None:  # noqa: ARG001
    """Slices of a constant."""
    (_, data), (_, indices) = step.args
    axis = step.params.get("axis", 0)
    if (
        data not in constants
        or indices in constants
        or not isinstance(axis, int)
        or plan.type(indices).dtype not in INDICES
    ):
        return None
    table, size = constants[data], constants[data].shape[axis]

    def make(out: Array) -> SingleCall:
        def call(picked: Array) -> bool:
            if picked.min() < -size or picked.max() >= size:
                return False
            # `wrap` writes into `out` itself, and counts negative indices from the end; `raise`
            # would go through a copy.
            np.take(table, cast("IntArray", picked), axis, out, "wrap")
            return True

        return call

    return make


def _lookup(plan: Plan, step: Step, constants: Mapping[str, Array], isa: CpuIsa) -> MakeCall | None:
    """Bytes by a table of bytes: by the kernel where the CPU has it, else by what Python has for
    it, which is still several times as fast as indexing, which widens each code first."""
    (_, source), (_, table) = step.args
    if (
        source in constants
        or table not in constants
        or plan.type(source).dtype not in (DType.U8, DType.S8)
    ):
        return None
    if constants[table].dtype.itemsize != 1 or constants[table].shape != (256,):
        return None
    entries, kernel = np.array(constants[table], order="C"), lookup_kernel(isa)
    return (
        functools.partial(_translating, entries)
        if kernel is None
        else functools.partial(_ByKernel, kernel, entries)
    )


def _range(plan: Plan, step: Step, constants: Mapping[str, Array], isa: CpuIsa) -> MakeCall | None:
    """Scale and zero point of the range of a tensor: see the row, whose arithmetic this is, each
    operation in f32; by the kernel where the CPU has it.
    """
    ((_, source),) = step.args
    if source in constants or len([value for value in step.outputs if value]) < 2:
        return None
    kernel = range_kernel(isa)
    if kernel is None or plan.type(source).dtype is not DType.F32:
        return _ranging
    return functools.partial(_RangeByKernel, kernel)


def _ranging(scale: Array, zero: Array) -> SingleCall:
    def call(x: Array) -> bool:
        if not x.size:
            return False
        low, high = min(x.min(), _ZERO), max(x.max(), _ZERO)
        with np.errstate(all="ignore"):
            found = (high - low) / _LEVELS
        if not found > 0 or found > _LARGEST:
            return False  # all zeros, a NaN or an infinity
        scale[...] = found
        zero[...] = min(max(np.rint(-low / found), _ZERO), _LEVELS)
        return True

    return call


class _RangeByKernel:
    """A range by the kernel, which trusts its addresses: so this holds the arrays."""

    def __init__(self, kernel: RangeKernel, scale: Array, zero: Array) -> None:
        self._kernel, self._held = kernel, (scale, zero)
        self._results = scale.ctypes.data, zero.ctypes.data

    def __call__(self, x: Array) -> bool:
        dense = _dense(x)
        return not self._kernel(dense.ctypes.data, dense.size, *self._results)

    def on(self, x: Array) -> CCall | None:
        """The range of what lies in an array; None where that has gaps."""
        if _dense(x) is not x:
            return None
        return CCall(self._kernel, x.ctypes.data, x.size, *self._results)


def _dense(x: Array) -> Array:
    """The array, or a copy of one that has gaps; the order of its elements does not matter."""
    return x if x.transpose(_in_memory_order(x)).flags.c_contiguous else np.array(x, order="C")


def _in_memory_order(out: Array) -> list[int]:
    """The axes of a dense array from the outermost to the innermost."""
    return sorted(range(out.ndim), key=lambda axis: -out.strides[axis])


def _translating(entries: Array, out: Array) -> SingleCall:
    order, text = _in_memory_order(out), entries.tobytes()
    held, target = bytearray(out.size), out.transpose(order)
    codes = np.frombuffer(held, np.uint8).reshape(target.shape)

    def call(x: Array) -> bool:
        np.copyto(codes, x.view(np.uint8).transpose(order))
        np.copyto(target, np.frombuffer(held.translate(text), entries.dtype).reshape(target.shape))
        return True

    return call


class _ByKernel:
    """A lookup by the kernel, which trusts its four numbers: so this holds the arrays whose
    addresses it passes, and compares sizes.
    """

    def __init__(self, kernel: Kernel, entries: Array, out: Array) -> None:
        self._kernel, self._held, self._order = kernel, (out, entries), _in_memory_order(out)
        self._target, self._size, self._table = out.ctypes.data, out.nbytes, entries.ctypes.data

    def __call__(self, x: Array) -> bool:
        codes = np.ascontiguousarray(x.transpose(self._order))
        if codes.nbytes != self._size:
            return False
        self._kernel(self._target, codes.ctypes.data, self._size, self._table)
        return True

    def on(self, x: Array) -> CCall | None:
        """The lookup of what lies in an array; None where it must be brought into order first."""
        codes = x.transpose(self._order)
        if not codes.flags.c_contiguous or codes.nbytes != self._size:
            return None
        return CCall(self._kernel, self._target, codes.ctypes.data, self._size, self._table)


_MAKERS: Mapping[str, Callable[[Plan, Step, Mapping[str, Array], CpuIsa], MakeCall | None]] = {
    "Cast": _cast,
    "DynamicRange": _range,
    "Gather": _gather,
    "Lookup": _lookup,
}
