"""Averages of whole maps of codes in f32, by a kernel of our own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...ir.ops.windows import Window
from ...onednn.average_kernel import MOST_POSITIONS, average_call, average_kernel
from ...onednn.call_loop import CCall
from ...onednn.enums import DataType
from ...onednn.kernels import Kernels
from ...onednn.layouts import channels_last
from ...onednn.memory import Memory
from ...plan.attributes import Eltwise
from ...plan.types import Step
from .binding import Binder, need
from .program import Buffer, Owner, Tensor
from .values import NotLowered, Wanted


@dataclass(frozen=True, eq=False)
class AverageAction:
    """The averages of each map.

    Attributes:
        kernel: the function.
        numbers: what the kernel does to a sum: f32 [5].
        shape: images, positions, channels.
        args: `codes` and `means`, channels last.
    """

    kernel: Kernels
    numbers: NDArray[np.float32]
    shape: tuple[int, int, int]
    args: Mapping[str, Tensor | Memory]

    @property
    def tensors(self) -> list[Tensor]:
        """Everything that it touches."""
        return [arg for arg in self.args.values() if isinstance(arg, Tensor)]

    @property
    def placed(self) -> list[Tensor]:
        """All of it."""
        return self.tensors

    def call(self, memories: Mapping[str, Memory], held: list[object]) -> CCall:
        """What computes the averages.

        Args:
            memories: of the arguments.
            held: gets what must live as long as the call.
        """
        images, positions, channels = self.shape
        codes, means = (memories[name].data for name in ("codes", "means"))
        assert codes is not None
        assert means is not None
        assert codes.nbytes >= images * positions * channels
        assert means.nbytes >= images * channels * self.numbers.itemsize
        held += [codes, means, self]
        return average_call(
            self.kernel,
            held,
            codes=codes.ctypes.data,
            means=means.ctypes.data,
            numbers=self.numbers.ctypes.data,
            images=images,
            positions=positions,
            channels=channels,
            sign=128 * (memories["codes"].desc.dtype == DataType.s8),
        )


def average_of_codes(binder: Binder, step: Step, win: Window) -> None:
    """An average of codes in f32, of each whole map, channels last, with what decodes it.

    Raises:
        NotLowered: the windows or the attributes are others, or the kernel cannot run.
    """
    src, kernel, library = need(step, "src"), average_kernel(binder.library), binder.library
    dims, dtype = binder.dims(src), binder.dtype(src)
    positions = math.prod(dims[2:])
    if kernel is None:
        raise NotLowered("the kernel for averages was not compiled")
    if step.attr.scales or step.attr.zero_points:
        raise NotLowered("a scale or a zero point of the destination")
    if win.kernel != dims[2:] or any((*win.begin, *win.end)) or positions > MOST_POSITIONS:
        raise NotLowered("windows of another size than the map")
    linear = _factors_and_shifts(step)
    codes = binder.fetch(Wanted(src, channels_last(library, dims, dtype)))
    if not isinstance(codes, Tensor) or codes.buffer.owner is not Owner.ARENA:
        raise NotLowered("codes that are fed")
    desc = channels_last(library, binder.dims(step.output), DataType.f32)
    means = Tensor(Buffer(step.output, Owner.ARENA, desc.size), desc)
    share = np.float32(1) / np.float32(positions)
    numbers = np.array([share, *linear], np.float32)
    shape = (dims[0], positions, dims[1])
    action = AverageAction(kernel, numbers, shape, {"codes": codes, "means": means})
    binder.commit_kernel(action, f"averages by {kernel.level}", {step.output: means})


def _factors_and_shifts(step: Step) -> list[float]:
    """Of two post-ops, in their order: a zero point, and a scale; x * 1 + -0 is every x."""
    found = []
    for op in step.attr.post_ops:
        match op:
            case Eltwise("linear", alpha, beta, 1):
                found += [alpha, beta]
            case _:
                raise NotLowered("further post-ops")
    if len(found) > 4:
        raise NotLowered("further post-ops")
    return found + [1.0, -0.0] * (2 - len(found) // 2)
