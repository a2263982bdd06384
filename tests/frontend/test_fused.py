"""What ONNX Runtime's optimizers write: files of its own making, forms that are not taken, and rows of which it
has no kernel for CPUs.
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper
from support.contrib_cases import MICROSOFT
from support.judge import optimized_model
from support.onnx_cases import model, node, random, run_import, run_ort

import fqfuse
from fqfuse.frontend.operators.dialects import UNWRITTEN

WEIGHTS = {"w": random([8, 24]), "b": random([24])}


def agree(proto, feeds, *, atol=1e-4):
    """Both of our runtimes compute what ONNX Runtime computes of the very same file."""
    wanted = run_ort(proto, feeds)
    plan = fqfuse.compile(proto)
    assert "Onnx" not in {step.op for step in plan.steps}
    for backend in ("numpy", "onednn"):
        found = fqfuse.InferenceSession(plan, backend).run(None, feeds)
        for mine, theirs in zip(found, wanted, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=atol, err_msg=backend)
    return plan


def fused_ops(proto):
    return {n.op_type for n in proto.graph.node if n.domain == MICROSOFT}


# -- root mean squares -----------------------------------------------------------------------------


def test_a_root_mean_square_is_primitives_with_the_quantizer_behind_it() -> None:
    nodes = [
        node("RMSNormalization", ["x", "g"], ["n"]),
        node("QuantizeLinear", ["n", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["y"]),
    ]
    constants = {"g": random([8]), "s": np.float32(0.03), "z": np.uint8(128)}
    proto = model(nodes, inputs={"x": [2, 3, 8]}, constants=constants, opset=23)
    plan = fqfuse.compile(proto)
    assert [step.primitive for step in plan.steps] == ["eltwise", "pooling", "binary"]
    session = fqfuse.InferenceSession(plan, "onednn")
    feeds = {"x": random([2, 3, 8], 5)}
    (found,), (wanted,) = session.run(None, feeds), run_ort(proto, feeds)
    assert {placed.runtime for placed in session.placement()} == {"onednn"}
    assert np.abs(found - wanted).max() <= 0.03 + 1e-6  # a code, where rounding ties


@pytest.mark.parametrize("axis", [-2, 1, 0])
def test_a_root_mean_square_over_several_axes(axis: int) -> None:
    shape = (2, 3, 4)
    size = shape[axis:]
    nodes = [node("RMSNormalization", ["x", "g"], ["y"], axis=axis, epsilon=1e-3)]
    proto = model(nodes, inputs={"x": list(shape)}, constants={"g": random(size)}, opset=23)
    agree(proto, {"x": random(shape, 6)})


# -- files that it writes --------------------------------------------------------------------------


@pytest.mark.parametrize("opset", [11, 13, 16])
def test_layer_norm_in_front_of_its_opset(opset: int, tmp_path) -> None:
    """ONNX Runtime makes LayerNormalization of its arithmetic in files of any opset."""
    axes = {"axes": [-1], "keepdims": 1}
    nodes = [
        node("ReduceMean", ["x"], ["m"], **axes),
        node("Sub", ["x", "m"], ["d"]),
        node("Pow", ["d", "two"], ["s"]),
        node("ReduceMean", ["s"], ["v"], **axes),
        node("Add", ["v", "e"], ["w"]),
        node("Sqrt", ["w"], ["r"]),
        node("Div", ["d", "r"], ["n"]),
        node("Mul", ["n", "g"], ["a"]),
        node("Add", ["a", "b"], ["y"]),
    ]
    constants = {"two": np.float32(2), "e": np.float32(1e-5), "g": random([8]), "b": random([8])}
    proto = model(nodes, inputs={"x": [2, 3, 8]}, constants=constants, opset=opset)
    proto = optimized_model(proto, tmp_path, "EXTENDED")
    assert [n.op_type for n in proto.graph.node] == ["LayerNormalization"]
    agree(proto, {"x": random([2, 3, 8])})


def block_of_convolutions():
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c1"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Clip", ["c1", "low", "high"], ["a1"]),
        node("Conv", ["a1", "w2"], ["c2"], kernel_shape=[1, 1]),
        node("Add", ["c2", "x"], ["s"]),
        node("Relu", ["s"], ["y"]),
    ]
    constants = {
        "w1": random([6, 4, 3, 3]),
        "b1": random([6]),
        "w2": random([4, 6, 1, 1]),
        "low": np.float32(0),
        "high": np.float32(6),
    }
    return model(nodes, inputs={"x": [1, 4, 7, 7]}, constants=constants, opset=17)


def test_convolutions_with_activations(tmp_path) -> None:
    proto = optimized_model(block_of_convolutions(), tmp_path, "EXTENDED")
    assert fused_ops(proto) == {"FusedConv"}
    plan = agree(proto, {"x": random([1, 4, 7, 7])})
    assert [step.primitive for step in plan.steps] == ["convolution", "convolution"]


def feed_forward():
    nodes = [
        node("MatMul", ["x", "w1"], ["p1"]),
        node("Add", ["p1", "b1"], ["h1"]),
        node("Div", ["h1", "root"], ["d"]),
        node("Erf", ["d"], ["e"]),
        node("Add", ["e", "one"], ["f"]),
        node("Mul", ["h1", "f"], ["t"]),
        node("Mul", ["t", "half"], ["g"]),
        node("MatMul", ["g", "w2"], ["p2"]),
        node("Add", ["p2", "b2"], ["h2"]),
        node("Add", ["h2", "x"], ["s"]),
        node("LayerNormalization", ["s", "gamma", "beta"], ["y"], axis=-1),
    ]
    constants = {
        "w1": random([8, 16]),
        "b1": random([16]),
        "w2": random([16, 8]),
        "b2": random([8]),
    }
    constants |= {"gamma": random([8]), "beta": random([8]), "root": np.float32(math.sqrt(2))}
    constants |= {"one": np.float32(1), "half": np.float32(0.5)}
    return model(nodes, inputs={"x": [2, 5, 8]}, constants=constants, opset=17)


def test_a_feed_forward_block(tmp_path) -> None:
    proto = optimized_model(feed_forward(), tmp_path, "EXTENDED")
    assert fused_ops(proto) == {"Gelu", "SkipLayerNormalization"}
    plan = agree(proto, {"x": random([2, 5, 8])})
    # nothing is left of what it fused: bias, gelu and sum are parts of the products
    assert [step.primitive for step in plan.steps] == ["matmul", "matmul", "layer_normalization"]


@pytest.mark.parametrize("op", ["Attention", "MultiHeadAttention", "ai.onnx.Attention"])
def test_the_products_of_quantized_attention_are_int8(op) -> None:
    heads, width = 2, 16
    constants = {"s": np.float32(0.05), "z": np.int8(3), "w": random([width, 3 * width], 1, 0.3)}
    constants |= {"ws": np.float32(0.01), "wz": np.int8(0), "b": random([3 * width], 2)}
    constants["codes"] = np.clip(np.rint(constants.pop("w") / 0.01), -128, 127).astype(np.int8)
    nodes = [
        node("QuantizeLinear", ["x", "s", "z"], ["q"]),
        node("DequantizeLinear", ["q", "s", "z"], ["real"]),
        node("DequantizeLinear", ["codes", "ws", "wz"], ["weights"]),
    ]
    if op == "Attention":
        nodes.append(node(op, ["real", "weights", "b"], ["h"], domain=MICROSOFT, num_heads=heads))
    else:
        nodes += [
            node("MatMul", ["real", "weights"], ["projected"]),
            node("Split", ["projected"], ["q1", "k1", "v1"], axis=-1, num_outputs=3),
        ]
        for part in "qkv":
            nodes += [
                node("QuantizeLinear", [f"{part}1", "s", "z"], [f"{part}2"]),
                node("DequantizeLinear", [f"{part}2", "s", "z"], [f"{part}3"]),
            ]
        domain = MICROSOFT if op == "MultiHeadAttention" else ""
        counts = (
            {"q_num_heads": heads, "kv_num_heads": heads} if not domain else {"num_heads": heads}
        )
        op_type = op.removeprefix("ai.onnx.")
        nodes.append(node(op_type, ["q3", "k3", "v3"], ["h"], domain=domain, **counts))
    nodes += [
        node("QuantizeLinear", ["h", "s", "z"], ["hq"]),
        node("DequantizeLinear", ["hq", "s", "z"], ["y"]),
    ]
    proto = model(
        nodes,
        inputs={"x": [2, 6, width]},
        constants=constants,
        domains={MICROSOFT: 1},
        opset=23,
    )
    plan = agree(proto, {"x": random([2, 6, width])}, atol=0.051)  # a code, where it lies on a tie
    products = [step for step in plan.steps if step.primitive == "matmul"]
    sources = [plan.type(step.inputs[0]).dtype.value for step in products]
    assert len(products) == 3
    assert sources[0] == "s8" or sources[0] == "u8"
    if op != "Attention":  # what it holds inside has no quantizers of its own
        assert all(kind in ("s8", "u8") for kind in sources[:2])


@pytest.mark.parametrize("dims", [2, 3, 4])
def test_a_query_that_sees_no_key_gives_zeros(dims) -> None:
    proto = model(
        [node("Attention", ["q", "k", "k", "mask"])],
        inputs={"q": [2, 3, 4, 8], "k": [2, 3, 5, 8], "mask": [1, 3, 4, 5][-dims:]},
        types={"mask": onnx.TensorProto.BOOL},
        opset=23,
    )
    mask = np.ones([1, 3, 4, 5][-dims:], np.bool_)
    mask[..., 2, :] = False
    plan = agree(proto, {"q": random([2, 3, 4, 8]), "k": random([2, 3, 5, 8], 1), "mask": mask})
    assert "softmax" in {step.primitive for step in plan.steps}


def test_computed_scales_of_columns_run_along_a_transposed_matrix() -> None:
    constants = {"as": np.float32(0.02), "z": np.uint8(3), "bz": np.uint8([5, 6, 7])}
    inputs = ["a", "as", "z", "b", "bs", "bz"]
    made = node("QGemm", inputs, domain=MICROSOFT, transB=1)
    types = dict.fromkeys("ab", onnx.TensorProto.UINT8)
    proto = model(
        [made],
        inputs={"a": [2, 3], "b": [3, 3], "bs": [3]},
        constants=constants,
        types=types,
        domains={MICROSOFT: 1},
    )
    codes = np.random.default_rng(0).integers(0, 256, (5, 3)).astype(np.uint8)
    feeds = {"a": codes[:2], "b": codes[2:], "bs": np.float32([0.01, 0.02, 0.03])}
    wanted = run_ort(proto, feeds)
    found = fqfuse.InferenceSession(fqfuse.compile(proto), "numpy").run(None, feeds)
    np.testing.assert_allclose(found[0], wanted[0], rtol=1e-5)


def test_what_hides_keys_is_computed_once() -> None:
    attributes = {"domain": MICROSOFT, "num_heads": 2}
    nodes = [
        node("Attention", ["x", "w", "b", "mask"], ["h"], **attributes),
        node("Attention", ["h", "w", "b", "mask"], ["y"], **attributes),
    ]
    proto = model(
        nodes,
        inputs={"x": ["n", "s", 8], "mask": ["n", "t"]},
        constants=WEIGHTS,
        types={"mask": onnx.TensorProto.INT32},
        domains={MICROSOFT: 1},
    )
    mask = np.int32([[1, 1, 1], [1, 1, 0]])
    plan = agree(proto, {"x": random([2, 3, 8]), "mask": mask})
    assert [step.primitive for step in plan.steps].count("onnx.Where") == 1


# -- what is not taken -----------------------------------------------------------------------------


def refused(op, inputs, constants=None, *, outputs=("y",), **attributes):
    shapes = {name: [2, 3, 8] for name in inputs if name and name not in (constants or {})}
    made = node(op, inputs, outputs, name="n", domain=MICROSOFT, **attributes)
    proto = model(
        [made],
        inputs=shapes,
        outputs=[o for o in outputs if o],
        constants=constants,
        domains={MICROSOFT: 1},
    )
    with pytest.raises((fqfuse.UnsupportedOp, fqfuse.InvalidModel)) as caught:
        fqfuse.compile(proto)
    assert caught.value.where.endswith(f"{MICROSOFT}.{op} node 'n'")
    return caught.value.what


GAMMA = {"g": random([8])}


def test_an_attribute_that_no_row_has_is_named() -> None:
    assert "the attribute approximate of Gelu" in refused("Gelu", ["x"], approximate="tanh")
    told = refused("Attention", ["x", "w", "b"], WEIGHTS, num_heads=2, do_rotary=1)
    assert told == "the attribute do_rotary of Attention is 1"
    told = refused("Attention", ["x", "w", "b"], WEIGHTS, num_heads=2, past_present_share_buffer=1)
    assert told == "the attribute past_present_share_buffer of Attention is 1"
    told = refused("RotaryEmbedding", ["x", "x", "x", "x"], scale=0.5)
    assert told == "the attribute scale of RotaryEmbedding is 0.5"


def test_an_attribute_of_another_kind_is_named() -> None:
    assert "the attribute num_heads of Attention" in refused(
        "Attention", ["x", "w"], WEIGHTS, num_heads=2.0
    )
    assert refused("Attention", ["x", "w"], WEIGHTS) == "Attention needs the attribute num_heads"
    assert "the attribute activation of FusedMatMulActivation is 'Cosine'" in refused(
        "FusedMatMulActivation", ["x", "w"], WEIGHTS, activation="Cosine"
    )
    told = refused("FusedGemm", ["w", "w"], WEIGHTS, transB=1, activation="Elu")
    assert told == "the activation Elu needs its parameters alpha"


def test_what_crashed_is_named() -> None:
    told = refused(
        "FusedGemm", ["w", "w"], WEIGHTS, transB=1, activation="Elu", activation_alpha="x"
    )
    assert told == "the activation Elu needs its parameters alpha"
    codes = {
        "w": np.zeros((2, 2), np.int8),
        "s": np.float32(1),
        "z": np.int8(0),
        "c": np.int32([1]),
    }
    inputs = ["w", "s", "z", "w", "s", "z", "c"]
    assert refused("QGemm", inputs, codes, alpha="x") == "the attribute alpha of QGemm is 'x'"


def test_states_of_too_few_dimensions_are_named() -> None:
    numbers = {"k": np.zeros(96, np.float32), "n": np.int32([1]), "t": np.int32(3)}
    inputs = ["x", "x", "x", "k", "k", "n", "t"]
    made = node("GroupQueryAttention", inputs, domain=MICROSOFT, num_heads=1, kv_num_heads=1)
    proto = model([made], inputs={"x": [2, 3, 8]}, constants=numbers, domains={MICROSOFT: 1})
    with pytest.raises(fqfuse.InvalidModel, match=r"dimension|rank"):
        fqfuse.compile(proto)
    keys = model(
        [node("Attention", ["q", "k", "q"])], inputs={"q": [1, 2, 3, 4], "k": [8]}, opset=23
    )
    with pytest.raises(fqfuse.InvalidModel, match="'k' of 1 dimensions has no dimension 1"):
        fqfuse.compile(keys)


def test_an_output_that_no_row_makes_is_named() -> None:
    told = refused("SkipLayerNormalization", ["x", "x", "g"], GAMMA, outputs=("y", "mean"))
    assert told == "the output mean of SkipLayerNormalization, which is read"


def test_inputs_are_named() -> None:
    assert (
        refused("SkipLayerNormalization", ["x", "x"])
        == "SkipLayerNormalization needs its input gamma, which is absent"
    )
    assert "takes 2 inputs, and has 3" in refused("BiasGelu", ["x", "x", "x"])
    told = refused("MultiHeadAttention", ["x", "x", "x", "", "", "", "", "", "x"], num_heads=2)
    assert told == "the input past_sequence_length of MultiHeadAttention"
    assert "whose key is absent" in refused("MultiHeadAttention", ["x"], num_heads=2)


def test_masks_that_are_not_taken_are_named() -> None:
    mask = {"m": np.ones((2, 1, 3, 3), np.int32), **WEIGHTS}
    told = refused("Attention", ["x", "w", "b", "m"], mask, num_heads=2)
    assert told == "Attention whose mask_index has 4 dimensions"
    mask["m"] = np.ones(7, np.int32)
    told = refused("Attention", ["x", "w", "b", "m"], mask, num_heads=2)
    assert told == "Attention whose mask_index has 7 entries for a batch of 2"


def test_windows_that_see_nothing_are_refused() -> None:
    numbers = {"n": np.int32([2, 2]), "t": np.int32(3)}
    inputs = ["x", "x", "x", "", "", "n", "t"]
    told = refused(
        "GroupQueryAttention", inputs, numbers, num_heads=1, kv_num_heads=1, local_window_size=0
    )
    assert told == "the attribute local_window_size of GroupQueryAttention is 0, with causal 1"


def test_unidirectional_between_two_sequences_is_refused() -> None:
    made = node(
        "MultiHeadAttention",
        ["q", "k", "k"],
        name="n",
        domain=MICROSOFT,
        num_heads=2,
        unidirectional=1,
    )
    proto = model([made], inputs={"q": [1, 3, 8], "k": [1, 4, 8]}, domains={MICROSOFT: 1})
    with pytest.raises(
        fqfuse.UnsupportedOp,
        match="unidirectional of MultiHeadAttention is 1 for 3 queries and 4 keys",
    ):
        fqfuse.compile(proto)


# -- rows that ONNX Runtime has no kernel for on CPUs: held against their description in NumPy -----


def found_of(op, arrays, outputs=("y",), **attributes):
    made = node(op, list(arrays), outputs, name="n", domain=MICROSOFT, **attributes)
    types = {name: helper.np_dtype_to_tensor_dtype(v.dtype) for name, v in arrays.items()}
    proto = model(
        [made],
        inputs={name: v.shape for name, v in arrays.items()},
        outputs=outputs,
        domains={MICROSOFT: 1},
        types=types,
    )
    return run_import(proto, arrays)[1]


def gelu(x, *, tanh=False):
    if tanh:
        return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return x / 2 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


X, BIAS = random([2, 3, 8]), random([8], 1)


def close(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_sums() -> None:
    skip = random([2, 3, 8], 2)
    close(found_of("BiasAdd", {"x": X, "b": BIAS, "s": skip})[0], X + BIAS + skip)
    close(found_of("BiasDropout", {"x": X, "b": BIAS, "s": skip})[0], X + BIAS + skip)
    close(found_of("BiasDropout", {"x": X, "b": BIAS})[0], X + BIAS)


def test_gelus_of_sums_and_products() -> None:
    first, second = np.split(X + BIAS, 2, axis=-1)
    close(found_of("BiasSplitGelu", {"x": X, "b": BIAS})[0], first * gelu(second))
    w = random([8, 5], 3)
    close(found_of("GemmFastGelu", {"x": X, "w": w})[0], gelu(X @ w, tanh=True))
    close(
        found_of("FusedMatMulActivation", {"x": X, "w": w}, activation="Relu", alpha=0.5)[0],
        np.maximum(X @ w * 0.5, 0),
    )


@pytest.mark.parametrize("axis", [1, 2, -1])
def test_softmax_of_a_sum(axis) -> None:
    flat = (X + BIAS).reshape(*X.shape[: axis % 3], -1)
    wanted = np.exp(flat) / np.exp(flat).sum(-1, keepdims=True)
    found = found_of("BiasSoftmax", {"x": X, "b": BIAS}, axis=axis, is_inner_broadcast=0)
    close(found[0], wanted.reshape(X.shape))


@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize("activation", [0, 1])
def test_normalized_groups(last, activation) -> None:
    x = random([2, 3, 5, 8] if last else [2, 8, 3, 5])
    skip = random(x.shape, 4)
    gamma, beta = random([8], 5), random([8], 6)
    total = np.moveaxis(x + skip, -1, 1) if last else x + skip
    groups = total.reshape(2, 4, -1)
    normal = (groups - groups.mean(2, keepdims=True)) / np.sqrt(groups.var(2, keepdims=True) + 1e-3)
    wanted = normal.reshape(total.shape) * gamma[:, None, None] + beta[:, None, None]
    wanted = wanted / (1 + np.exp(-wanted)) if activation else wanted
    attributes = {"groups": 4, "activation": activation, "channels_last": last, "epsilon": 1e-3}
    inputs = {"x": x, "g": gamma, "b": beta, "s": skip}
    found = found_of("SkipGroupNorm", inputs, ("y", "sum"), **attributes)
    close(found[0], np.moveaxis(wanted, 1, -1) if last else wanted)
    close(found[1], x + skip)
    alone = found_of("GroupNorm", {"x": x + skip, "g": gamma, "b": beta}, **attributes)
    close(alone[0], found[0])


HEADS_OF_SUMS = [
    # a sum of values whose sizes have other names: the batch and the positions are not followed
    node("Add", ["x", "noise"], ["z"]),
    node("Shape", ["z"], ["sizes"]),
    node("Slice", ["sizes", "0", "2"], ["front"]),
    node("Concat", ["front", "four", "eight"], ["heads"], axis=0),
    node("Reshape", ["z", "heads"], ["r"]),
    node("Transpose", ["r"], ["t"], perm=[0, 2, 1, 3]),
]


@pytest.mark.parametrize("width", [0, 4])
def test_heads_whose_size_a_reshape_alone_tells(width: int) -> None:
    """As ONNX Runtime's optimizer leaves the second layer of a Mistral: behind an attention whose mask
    is expanded the batch and the number of positions are not known any more.
    """
    draw = np.random.default_rng(0)
    table = draw.standard_normal((16, (width or 8) // 2)).astype(np.float32)
    constants = {
        "0": np.int64([0]),
        "2": np.int64([2]),
        "four": np.int64([4]),
        "eight": np.int64([8]),
        "all": np.int64([0, 0, 32]),
        "c": table,
        "s": table[::-1].copy(),
    }
    attrs = {"rotary_embedding_dim": width, "num_heads": 4} if width else {}
    nodes = [
        *HEADS_OF_SUMS,
        node("RotaryEmbedding", ["t", "ids", "c", "s"], ["q"], domain=MICROSOFT, **attrs),
        node("Transpose", ["q"], ["u"], perm=[0, 2, 1, 3]),
        node("Concat", ["front", "hidden"], ["joined"], axis=0),
        node("Reshape", ["u", "joined"], ["h"]),
        node("MultiHeadAttention", ["h", "z", "z"], ["y"], domain=MICROSOFT, num_heads=4),
    ]
    proto = model(
        nodes,
        inputs={"x": ["b", "s", 32], "noise": ["b2", "s2", 32], "ids": ["b", "s"]},
        constants=constants | {"hidden": np.int64([32])},
        types={"ids": onnx.TensorProto.INT64},
        domains={MICROSOFT: 1},
    )
    feeds = {
        "x": draw.standard_normal((2, 3, 32)).astype(np.float32),
        "noise": draw.standard_normal((2, 3, 32)).astype(np.float32),
        "ids": np.int64([[3, 4, 5], [0, 1, 2]]),
    }
    agree(proto, feeds)


def test_weights_of_a_table_that_are_not_turned() -> None:
    """ONNX Runtime's kernel takes them for turned ones."""
    codes, most = np.arange(0, 240, 10).astype(np.uint8), np.array([2, 0.5, 1], np.float32)
    x, constants = random([2, 6]), {"b": codes, "m": most}
    attrs = {"K": 8, "N": 6, "block_size": 16, "quant_type": 0}
    half = [0, 5.208333333e-03, 2 / 3, 1, 1 / 3, 0.5, 1 / 6, 0.25]
    table = np.array([*half, *(-number for number in half)])
    weights = table[np.stack([codes >> 4, codes & 15], -1)].reshape(6, 8)
    weights *= np.repeat(most, 16).reshape(6, 8)
    made = node("MatMulBnb4", ["x", "b", "m"], domain=MICROSOFT, transB=0, **attrs)
    proto = model([made], inputs={"x": [2, 6]}, constants=constants, domains={MICROSOFT: 1})
    close(run_import(proto, {"x": x})[1][0], x @ weights)
    assert "quant_type 2" in refused(
        "MatMulBnb4", ["x", "b", "m"], constants, **{**attrs, "quant_type": 2}
    )


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("limit", [0.0, 0.5])
def test_a_gate_with_limits(apart, limit) -> None:
    gate, other = random([2, 5]), random([2, 5], 1)
    arrays = {"g": gate, "u": other} if apart else {"g": np.concatenate([gate, other], -1)}
    attrs = {"activation_alpha": 1.5, "activation_beta": 1.0, "limit": limit}
    if limit:
        gate, other = np.minimum(gate, limit), np.clip(other, -limit, limit)
    close(
        found_of("SwiGLU", arrays, **attrs)[0],
        gate / (1 + np.exp(-1.5 * gate)) * (other + 1),
    )


