"""Ops of every opset from 7 on give what ONNX Runtime gives for the same file."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from support.onnx_cases import NEWEST_OF_ORT, compare, model, node, ops, random

from fqfuse.errors import InvalidModel, UnsupportedOp
from fqfuse.frontend import graph_from_onnx

Build = Callable[[int], onnx.ModelProto]

ULPS = {"rtol": 1e-6, "atol": 1e-6}  # sums of a few dozen f32 products of size 1, in another order
LOOSE = {"rtol": 1e-5, "atol": 1e-5}  # longer sums, and divisions by their square roots


def as_attribute_or_input(
    op: str, name: str, value: list[int], since: int, **attributes: object
) -> Build:
    """An op one of whose attributes became its second input in opset `since`."""

    def build(opset: int) -> onnx.ModelProto:
        if opset < since:
            return model([node(op, ["x"], **{name: value}, **attributes)], opset=opset)
        return model(
            [node(op, ["x", "c"], **attributes)],
            constants={"c": np.asarray(value, np.int64)},
            opset=opset,
        )

    return build


def plain(op: str, **attributes: object) -> Build:
    return lambda opset: model([node(op, ["x"], **attributes)], opset=opset)


def with_constants(op: str, constants: dict[str, object], **attributes: object) -> Build:
    return lambda opset: model(
        [node(op, ["x", *constants], **attributes)], constants=constants, opset=opset
    )


def transposed(**attributes: object) -> Build:
    return with_constants(
        "ConvTranspose", {"w": random([3, 2, 3, 3], 1)}, strides=[2, 2], **attributes
    )


def clip(opset: int) -> onnx.ModelProto:
    if opset < 11:
        return model([node("Clip", ["x"], min=-0.5, max=0.75)], opset=opset)
    return model(
        [node("Clip", ["x", "low", "high"])],
        constants={"low": np.float32(-0.5), "high": np.float32(0.75)},
        opset=opset,
    )


def clip_above(opset: int) -> onnx.ModelProto:
    if opset < 11:
        return model([node("Clip", ["x"], max=0.75)], opset=opset)
    return model(
        [node("Clip", ["x", "", "high"])], constants={"high": np.float32(0.75)}, opset=opset
    )


def pad(opset: int) -> onnx.ModelProto:
    pads = [0, 0, 1, 2, 0, 0, 3, 0]
    if opset < 11:
        return model([node("Pad", ["x"], pads=pads, value=0.5)], opset=opset)
    return model(
        [node("Pad", ["x", "pads", "value"])],
        constants={"pads": np.asarray(pads), "value": np.float32(0.5)},
        opset=opset,
    )


def reflect(opset: int) -> onnx.ModelProto:
    pads = [0, 0, 1, 2, 0, 0, 3, 0]
    if opset < 11:
        return model([node("Pad", ["x"], pads=pads, mode="reflect")], opset=opset)
    return model(
        [node("Pad", ["x", "pads"], mode="reflect")],
        constants={"pads": np.asarray(pads)},
        opset=opset,
    )


def slice_(opset: int) -> onnx.ModelProto:
    bounds = {"starts": [1, -3], "ends": [3, 5], "axes": [1, 3]}
    if opset < 10:
        return model([node("Slice", ["x"], **bounds)], opset=opset)
    return model(
        [node("Slice", ["x", *bounds])],
        constants={k: np.asarray(v) for k, v in bounds.items()},
        opset=opset,
    )


def split_equal(opset: int) -> onnx.ModelProto:
    more = {"num_outputs": 2} if opset >= 18 else {}
    return model(
        [node("Split", ["x"], ["y", "z"], axis=2, **more)], outputs=["y", "z"], opset=opset
    )


def split_sizes(opset: int) -> onnx.ModelProto:
    if opset < 13:
        return model(
            [node("Split", ["x"], ["y", "z"], axis=-1, split=[1, 4])],
            outputs=["y", "z"],
            opset=opset,
        )
    sizes = {"sizes": np.asarray([1, 4])}
    return model(
        [node("Split", ["x", "sizes"], ["y", "z"], axis=-1)],
        outputs=["y", "z"],
        constants=sizes,
        opset=opset,
    )


def top_k(opset: int) -> onnx.ModelProto:
    if opset < 10:
        return model(
            [node("TopK", ["x"], ["y", "i"], k=2, axis=2)], outputs=["y", "i"], opset=opset
        )
    return model(
        [node("TopK", ["x", "k"], ["y", "i"], axis=2)],
        outputs=["y", "i"],
        constants={"k": np.asarray([2])},
        opset=opset,
    )


def upsample(mode: str) -> Build:
    scales = np.asarray([1, 1, 2, 2], np.float32)

    def build(opset: int) -> onnx.ModelProto:
        if opset < 9:
            return model([node("Upsample", ["x"], mode=mode, scales=scales.tolist())], opset=opset)
        if opset < 10:
            return model(
                [node("Upsample", ["x", "s"], mode=mode)], constants={"s": scales}, opset=opset
            )
        if opset < 11:
            return model(
                [node("Resize", ["x", "s"], mode=mode)], constants={"s": scales}, opset=opset
            )
        constants = {"s": scales, **({"roi": np.zeros(0, np.float32)} if opset < 13 else {})}
        return model(
            [node("Resize", ["x", "roi" if opset < 13 else "", "s"], mode=mode)],
            constants=constants,
            opset=opset,
        )

    return build


def resize_to_sizes(opset: int) -> onnx.ModelProto:
    empty = np.zeros(0, np.float32)
    constants = {"roi": empty, "scales": empty, "sizes": np.asarray([2, 3, 8, 9])}
    if opset >= 13:
        del constants["roi"], constants["scales"]
    names = [name if name in constants else "" for name in ("roi", "scales", "sizes")]
    attributes = {"mode": "linear", "coordinate_transformation_mode": "align_corners"}
    return model([node("Resize", ["x", *names], **attributes)], constants=constants, opset=opset)


def batch_normalization(opset: int) -> onnx.ModelProto:
    constants = {
        name: random([3], seed) ** 2 + 0.5
        for seed, name in enumerate(("scale", "bias", "mean", "var"))
    }
    return model(
        [node("BatchNormalization", ["x", *constants], epsilon=0.01, momentum=0.7)],
        constants=constants,
        opset=opset,
    )


def dropout(opset: int) -> onnx.ModelProto:
    ratio = {"ratio": 0.3} if opset < 12 else {}
    return model([node("Dropout", ["x"], ["d"], **ratio), node("Relu", ["d"])], opset=opset)


def gemm(opset: int) -> onnx.ModelProto:
    constants = {"b": random([4, 60], 1), "c": random([4], 2)}
    nodes = [
        node("Flatten", ["x"], ["f"], axis=1),
        node("Gemm", ["f", "b", "c"], transB=1, alpha=0.5, beta=2.0),
    ]
    return model(nodes, constants=constants, opset=opset)


def arithmetic(opset: int) -> onnx.ModelProto:
    nodes = [
        node("Add", ["x", "c"], ["a"]),
        node("Mul", ["a", "d"], ["m"]),
        node("Sub", ["m", "x"], ["s"]),
        node("Max", ["s", "x"]),
    ]
    return model(nodes, constants={"c": random([3, 1, 1], 1), "d": random([5], 2)}, opset=opset)


def group_normalization(opset: int) -> onnx.ModelProto:
    per = 2 if opset < 21 else 4
    constants = {"s": np.repeat(random([2], 1), per // 2), "b": np.repeat(random([2], 2), per // 2)}
    nodes = [
        node("Concat", ["x", "x"], ["xx"], axis=2),
        node("Transpose", ["xx"], ["t"], perm=[0, 3, 1, 2]),
    ]
    nodes += [
        node("Slice", ["t", "zero", "four", "one"], ["c"]),
        node("GroupNormalization", ["c", "s", "b"], num_groups=2),
    ]
    return model(
        nodes,
        constants=constants
        | {"zero": np.asarray([0]), "four": np.asarray([4]), "one": np.asarray([1])},
        opset=opset,
    )


def grid_sample(opset: int) -> onnx.ModelProto:
    grid = {"g": np.random.default_rng(3).uniform(-1, 1, (2, 2, 3, 2)).astype(np.float32)}
    return model(
        [node("GridSample", ["x", "g"], mode="bilinear" if opset < 20 else "linear")],
        constants=grid,
        opset=opset,
    )


def roi_align(opset: int) -> onnx.ModelProto:
    constants = {"r": np.float32([[0, 0, 3, 3], [1, 1, 4, 3]]), "i": np.asarray([0, 1])}
    more = {"coordinate_transformation_mode": "output_half_pixel"} if opset >= 16 else {}
    sizes = {"output_height": 2, "output_width": 2, "sampling_ratio": 2}
    return model(
        [node("RoiAlign", ["x", "r", "i"], **sizes, **more)], constants=constants, opset=opset
    )


def cast(opset: int) -> onnx.ModelProto:
    return model([node("Cast", ["x"], ["i"], to=7), node("Cast", ["i"], to=1)], opset=opset)


def shape_arithmetic(opset: int) -> onnx.ModelProto:
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("Gather", ["s", "first"], ["n"], axis=0),
        node("Concat", ["n", "rest"], ["t"], axis=0),
        node("Reshape", ["x", "t"]),
    ]
    return model(nodes, constants={"first": np.asarray([0]), "rest": np.asarray([-1])}, opset=opset)


# name -> (how to build it, opset that brought it, tolerance)
CASES: dict[str, tuple[Build, int, dict[str, float]]] = {
    "arithmetic": (arithmetic, 8, {}),
    "argmax": (plain("ArgMax", axis=2, keepdims=0), 7, {}),
    "average pool": (
        plain("AveragePool", kernel_shape=[2, 3], strides=[1, 2], pads=[1, 1, 0, 1]),
        7,
        ULPS,
    ),
    "average pool same": (
        plain("AveragePool", kernel_shape=[2, 2], strides=[2, 2], auto_pad="SAME_LOWER"),
        7,
        ULPS,
    ),
    "average pool with pads": (
        plain("AveragePool", kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
        7,
        ULPS,
    ),
    "batch normalization": (batch_normalization, 7, ULPS),
    "cast": (cast, 7, {}),
    "cast like": (with_constants("CastLike", {"like": np.int32(3)}), 15, {}),
    "clip": (clip, 7, {}),
    "clip above": (clip_above, 7, {}),
    "concat": (
        lambda opset: model(
            [node("Concat", ["x", "x"], axis=-1 if opset >= 11 else 3)], opset=opset
        ),
        7,
        {},
    ),
    "conv": (
        with_constants(
            "Conv", {"w": random([6, 3, 3, 3], 1), "b": random([6], 2)}, pads=[1, 0, 1, 0]
        ),
        7,
        ULPS,
    ),
    "conv same upper": (
        with_constants(
            "Conv", {"w": random([6, 3, 2, 2], 1)}, auto_pad="SAME_UPPER", strides=[2, 2]
        ),
        7,
        ULPS,
    ),
    "conv same lower": (
        with_constants("Conv", {"w": random([6, 3, 2, 2], 1)}, auto_pad="SAME_LOWER"),
        7,
        ULPS,
    ),
    "conv valid": (
        with_constants("Conv", {"w": random([6, 3, 2, 2], 1)}, auto_pad="VALID"),
        7,
        ULPS,
    ),
    "conv transpose": (transposed(output_padding=[1, 0]), 7, ULPS),
    "conv transpose to size": (transposed(output_shape=[8, 10]), 7, ULPS),
    "conv transpose upper": (transposed(auto_pad="SAME_UPPER"), 7, ULPS),
    "conv transpose lower": (transposed(auto_pad="SAME_LOWER"), 7, ULPS),
    "dropout": (dropout, 7, {}),
    "elu": (plain("Elu", alpha=0.5), 7, ULPS),
    "flatten": (plain("Flatten", axis=2), 7, {}),
    "gather": (with_constants("Gather", {"i": np.asarray([1, 0])}, axis=2), 7, {}),
    "gemm": (gemm, 7, LOOSE),
    "grid sample": (grid_sample, 16, LOOSE),
    "group normalization": (group_normalization, 18, LOOSE),
    "global average pool": (plain("GlobalAveragePool"), 7, ULPS),
    "hardmax": (plain("Hardmax", axis=2), 7, {}),
    "hard sigmoid": (plain("HardSigmoid", alpha=0.3), 7, ULPS),
    "instance normalization": (
        with_constants("InstanceNormalization", {"s": random([3], 1), "b": random([3], 2)}),
        7,
        LOOSE,
    ),
    "leaky relu": (plain("LeakyRelu", alpha=0.2), 7, {}),
    "log softmax": (plain("LogSoftmax"), 7, ULPS),
    "log softmax over two axes": (plain("LogSoftmax", axis=2), 7, ULPS),
    "lrn": (plain("LRN", size=3), 7, ULPS),
    "max pool": (
        plain("MaxPool", kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER"),
        7,
        {},
    ),
    "max pool rounded up": (
        plain("MaxPool", kernel_shape=[2, 2], strides=[2, 2], ceil_mode=1),
        10,
        {},
    ),
    "pad": (pad, 7, {}),
    "pad reflect": (reflect, 7, {}),
    "prelu": (with_constants("PRelu", {"slope": random([3, 1, 1], 1)}), 7, {}),
    "reduce max": (as_attribute_or_input("ReduceMax", "axes", [1, 3], 18), 7, {}),
    "reduce mean": (as_attribute_or_input("ReduceMean", "axes", [2, 3], 18, keepdims=0), 7, ULPS),
    "reduce mean of all": (plain("ReduceMean"), 7, ULPS),
    "reduce sum": (as_attribute_or_input("ReduceSum", "axes", [1], 13), 7, ULPS),
    "reduce l2": (as_attribute_or_input("ReduceL2", "axes", [1], 18), 7, ULPS),
    "resize to sizes": (resize_to_sizes, 11, LOOSE),
    "roi align": (roi_align, 10, LOOSE),
    "selu": (plain("Selu"), 7, ULPS),
    "shape arithmetic": (shape_arithmetic, 7, {}),
    "slice": (slice_, 7, {}),
    "softmax": (plain("Softmax"), 7, ULPS),
    "softmax along the last axis": (plain("Softmax", axis=3), 7, ULPS),
    "softmax over two axes": (plain("Softmax", axis=2), 7, ULPS),
    "split equal": (split_equal, 7, {}),
    "split sizes": (split_sizes, 7, {}),
    "unsqueeze": (as_attribute_or_input("Unsqueeze", "axes", [0, 2], 13), 7, {}),
    "sum of three": (lambda opset: model([node("Sum", ["x", "x", "x"])], opset=opset), 8, {}),
    "tile": (with_constants("Tile", {"r": np.asarray([1, 2, 1, 3])}), 7, {}),
    "top k": (top_k, 7, {}),
    "transpose": (plain("Transpose", perm=[0, 2, 3, 1]), 7, {}),
    "upsample nearest": (upsample("nearest"), 7, {}),
    "upsample linear": (upsample("linear"), 7, LOOSE),
}


LAST_OF_ORT = {"roi align": 21}  # ONNX Runtime has no kernel for the newer form


@pytest.mark.parametrize("name", CASES)
def test_every_opset_gives_what_onnx_runtime_gives(name):
    build, first, tolerance = CASES[name]
    feeds = {"x": random([2, 3, 4, 5], 7)}
    for opset in range(first, LAST_OF_ORT.get(name, NEWEST_OF_ORT) + 1):
        compare(build(opset), feeds, **tolerance)


def test_old_forms_become_the_newest_one():
    wanted = {"Dropout": "Identity", "Upsample": "Resize"}
    graph = compare(dropout(7), {"x": random([2, 3, 4, 5])})
    assert ops(graph) == [wanted["Dropout"], "Relu"]
    graph = compare(upsample("nearest")(7), {"x": random([2, 3, 4, 5])})
    assert ops(graph) == [wanted["Upsample"]]
    assert graph.nodes()[0].attrs["coordinate_transformation_mode"] == "asymmetric"


@pytest.mark.parametrize(
    ("opset", "axis", "expected"),
    [(11, 3, ["Softmax"]), (11, 2, ["Flatten", "Softmax", "Reshape"]), (13, 2, ["Softmax"])],
)
def test_softmax_flattens_before_13_only(opset, axis, expected):
    graph = compare(
        model([node("Softmax", ["x"], axis=axis)], opset=opset), {"x": random([2, 3, 4, 5])}, **ULPS
    )
    assert ops(graph) == expected


def test_softmax_before_13_keeps_symbolic_sizes():
    proto = model([node("Softmax", ["x"], axis=1)], inputs={"x": ["N", 3, "H", 5]}, opset=11)
    graph = compare(proto, {"x": random([2, 3, 4, 5])}, **ULPS)
    assert ops(graph) == ["Flatten", "Softmax", "Shape", "Reshape"]


def test_softmax_with_one_long_axis_needs_no_flattening():
    graph = compare(
        model([node("Softmax", ["x"], axis=1)], inputs={"x": ["N", 7, 1, 1]}, opset=11),
        {"x": random([2, 7, 1, 1])},
        **ULPS,
    )
    assert ops(graph) == ["Softmax"]


def test_auto_pad_is_resolved_where_sizes_are_known():
    weights = {"w": random([4, 3, 3, 3], 1)}
    build = {"auto_pad": "SAME_UPPER", "strides": [2, 2]}
    static = compare(
        model([node("Conv", ["x", "w"], **build)], constants=weights),
        {"x": random([2, 3, 4, 5])},
        **ULPS,
    )
    assert static.nodes()[0].attrs["pads"] == (0, 1, 1, 1)
    assert static.nodes()[0].attrs["auto_pad"] == "NOTSET"
    symbolic = model(
        [node("Conv", ["x", "w"], **build)], inputs={"x": ["N", 3, "H", "W"]}, constants=weights
    )
    graph = compare(symbolic, {"x": random([2, 3, 4, 5])}, **ULPS)
    assert graph.nodes()[0].attrs["auto_pad"] == "SAME_UPPER"


def test_auto_pad_with_stride_one_does_not_need_sizes():
    weights = {"w": random([4, 3, 2, 3], 1)}
    proto = model(
        [node("Conv", ["x", "w"], auto_pad="SAME_LOWER")],
        inputs={"x": ["N", 3, "H", "W"]},
        constants=weights,
    )
    graph = compare(proto, {"x": random([2, 3, 4, 5])}, **ULPS)
    assert graph.nodes()[0].attrs["pads"] == (1, 1, 0, 1)


# -- forms from before opset 7, which ONNX Runtime no longer runs ----------------------------------


def test_legacy_broadcast_aligns_with_an_axis():
    x, b = random([2, 3, 4, 5]), random([3, 4], 1)
    proto = model([node("Add", ["x", "b"], broadcast=1, axis=1)], constants={"b": b}, opset=6)
    compare(proto, {"x": x}, expected=[x + b[:, :, None]])


def test_legacy_broadcast_without_an_axis_aligns_at_the_end():
    x, b = random([2, 3, 4, 5]), random([4, 5], 1)
    compare(
        model([node("Mul", ["x", "b"], broadcast=1)], constants={"b": b}, opset=6),
        {"x": x},
        expected=[x * b],
    )


def test_legacy_prelu_slope_runs_along_the_channels():
    x, slope = random([2, 3, 4, 5]), random([3], 1)
    proto = model([node("PRelu", ["x", "slope"])], constants={"slope": slope}, opset=6)
    compare(proto, {"x": x}, expected=[np.where(x < 0, x * slope[:, None, None], x)])


def test_legacy_cast_names_its_type():
    x = random([2, 3, 4, 5], scale=5)
    compare(
        model([node("Cast", ["x"], to="INT32")], opset=1), {"x": x}, expected=[x.astype(np.int32)]
    )


def test_legacy_reshape_has_its_shape_as_an_attribute():
    x = random([2, 3, 4, 5])
    compare(
        model([node("Reshape", ["x"], shape=[0, -1])], opset=1),
        {"x": x},
        expected=[x.reshape(2, -1)],
    )


def test_legacy_tile_repeats_along_one_axis():
    x = random([2, 3, 4, 5])
    counts = {"n": np.asarray([2.0], np.float32), "a": np.asarray([1.0], np.float32)}
    proto = model([node("Tile", ["x", "n", "a"])], constants=counts, opset=1)
    compare(proto, {"x": x}, expected=[np.tile(x, (1, 2, 1, 1))])


def test_legacy_concat_joins_channels_by_default():
    x = random([2, 3, 4, 5])
    compare(
        model([node("Concat", ["x", "x"])], opset=1), {"x": x}, expected=[np.concatenate([x, x], 1)]
    )


def test_legacy_selu_has_fewer_digits():
    x = random([2, 3, 4, 5])
    proto = model([node("Selu", ["x"])], opset=1)
    graph = graph_from_onnx(proto)
    attrs = graph.nodes()[0].attrs
    assert (attrs["alpha"], attrs["gamma"]) == (
        pytest.approx(1.6732, abs=1e-7),
        pytest.approx(1.0507, abs=1e-7),
    )
    compare(
        proto,
        {"x": x},
        expected=[np.where(x > 0, 1.0507 * x, 1.0507 * 1.6732 * np.expm1(x)).astype(np.float32)],
        **ULPS,
    )


@pytest.mark.parametrize("opset", [1, 6, 7])
def test_legacy_batch_normalization_is_taken_for_inference(opset):
    constants = {
        name: random([3], seed) ** 2 + 0.5
        for seed, name in enumerate(("scale", "bias", "mean", "var"))
    }
    attributes = {
        1: {"consumed_inputs": [0, 0], "is_test": 1},
        6: {"is_test": 1, "spatial": 1},
        7: {"spatial": 1},
    }[opset]
    x = random([2, 3, 4, 5])
    scale, bias, mean, var = (constants[name][:, None, None] for name in constants)
    proto = model(
        [node("BatchNormalization", ["x", *constants], **attributes)],
        constants=constants,
        opset=opset,
    )
    graph = compare(
        proto, {"x": x}, expected=[(x - mean) / np.sqrt(var + 1e-5) * scale + bias], **LOOSE
    )
    assert ops(graph) == ["BatchNormalization"]


def test_statistics_for_each_element_stay_foreign():
    constants = {
        name: random([3, 4, 5], seed) ** 2 + 0.5
        for seed, name in enumerate(("scale", "bias", "mean", "var"))
    }
    proto = model(
        [node("BatchNormalization", ["x", *constants], spatial=0)], constants=constants, opset=7
    )
    assert ops(graph_from_onnx(proto)) == ["Onnx"]


def test_a_resize_that_onnx_has_dropped():
    constants = {"roi": np.zeros(0, np.float32), "s": np.float32([1, 1, 2, 2])}
    mode = {"coordinate_transformation_mode": "tf_half_pixel_for_nn"}
    with pytest.raises(UnsupportedOp, match="tf_half_pixel_for_nn"):
        graph_from_onnx(
            model([node("Resize", ["x", "roi", "s"], **mode)], constants=constants, opset=11)
        )


def test_meaning_that_depends_on_an_unknown_rank():
    proto = model([node("Softmax", ["x"])], opset=11)
    proto.graph.input[0].type.tensor_type.ClearField("shape")
    with pytest.raises(
        InvalidModel, match="the rank of 'x' is unknown, and the meaning of this node depends on it"
    ):
        graph_from_onnx(proto)


@pytest.mark.parametrize("axis", [-(2**63), -(2**31), -3, 3, 2**63 - 1])
def test_an_old_broadcast_along_an_axis_that_is_none_is_refused(axis):
    """The dimensions behind the axis were listed before anything was checked: memory without
    end.
    """
    old = model(
        [node("Add", ["x", "b"], axis=axis, broadcast=1)], inputs={"x": [2, 3], "b": [3]}, opset=6
    )
    with pytest.raises(InvalidModel, match="and the first input has 2 dimensions"):
        graph_from_onnx(old)
