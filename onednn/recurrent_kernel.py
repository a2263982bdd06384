"""An LSTM that quantizes as it runs: its input in one call (`quantize`), and all steps of all its
directions, which quantize the hidden state at each, in another (`lstm_steps`): neither NumPy nor
oneDNN 3.2 has that in one piece.

A step of 256 hidden values is 0.26 million multiplications: some 2 us of work, to which the
library's product and NumPy's gates add 20 of calls. The kernel takes 3.5 altogether, with VNNI. A direction is
one thread's.

The members of the work of `lstm_steps`; H' is `hidden`, filled up to 16 * `blocks`:

    weights: s8 [directions, blocks, H'/4, 4 gates, 16, 4]: of 16 hidden values, of four
        inputs each time.
    sums: s32 [directions, blocks, 4, 16]: the weights' over all inputs.
    scales, bias: f32, like `sums`.
    constants: `CONSTANTS`.
    pre: f32 [steps, batch, directions, 4 * hidden]: products of the input; gates i, o, f, c.
    h, c: f32 [directions, batch, H']: states in front of the first step, and behind the last.
    codes, products: u8 and s32 of room, [directions, batch, H'] and [.., 4 * H'].
    y: f32 [steps, directions, batch, hidden]: the results.
    backwards: bit d is set where direction d goes from the last step to the first.

and of that of `quantize`:

    x: f32 [count].
    constants: `CONSTANTS`.
    codes, scale, zero: where results go: u8 [count], f32 [1] and s32 [1].
    count: how many.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

from .kernels import Kernels, kernels
from .library import Library

LANES: Final = 16
"""Hidden values that are computed at once; arrays are filled up with zeros to a multiple of it."""

_EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 0.5)
_TANH = (
    -5.70498872745e-3,
    2.06390887954e-2,
    -5.37397155531e-2,
    1.33314422036e-1,
    -3.33332819422e-1,
)
CONSTANTS: Final[npt.NDArray[np.float32]] = np.array(
    [
        *(1, 2, 255, np.nan),
        *(-104, 104),  # beyond, e^x is 0 or infinite in f32
        *(1.44269504088896341, 0.693359375, -2.12194440e-4),  # log2 e; ln 2 in two parts
        *_EXP,
        *_TANH,
        0.625,  # below, tanh is a polynomial
    ],
    np.float32,
)
"""What the functions of both LSTM kernels compute with. The polynomials are those of the Cephes
library (`expf.c`, `tanhf.c`): both are good to some 1e-7 of the result.
"""


def lstm_kernel(library: Library) -> Kernels | None:
    """The functions; None where they were not compiled, or fuse no multiplication and addition."""
    return kernels(library, "recurrent_kernel")