def bucket(distance: int, count: int, most: int, both: bool) -> int:
    """T5's own, of key - query."""
    first = 0
    if both:
        count //= 2
        first = count if distance > 0 else 0
    away = abs(distance) if both else max(-distance, 0)
    if away < count // 2:
        return first + away
    wide = math.log(away / (count // 2)) / math.log(most / (count // 2)) * (count - count // 2)
    return first + min(count // 2 + int(wide), count - 1)


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize(("queries", "keys"), [(9, 9), (3, 40)])
def test_biases_by_distance(both, queries, keys) -> None:
    table = random([16, 3])  # ONNX Runtime's tool turns T5's table, and leaves its shape
    lengths = {"q": np.array([queries], np.int64), "k": np.array([keys], np.int64)}
    attrs = {"max_distance": 20, "is_bidirectional": int(both)}
    found = found_of("RelativePositionBias", {"t": table, **lengths}, **attrs)[0]
    by_head = table.reshape(3, 16)
    wanted = np.empty((1, 3, queries, keys), np.float32)
    for query in range(queries):
        for key in range(keys):
            wanted[0, :, query, key] = by_head[:, bucket(key - query, 16, 20, both)]
    np.testing.assert_array_equal(found, wanted)


def test_a_convolution_with_channels_last_and_what_is_behind_it() -> None:
    x, w, b, z = random([2, 5, 5, 3]), random([4, 3, 3, 3], 1), random([4], 2), random([2, 5, 5, 4])
    arrays = {"x": x, "w": w, "b": b, "z": z}
    found = found_of("NhwcFusedConv", arrays, activation="Relu", pads=[1, 1, 1, 1])[0]
    plain = model(
        [node("Conv", ["x", "w", "b"], pads=[1, 1, 1, 1])],
        inputs={"x": [2, 3, 5, 5]},
        constants={"w": w, "b": b},
    )
    (made,) = run_ort(plain, {"x": np.ascontiguousarray(x.transpose(0, 3, 1, 2))})
    close(found, np.maximum(made.transpose(0, 2, 3, 1) + z, 0))


# -- the past as codes, and in a sliding buffer ----------------------------------------------------


def with_past(dtype, *, slots=4, scales=True, **attributes) -> onnx.ModelProto:
    """GroupQueryAttention of one head with a past: x [1, 1, 8], past [1, 1, slots, 8]."""
    past = np.zeros((1, 1, slots, 8), dtype)
    numbers = {"n": np.int32([2]), "t": np.int32(3)}
    numbers |= {"s": np.float32([0.02])} if scales else {}
    inputs = ["x", "x", "x", "p", "p", "n", "t", *[""] * 5, *["s", "s"] * scales]
    attributes = {"num_heads": 1, "kv_num_heads": 1, **attributes}
    made = node("GroupQueryAttention", inputs, ["y", "k", "v"], domain=MICROSOFT, **attributes)
    return model(
        [made],
        inputs={"x": [1, 1, 8], "p": past.shape},
        outputs=("y", "k", "v"),
        constants=numbers,
        domains={MICROSOFT: 1},
        types={"p": onnx.helper.np_dtype_to_tensor_dtype(past.dtype)},
    )


CODED = {"k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR", "kv_cache_bit_width": 8}


@pytest.mark.parametrize(
    ("proto", "kind", "text"),
    [
        (with_past(np.int8), fqfuse.InvalidModel, "need a quant_type and a scale, found s8"),
        (with_past(np.int8, scales=False, **CODED), fqfuse.InvalidModel, "no k_scale"),
        (with_past(np.float32, **CODED), fqfuse.InvalidModel, "found f32"),
        (with_past(np.int8, **CODED | {"k_quant_type": "X"}), fqfuse.InvalidModel, "'X'"),
        (with_past(np.uint8, **CODED), fqfuse.UnsupportedOp, "of u8 and kv_cache_bit_width 8"),
        (
            with_past(np.float32, scales=False, sliding_window_cache=1, local_window_size=5),
            fqfuse.InvalidModel,
            "4 positions, and its window 5",
        ),
        (
            with_past(np.float32, scales=False, sliding_window_cache=1),
            fqfuse.InvalidModel,
            "its window -1",
        ),
        (with_past(np.float32, scales=False, qk_output=1), fqfuse.UnsupportedOp, "qk_output"),
    ],
)
def test_a_past_that_makes_no_sense_is_named(proto, kind, text) -> None:
    with pytest.raises(kind, match=text) as caught:
        fqfuse.compile(proto)
    assert (
        "without" not in caught.value.hint
    )  # what leaves out an input or attribute is no valid model


def test_a_buffer_smaller_than_its_window_ends_the_run() -> None:
    attributes = {"sliding_window_cache": 1, "local_window_size": 3}
    proto = with_past(np.float32, scales=False, **attributes)
    proto.graph.input[1].type.tensor_type.shape.dim[2].dim_param = "slots"
    x = np.ones((1, 1, 8), np.float32)
    with fqfuse.InferenceSession(proto, "numpy") as session:
        session.run(None, {"x": x, "p": np.zeros((1, 1, 3, 8), np.float32)})
        with pytest.raises(fqfuse.FqfuseError):
            session.run(None, {"x": x, "p": np.zeros((1, 1, 2, 8), np.float32)})


def test_a_past_of_float8_is_decoded() -> None:
    """ONNX Runtime has it on GPUs: the definition in f64."""
    rng = np.random.default_rng(0)
    past = (rng.standard_normal((1, 1, 4, 8)) * 40).astype(ml_dtypes.float8_e4m3fn)
    x = rng.standard_normal((1, 1, 8)).astype(np.float32)
    found = fqfuse.InferenceSession(with_past(past.dtype, **CODED), "numpy").run(
        None, {"x": x, "p": past}
    )
    new = (x / np.float32(0.02)).astype(ml_dtypes.float8_e4m3fn)[0]
    kept = np.concatenate([past[0, 0, :2], new]).astype(np.float64)
    keys = kept * np.float32(0.02)
    scores = np.exp(x[0] @ keys.T / np.sqrt(8))
    # sums of f32 near 1, of which some nearly cancel
    np.testing.assert_allclose(found[0][0], scores / scores.sum() @ keys, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(np.asarray(found[1], np.float64)[0, 0, :3], kept)


def test_what_nothing_of_today_writes_is_refused() -> None:
    for op in UNWRITTEN:
        with pytest.raises(fqfuse.UnsupportedOp, match=f"com.microsoft.{op}") as caught:
            fqfuse.compile(node_alone(op))
        assert "ONNX's own operators" in (caught.value.hint or "")


def node_alone(op: str) -> onnx.ModelProto:
    made = node(op, ["x", "x"], name="n", domain=MICROSOFT)
    return model([made], inputs={"x": [2, 3]}, domains={MICROSOFT: 1})
