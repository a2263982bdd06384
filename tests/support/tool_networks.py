"""Networks, as PyTorch exports them, of which ONNX Runtime's tool for transformers makes operators of its own:
embeddings with looked-up positions, a block of a diffusion network, attention with rotary positions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from support.onnx_cases import model, node, random

TOKENS, WIDTH, HEADS = 8, 32, 4
PIXELS, CHANNELS, GROUPS = 4, 64, 32
POSITIONS = 16


def embedded() -> onnx.ModelProto:
    """Word, segment and position vectors, normalized, and a block of a BERT behind them; the positions
    are as many as the tokens have, read off their shape.
    """
    constants: dict[str, Any] = {
        "words": random([50, WIDTH], 1),
        "segments": random([2, WIDTH], 2),
        "places": random([POSITIONS, WIDTH], 3),
        "counted": np.arange(POSITIONS)[np.newaxis],
        "gamma": random([WIDTH], 4, 0.2) + 1,
        "beta": random([WIDTH], 5, 0.2),
        "zero": np.int64([0]),
        "one": np.int64([1]),
        "second": np.int64(1),
        "two": np.int64([2]),
        "cut": np.int64([0, 0, HEADS, WIDTH // HEADS]),
        "joint": np.int64([0, 0, WIDTH]),
        "low": np.float32(-10000),
        "unit": np.float32(1),
        "root": np.float32((WIDTH // HEADS) ** 0.5),
    }
    nodes = [
        node("Gather", ["words", "ids"], ["a"], axis=0),
        node("Gather", ["segments", "types"], ["b"], axis=0),
        node("Shape", ["ids"], ["s"]),
        node("Gather", ["s", "second"], ["n"], axis=0),
        node("Unsqueeze", ["n", "zero"], ["end"]),
        node("Slice", ["counted", "zero", "end", "one", "one"], ["at"]),
        node("Gather", ["places", "at"], ["c"], axis=0),
        node("Add", ["a", "b"], ["ab"]),
        node("Add", ["ab", "c"], ["abc"]),
        node("LayerNormalization", ["abc", "gamma", "beta"], ["x"], axis=-1),
        node("Unsqueeze", ["mask", "one"], ["m1"]),
        node("Unsqueeze", ["m1", "two"], ["m2"]),
        node("Cast", ["m2"], ["m3"], to=onnx.TensorProto.FLOAT),
        node("Sub", ["unit", "m3"], ["m4"]),
        node("Mul", ["m4", "low"], ["bias"]),
    ]
    for index, (name, perm) in enumerate(
        (("q", [0, 2, 1, 3]), ("k", [0, 2, 3, 1]), ("v", [0, 2, 1, 3]))
    ):
        constants[f"w{name}"] = random([WIDTH, WIDTH], 10 + index, 0.2)
        constants[f"b{name}"] = random([WIDTH], 20 + index, 0.2)
        nodes += [
            node("MatMul", ["x", f"w{name}"], [f"{name}0"]),
            node("Add", [f"b{name}", f"{name}0"], [f"{name}1"]),
            node("Reshape", [f"{name}1", "cut"], [f"{name}2"]),
            node("Transpose", [f"{name}2"], [name], perm=perm),
        ]
    constants["wo"], constants["bo"] = random([WIDTH, WIDTH], 30, 0.2), random([WIDTH], 31, 0.2)
    nodes += [
        node("MatMul", ["q", "k"], ["qk"]),
        node("Div", ["qk", "root"], ["scaled"]),
        node("Add", ["scaled", "bias"], ["masked"]),
        node("Softmax", ["masked"], ["p"], axis=-1),
        node("MatMul", ["p", "v"], ["pv"]),
        node("Transpose", ["pv"], ["o1"], perm=[0, 2, 1, 3]),
        node("Reshape", ["o1", "joint"], ["o2"]),
        node("MatMul", ["o2", "wo"], ["o3"]),
        node("Add", ["bo", "o3"], ["o4"]),
        node("Add", ["o4", "x"], ["o5"]),
        node("LayerNormalization", ["o5", "gamma", "beta"], ["y"], axis=-1),
    ]
    kinds = dict.fromkeys(("ids", "types", "mask"), onnx.TensorProto.INT64)
    shape = ["batch", "sequence"]
    return model(
        nodes, inputs=dict.fromkeys(kinds, shape), constants=constants, types=kinds, opset=17
    )


def diffusion() -> onnx.ModelProto:
    """A residual block of a diffusion network: two group normalizations with swish, each in front of a
    convolution, the step's vector added between them.
    """
    constants: dict[str, Any] = {
        "ones": np.ones(GROUPS, np.float32),
        "zeros": np.zeros(GROUPS, np.float32),
        "grouped": np.int64([0, GROUPS, -1]),
        "wt": random([16, CHANNELS], 1, 0.3),
        "two": np.int64([2]),
        "three": np.int64([3]),
    }
    nodes = [
        *_normalized("x", "n1", constants, 2),
        *_convolved("n1", "c1", constants, 4),
        node("MatMul", ["t", "wt"], ["t1"]),
        node("Unsqueeze", ["t1", "two"], ["t2"]),
        node("Unsqueeze", ["t2", "three"], ["t3"]),
        node("Add", ["c1", "t3"], ["h"]),
        *_normalized("h", "n2", constants, 6),
        *_convolved("n2", "c2", constants, 8),
        node("Add", ["x", "c2"], ["y"]),
    ]
    inputs = {"x": [2, CHANNELS, PIXELS, PIXELS], "t": [2, 16]}
    proto = model(nodes, inputs=inputs, constants=constants, opset=17)
    return onnx.shape_inference.infer_shapes(proto)


def _normalized(x: str, y: str, constants: dict[str, Any], seed: int) -> list[onnx.NodeProto]:
    """Group normalization and swish, by an instance normalization of groups."""
    constants[f"{y}.g"] = random([CHANNELS, 1, 1], seed, 0.2) + 1
    constants[f"{y}.b"] = random([CHANNELS, 1, 1], seed + 1, 0.2)
    return [
        node("Reshape", [x, "grouped"], [f"{y}1"]),
        node("InstanceNormalization", [f"{y}1", "ones", "zeros"], [f"{y}2"], epsilon=1e-5),
        node("Shape", [x], [f"{y}3"]),
        node("Reshape", [f"{y}2", f"{y}3"], [f"{y}4"]),
        node("Mul", [f"{y}4", f"{y}.g"], [f"{y}5"]),
        node("Add", [f"{y}5", f"{y}.b"], [f"{y}6"]),
        node("Sigmoid", [f"{y}6"], [f"{y}7"]),
        node("Mul", [f"{y}6", f"{y}7"], [y]),
    ]


def _convolved(x: str, y: str, constants: dict[str, Any], seed: int) -> list[onnx.NodeProto]:
    constants[f"{y}.w"] = random([CHANNELS, CHANNELS, 3, 3], seed, 0.05)
    constants[f"{y}.b"] = random([CHANNELS], seed + 1, 0.1)
    shape = {"kernel_shape": [3, 3], "pads": [1, 1, 1, 1]}
    return [node("Conv", [x, f"{y}.w", f"{y}.b"], [y], **shape)]


def rotary() -> onnx.ModelProto:
    """Causal self-attention without a cache, whose queries and keys are turned by the positions' angles
    (RoPE), these computed from frequencies in the graph.
    """
    half = WIDTH // HEADS // 2
    constants: dict[str, Any] = {
        "frequencies": (10000.0 ** -(np.arange(half, dtype=np.float32) / half))[
            np.newaxis, :, np.newaxis
        ],
        "unit": np.float32(1),
        "zero": np.int64([0]),
        "one": np.int64([1]),
        "last": np.int64([3]),
        "far": np.int64([2**31 - 1]),
        "third": np.int64(3),
        "two": np.int64(2),
        "cut": np.int64([0, 0, HEADS, WIDTH // HEADS]),
        "joint": np.int64([0, 0, WIDTH]),
        "root": np.float32((WIDTH // HEADS) ** -0.5),
        "causal": np.triu(np.full((TOKENS, TOKENS), -1e4, np.float32), 1)[np.newaxis, np.newaxis],
    }
    nodes = [
        node("Unsqueeze", ["position_ids", "one"], ["p1"]),
        node("Cast", ["p1"], ["p2"], to=onnx.TensorProto.FLOAT),
        node("MatMul", ["frequencies", "p2"], ["angles"]),
        node("Transpose", ["angles"], ["turned"], perm=[0, 2, 1]),
        node("Concat", ["turned", "turned"], ["both"], axis=-1),
    ]
    for name in ("Cos", "Sin"):
        nodes += [
            node(name, ["both"], [f"{name}1"]),
            node("Mul", [f"{name}1", "unit"], [f"{name}2"]),
            node("Unsqueeze", [f"{name}2", "one"], [name]),
        ]
    for index, name in enumerate(("q", "k", "v")):
        constants[f"w{name}"] = random([WIDTH, WIDTH], 10 + index, 0.2)
        nodes += [
            node("MatMul", ["x", f"w{name}"], [f"{name}0"]),
            node("Reshape", [f"{name}0", "cut"], [f"{name}1"]),
            node("Transpose", [f"{name}1"], [f"{name}2"], perm=[0, 2, 1, 3]),
        ]
    constants["wo"] = random([WIDTH, WIDTH], 30, 0.2)
    nodes += [
        *_turned("q2", "q3"),
        *_turned("k2", "k3"),
        node("Transpose", ["k3"], ["kt"], perm=[0, 1, 3, 2]),
        node("MatMul", ["q3", "kt"], ["s1"]),
        node("Mul", ["s1", "root"], ["s2"]),
        node("Add", ["s2", "causal"], ["s3"]),
        node("Softmax", ["s3"], ["s4"], axis=-1),
        node("MatMul", ["s4", "v2"], ["o1"]),
        node("Transpose", ["o1"], ["o2"], perm=[0, 2, 1, 3]),
        node("Reshape", ["o2", "joint"], ["o3"]),
        node("MatMul", ["o3", "wo"], ["y"]),
    ]
    inputs: dict[str, Sequence[int | str | None]] = {
        "x": [2, TOKENS, WIDTH],
        "position_ids": [2, TOKENS],
    }
    kinds = {"position_ids": onnx.TensorProto.INT64}
    return model(nodes, inputs=inputs, constants=constants, types=kinds, opset=17)


def _turned(x: str, y: str) -> list[onnx.NodeProto]:
    """x * cos + (-second half, first half) * sin."""
    return [
        node("Shape", [x], [f"{y}1"]),
        node("Gather", [f"{y}1", "third"], [f"{y}2"], axis=0),
        node("Div", [f"{y}2", "two"], [f"{y}3"]),
        node("Unsqueeze", [f"{y}3", "zero"], [f"{y}4"]),
        node("Unsqueeze", [f"{y}3", "zero"], [f"{y}5"]),
        node("Slice", [x, "zero", f"{y}5", "last", "one"], [f"{y}6"]),
        node("Slice", [x, f"{y}4", "far", "last", "one"], [f"{y}7"]),
        node("Neg", [f"{y}7"], [f"{y}8"]),
        node("Concat", [f"{y}8", f"{y}6"], [f"{y}9"], axis=-1),
        node("Mul", [x, "Cos"], [f"{y}a"]),
        node("Mul", [f"{y}9", "Sin"], [f"{y}b"]),
        node("Add", [f"{y}a", f"{y}b"], [y]),
    ]
