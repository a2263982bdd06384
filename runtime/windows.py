"""The windows of convolutions and poolings, for concrete shapes."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.ops import OPS
from ..ir.ops.convolution import transposed_window
from ..ir.ops.rows import integers
from ..ir.ops.windows import Window, window
from ..plan.types import Step


def window_of(step: Step, spatial: Sequence[int], kernel: Sequence[int] = ()) -> Window:
    """The window of a step, its padding resolved.

    Args:
        step: the step; a global pooling has a window of the whole input.
        spatial: sizes of the input's spatial dimensions.
        kernel: those of the weights; none for a pooling.
    """
    if step.op.startswith("Global"):
        ones, zeros = (1,) * len(spatial), (0,) * len(spatial)
        return Window(tuple(spatial), ones, ones, zeros, zeros, ones)
    attrs = OPS[step.op].known(step.params)
    if step.op == "ConvTranspose":
        return transposed_window(attrs, spatial, kernel)
    return window(attrs, spatial, kernel or integers(attrs, "kernel_shape"))
