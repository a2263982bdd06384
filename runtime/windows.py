"""The windows of steps."""

from __future__ import annotations

from collections.abc import Sequence

from ..ir.ops import OPS
from ..ir.ops.rows import integers
from ..ir.ops.windows import Window, window
from ..plan.types import Step

__all__ = ["pooling_window"]


def pooling_window(step: Step, spatial: Sequence[int]) -> Window:
    """The window of a pooling step, its padding resolved.

    Args:
        step: the step; a global one has a window of the whole input.
        spatial: sizes of the input's spatial dimensions.
    """
    if step.op.startswith("Global"):
        ones, zeros = (1,) * len(spatial), (0,) * len(spatial)
        return Window(tuple(spatial), ones, ones, zeros, zeros, ones)
    attrs = OPS[step.op].known(step.params)
    return window(attrs, spatial, integers(attrs, "kernel_shape"))
