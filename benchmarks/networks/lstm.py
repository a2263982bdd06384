"""A recurrent classifier of sequences: Hochreiter & Schmidhuber 1997, two bidirectional LSTM layers
(Graves & Schmidhuber 2005), 256 wide, over 48 steps.

Written as the torch exporter does for `batch_first`: a Transpose to [steps, batch, width] in front,
and behind each layer a Transpose and Reshape that join the directions.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from fqfuse.measure.arrays import Array

from .layers import classifier
from .writer import NetworkWriter, Tensor

LAYERS, WIDTH, STEPS, CLASSES = 2, 256, 48, 64
_GATES, _DIRECTIONS = 4, 2


def sample_sequences(rng: np.random.Generator, count: int) -> Mapping[str, Array]:
    """Return ``count`` random sequences, f32 ``[count, 48, 256]``, each step close to the last."""
    steps = rng.standard_normal((count, STEPS, WIDTH), np.float32)
    for step in range(1, STEPS):
        steps[:, step] = 0.8 * steps[:, step - 1] + 0.6 * steps[:, step]
    return {"input": steps}


def build_lstm(seed: int = 0, samples: int = 4) -> onnx.ModelProto:
    """Return the network: ``input`` [1, 48, 256] to ``logits`` [1, 64]."""
    writer = NetworkWriter("lstm", seed)
    sequences = sample_sequences(np.random.default_rng([seed, 1]), samples)
    x = writer.op("Transpose", [writer.input("input", sequences["input"])], "", perm=[1, 0, 2])
    for layer in range(LAYERS):
        x = _bidirectional(writer, x, f"/lstm/layer.{layer}")
    last = writer.constant("/Constant_last", np.array(-1, np.int64))
    return writer.model(
        {"logits": classifier(writer, writer.op("Gather", [x, last], "", axis=0), "/fc", CLASSES)}
    )


def _bidirectional(writer: NetworkWriter, x: Tensor, scope: str) -> Tensor:
    """LSTM in both directions: [steps, batch, width] to [steps, batch, 2 * 256].

    The weights' variance is 1 / fan-in, so that gates neither close nor saturate; the bias of the
    forget gate is about 1 (Jozefowicz et al. 2015), which lets a state live for several steps.
    """
    module = scope.strip("/").replace("/", ".")
    rows = _GATES * WIDTH
    fan_in = int(x.value.shape[-1])
    bias = 0.1 * writer.rng.standard_normal((_DIRECTIONS, 2 * rows))
    bias[:, 2 * WIDTH : 3 * WIDTH] += 1.0  # ONNX's order of gates: input, output, forget, cell
    parameters = {
        "weight_ih": _normal(writer, (_DIRECTIONS, rows, fan_in)),
        "weight_hh": _normal(writer, (_DIRECTIONS, rows, WIDTH)),
        "bias": bias.astype(np.float32),
    }
    weights = [writer.parameter(f"{module}.{name}", value) for name, value in parameters.items()]
    y = writer.op("LSTM", [x, *weights], scope, direction="bidirectional", hidden_size=WIDTH)
    y = writer.op("Transpose", [y], scope, perm=[0, 2, 1, 3])
    shape = writer.constant(f"{scope}/Constant_join", np.array([0, 0, -1], np.int64))
    return writer.op("Reshape", [y, shape], scope)


def _normal(writer: NetworkWriter, shape: tuple[int, int, int]) -> Array:
    """Normal f32 weights [directions, rows, fan-in] whose rows differ in size by a log-normal
    factor.
    """
    rows = writer.rng.lognormal(0.0, 0.3, (*shape[:2], 1))
    values: Array = writer.rng.standard_normal(shape) * rows * shape[2] ** -0.5
    return values.astype(np.float32)
