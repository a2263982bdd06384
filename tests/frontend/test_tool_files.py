"""Files that ONNX Runtime's optimizer, its transformers tool and its quantizers write of whole networks: each
kind compiles, runs without a step of the reference evaluator, and gives what ONNX Runtime gives of the file
that it was made of.

The judge is the file before ONNX Runtime's fusions: its fused kernels on codes round otherwise (35 dB
beside its own unfused ones on a ViT), and have none for some of what its tools write.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnxruntime import quantization
from support.judge import optimized_model, ort_session
from support.onnx_cases import model, node, random
from support.tool_networks import CHANNELS, PIXELS, TOKENS, WIDTH, diffusion, embedded, rotary

import fqfuse
from fqfuse.benchmarks.networks.bert import build_bert, sample_tokens
from fqfuse.benchmarks.networks.small import (
    build_small_mobilenet,
    build_small_resnet,
    sample_small_images,
)

Tool = Callable[[Path, dict[str, Any]], tuple[Path, Path]]
"""A file and what is fed to it -> the judged file, and the one that it was made of."""

LEVELS = ("BASIC", "EXTENDED", "LAYOUT", "ALL")


def optimized(level: str, first: Tool | None = None) -> Tool:
    """ONNX Runtime's optimizer, on what another tool made."""

    def make(source: Path, feeds: dict[str, Any]) -> tuple[Path, Path]:
        made, _ = first(source, feeds) if first else (source, source)
        target = made.with_name(f"{made.stem}.{level}.onnx")
        onnx.save(optimized_model(onnx.load(made), made.parent, level), target)
        return target, made

    return make


def for_transformers(
    source: Path,
    _: dict[str, Any],
    *,
    kind: str = "bert",
    half: bool = False,
    separate: bool = False,
) -> tuple[Path, Path]:
    """Its tool for transformers, and for diffusion networks (`kind`: "unet"); `separate`: attention without
    its products in it.
    """
    pytest.importorskip("sympy", reason="ONNX Runtime's tool for transformers wants it")
    from onnxruntime.transformers import optimizer
    from onnxruntime.transformers.fusion_options import FusionOptions

    options = FusionOptions(kind)
    options.use_multi_head_attention = separate
    made = optimizer.optimize_model(
        str(source), kind, num_heads=0, hidden_size=0, opt_level=0, optimization_options=options
    )
    if half:
        made.convert_float_to_float16(keep_io_types=True)
    target = source.with_name(f"{kind}{half:d}{separate:d}.onnx")
    made.save_model_to_file(str(target))
    return target, source


def dynamic(source: Path, feeds: dict[str, Any], first: Tool | None = None) -> tuple[Path, Path]:
    """Its dynamic quantizer, on what another tool made."""
    made, _ = first(source, feeds) if first else (source, source)
    target = made.with_name(f"{made.stem}.dynamic.onnx")
    quantization.quantize_dynamic(
        made,
        target,
        weight_type=quantization.QuantType.QInt8,
        extra_options={"DefaultTensorType": onnx.TensorProto.FLOAT},
    )
    return target, target


def static(form: str) -> Tool:
    def make(source: Path, feeds: dict[str, Any]) -> tuple[Path, Path]:
        class Reader(quantization.CalibrationDataReader):
            left = iter([feeds])

            def get_next(self) -> Any:
                return next(self.left, None)

        target = source.with_name(f"{form}.onnx")
        quantization.quantize_static(
            source, target, Reader(), quant_format=quantization.QuantFormat[form]
        )
        return target, target

    return make


def in_blocks(form: str) -> Tool:
    def make(source: Path, _: dict[str, Any]) -> tuple[Path, Path]:
        reason = "ONNX Runtime's MatMulNBits quantizer wants it"
        pytest.importorskip("onnx_ir", reason=reason)
        from onnxruntime.quantization import matmul_nbits_quantizer as nbits

        made = nbits.MatMulNBitsQuantizer(
            onnx.load(source), block_size=32, quant_format=quantization.QuantFormat[form]
        )
        made.process()
        target = source.with_name(f"blocks-{form}.onnx")
        made.model.save_model_to_file(str(target))
        return target, target

    return make


TOOLS: dict[str, Tool] = {
    **{level.lower(): optimized(level) for level in LEVELS},
    "transformers": for_transformers,
    "transformers, f16": functools.partial(for_transformers, half=True),
    "transformers, multi-head": functools.partial(for_transformers, separate=True),
    "transformers, extended": optimized("EXTENDED", for_transformers),
    "transformers, dynamic": functools.partial(dynamic, first=for_transformers),
    "diffusion": functools.partial(for_transformers, kind="unet"),
    "dynamic": dynamic,
    "dynamic, extended": optimized("EXTENDED", dynamic),
    **{form: static(form) for form in ("QDQ", "QOperator")},
    **{
        f"{form}, {level.lower()}": optimized(level, static(form))
        for form in ("QDQ", "QOperator")
        for level in ("EXTENDED", "ALL")
    },
    **{f"blocks, {form}": in_blocks(form) for form in ("QDQ", "QOperator")},
    "blocks, QDQ, all": optimized("ALL", in_blocks("QDQ")),
}


