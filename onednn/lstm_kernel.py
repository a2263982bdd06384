"""All steps of all directions of an f32 LSTM in one call.

One sequence meets the weights of its hidden state anew at each step: what a step takes is the time
in which the cache gives them. oneDNN 3.2 reads them from the first to the last at each step; where
they are about as large as the cache, nothing of them is left in it when the next step begins. The
functions go through them there and back: 10.3 us a step of 256 hidden values instead of
13.4 on Zen 4, whose second-level cache holds 1 MiB as they do. The gates are computed as soon as
the products for 16 hidden values are there. `lstm_sequence` has one sequence's input multiplied
meanwhile, which adds two thirds of the time that it takes by itself; `lstm_steps` reads these
products.

A direction is one thread's, and threads meet once a layer, where the library's primitive has them
meet at each step.

The members of a work; distances count elements:

    weights: f32 [directions, blocks, hidden, 4 gates, 16]: for 16 hidden values, from each of
        the state in front; gates i, o, f, c; zeros fill up the last block.
    constants: `recurrent_kernel.CONSTANTS`.
    pre: of `lstm_steps` only, f32: products of the input, and biases; of a step, sequence and
        direction 4 * hidden side by side, the directions behind each other.
    first_h, first_c: f32 [directions, batch, hidden]: states in front of the first step.
    c: f32, like them: room, and in the end the last cell state. It may be `first_c`.
    y: f32: the results, of a step, sequence and direction `hidden` side by side, the directions
        behind each other.
    backwards: bit d is set where direction d goes from the last step to the first.
    pre_step, pre_row, y_step, y_row: how far steps and sequences lie apart.
    x, of_x, bias, room, inputs: of `lstm_sequence` only: f32 [steps, inputs]; its weights, f32
        [directions, blocks, 2, inputs, 2 gates, 16]; f32 [directions, blocks, 4, 16]; f32
        [directions, 2, blocks, 512], which needs no content.
"""

from __future__ import annotations

from typing import Final

from .kernels import Kernels, kernels
from .library import Library

GROUP: Final = 8
"""Steps whose input is multiplied together; a sequence has as many at least."""


def f32_lstm_kernel(library: Library) -> Kernels | None:
    """The functions; None where they were not compiled, or fuse no multiplication and addition."""
    return kernels(library, "lstm_kernel")