def mixed() -> onnx.ModelProto:
    """What else the optimizer has operators for: joined and picked codes, averages, softmax, gelus, a
    product by a transposed one.
    """
    nodes = [
        node("MatMul", ["x", "w1"], ["p"]),
        node("Add", ["p", "b1"], ["h"]),
        node("Mul", ["h", "c1702"], ["scaled"]),
        node("Sigmoid", ["scaled"], ["gate"]),
        node("Mul", ["h", "gate"], ["quick"]),
        node("LeakyRelu", ["p"], ["leaky"], alpha=0.1),
        node("Concat", ["quick", "leaky"], ["joined"], axis=-1),
        node("MatMul", ["joined", "w2"], ["q"]),
        node("Transpose", ["q"], ["t"], perm=[0, 2, 1]),
        node("MatMul", ["q", "t"], ["s"]),
        node("Mul", ["s", "quarter"], ["r"]),
        node("Softmax", ["r"], ["a"], axis=-1),
        node("MatMul", ["a", "q"], ["o"]),
        node("Add", ["o", "x"], ["skip"]),
        node("LayerNormalization", ["skip", "gamma", "beta"], ["n"], axis=-1),
        node("ReduceMean", ["n", "axes"], ["m"], keepdims=0),
        node("Gemm", ["m", "w3", "b3"], ["g"]),
        node("Relu", ["g"], ["y"]),
    ]
    constants = {
        "w1": random([32, 32], 1, 0.2),
        "w2": random([64, 32], 2, 0.2),
        "w3": random([32, 8], 3, 0.2),
        "b1": random([32], 4),
        "b3": random([8], 5),
        "c1702": np.float32(1.702),
        "quarter": np.float32(0.25),
        "axes": np.int64([1]),
        "gamma": random([32], 6),
        "beta": random([32], 7),
    }
    proto = model(nodes, inputs={"x": [2, 5, 32]}, constants=constants, opset=21)
    return onnx.shape_inference.infer_shapes(proto)


def tokens(rng: np.random.Generator) -> dict[str, Any]:
    return dict(sample_tokens(rng, 1))


def images(rng: np.random.Generator) -> dict[str, Any]:
    return dict(sample_small_images(rng, 1))


def features(rng: np.random.Generator) -> dict[str, Any]:
    return {"x": rng.standard_normal((2, 5, 32), np.float32)}


def words(rng: np.random.Generator) -> dict[str, Any]:
    mask = np.ones((2, TOKENS), np.int64)
    mask[1, 5:] = 0
    drawn = {
        name: rng.integers(0, below, (2, TOKENS)) for name, below in (("ids", 50), ("types", 2))
    }
    return {**drawn, "mask": mask}


def noise(rng: np.random.Generator) -> dict[str, Any]:
    shapes = {"x": (2, CHANNELS, PIXELS, PIXELS), "t": (2, 16)}
    return {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}


def placed(rng: np.random.Generator) -> dict[str, Any]:
    x = rng.standard_normal((2, TOKENS, WIDTH), np.float32)
    return {"x": x, "position_ids": np.arange(TOKENS) + np.int64([[0], [3]])}


BUILDERS: dict[str, tuple[Callable[[], onnx.ModelProto], Callable[..., dict[str, Any]]]] = {
    "encoder": (functools.partial(build_bert, layers=1), tokens),
    "residual": (build_small_resnet, images),
    "inverted": (build_small_mobilenet, images),
    "mixed": (mixed, features),
    "embedded": (embedded, words),
    "diffusion": (diffusion, noise),
    "rotary": (rotary, placed),
}

ALONE = {
    "embedded": ("transformers", "transformers, multi-head", "transformers, dynamic"),
    "diffusion": ("diffusion", "all"),
    "rotary": ("transformers", "transformers, extended", "all"),
}
"""Network -> the tools that have operators for it; the others take what is left to them."""


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Path, dict[str, Any]]]:
    """Each network's file, and what is fed to it."""
    logging.disable(logging.WARNING)  # the tools tell of every fusion
    found = {}
    for name, (build, feeds) in BUILDERS.items():
        path = tmp_path_factory.mktemp(name) / "f32.onnx"
        proto = build()
        proto.producer_name = "pytorch"  # the tool for transformers leaves files of others alone
        onnx.save(proto, path)
        found[name] = path, feeds(np.random.default_rng(3))
    return found


WRITTEN: set[str] = set()
RAN: set[tuple[str, str]] = set()
"""Operators of ONNX Runtime's own in the files."""


def is_for(tool: str, network: str) -> bool:
    if network in ALONE:
        return tool in ALONE[network]
    if tool == "diffusion":
        return False
    return network in ("encoder", "mixed") or not tool.startswith(("transformers", "blocks"))


CASES = [(network, tool) for network in BUILDERS for tool in TOOLS if is_for(tool, network)]


def decibels(wanted: Any, found: Any) -> float:
    """Signal to noise; 200 where they are the same."""
    wanted, found = (np.asarray(array, np.float64) for array in (wanted, found))
    noise = float(np.square(wanted - found).sum())
    return min(200.0, 10 * np.log10(np.square(wanted).sum() / noise)) if noise else 200.0


@pytest.mark.slow
@pytest.mark.each_case
@pytest.mark.parametrize(("network", "tool"), CASES)
def test_what_a_tool_writes_means_what_it_was_made_of(sources, network: str, tool: str) -> None:
    source, feeds = sources[network]
    made, judged = TOOLS[tool](source, feeds)
    RAN.add((network, tool))
    WRITTEN.update(n.op_type for n in onnx.load(made).graph.node if n.domain.startswith("com.m"))
    wanted = ort_session(judged).run(None, feeds)
    plan = fqfuse.compile(made)
    assert [step.primitive for step in plan.steps if step.op == "Onnx"] == []
    exact = ort_session(source).run(None, feeds)
    for backend in ("numpy", "onednn"):
        found = fqfuse.InferenceSession(plan, backend, threads=1).run(None, feeds)
        for mine, theirs, real in zip(found, wanted, exact, strict=True):
            # f32: another order of the same sums; f16: ONNX Runtime rounds each result to 11 bits
            least = 50 if "f16" in tool else 100
            if quantized(tool):
                # Some codes that lie on a tie, 1 of 10,000 of a layer, are others, and what follows
                # from them grows from layer to layer: it stays below the quantization's own noise.
                least = min(decibels(real, theirs), 40)
                assert decibels(real, mine) > decibels(real, theirs) - 1, backend
            assert decibels(theirs, mine) > least, backend


def quantized(tool: str) -> bool:
    return tool.startswith(("QDQ", "QOperator")) or "dynamic" in tool


@pytest.mark.slow
def test_the_tools_wrote_their_own_operators() -> None:
    if len(RAN) < len(CASES):
        pytest.skip(
            "the cases of the test above have not all run in this process: run this file alone"
        )
    print(sorted(WRITTEN))
    # on a CPU with AVX; which layouts and fusions it takes is ONNX Runtime's choice
    assert {
        *("Attention", "BiasGelu", "FusedMatMul", "Gelu", "MatMulNBits", "MultiHeadAttention"),
        *("QGemm", "QLinearAdd", "QLinearConv", "QLinearSoftmax", "QuickGelu"),
        *("FusedConv", "SkipLayerNormalization", "MatMulIntegerToFloat"),
        *("EmbedLayerNormalization", "QAttention", "RotaryEmbedding"),
        *("GroupNorm", "SkipGroupNorm", "NhwcConv"),
    } <= WRITTEN


def test_ids_of_segments_that_a_model_computes_have_the_batch_of_the_words():
    """As transformers' BERT has them, with open sizes: the mask of its Attention counts for each of the batch."""
    rng = np.random.default_rng(0)
    domain = {"domain": "com.microsoft"}
    tables = {"words": (9, 8), "places": (6, 8), "kinds": (2, 8), "gamma": (8,), "beta": (8,)}
    constants = {name: rng.normal(size=shape).astype(np.float32) for name, shape in tables.items()}
    constants |= {
        "w": rng.normal(size=(8, 24)).astype(np.float32),
        "bias": rng.normal(size=24).astype(np.float32),
    }
    embedded = ["ids", "segments", *tables, "mask"]
    nodes = [
        onnx.helper.make_node("Reshape", ["flat", "shape"], ["segments"]),
        onnx.helper.make_node("EmbedLayerNormalization", embedded, ["e", "seen"], **domain),
        onnx.helper.make_node(
            "Attention", ["e", "w", "bias", "seen"], ["y"], num_heads=2, **domain
        ),
    ]
    ints = onnx.TensorProto.INT32
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        nodes,
        "computed",
        [
            info("ids", ints, ["b", "s"]),
            info("flat", ints, ["n"]),
            info("shape", onnx.TensorProto.INT64, [2]),
            info("mask", ints, ["b", "s"]),
        ],
        [info("y", onnx.TensorProto.FLOAT, ["b", "s", 8])],
        [onnx.numpy_helper.from_array(array, name) for name, array in constants.items()],
    )
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("com.microsoft", 1)]
    proto = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9)
    feeds = {
        "ids": rng.integers(0, 9, (2, 5)).astype(np.int32),
        "flat": rng.integers(0, 2, 10).astype(np.int32),
        "shape": np.array([2, 5]),
        "mask": np.array([[1] * 5, [1, 1, 1, 0, 0]], np.int32),
    }
    (wanted,) = ort_session(proto, optimized=True).run(None, feeds)
    for backend in ("numpy", "onednn"):
        session = fqfuse.InferenceSession(proto, backend)
        # two f32 kernels of a few products of 8 numbers each
        np.testing.assert_allclose(session.run(None, feeds)[0], wanted, rtol=1e-4, atol=1e-5)
        with pytest.raises(fqfuse.errors.InvalidInput):
            session.run(None, feeds | {"shape": np.array([5, 2])})
