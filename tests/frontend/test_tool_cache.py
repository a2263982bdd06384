"""GroupQueryAttention as ONNX Runtime's tool for language models writes it in place of MultiHeadAttention:
the prompt, and single tokens and several behind a cache, give what ONNX Runtime gives.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from laws.runtimes import RUNTIMES
from onnx import TensorProto
from support.onnx_cases import model, node, random, run_ort

import fqfuse

pytest.importorskip("sympy", reason="ONNX Runtime's tool for transformers wants it")
from onnxruntime.transformers.fusion_utils import NumpyHelper
from onnxruntime.transformers.onnx_model import OnnxModel

HEADS, SIZE, LONGEST = 4, 16, 32
WIDTH = HEADS * SIZE

TOLERANCE = 1e-5  # f32: another order of the same sums, of 64 numbers of about 1


def tool() -> Callable[..., OnnxModel]:
    """The function of ONNX Runtime that replaces the attention. Its module imports torch and transformers,
    which the function does not use.
    """
    path = Path(onnxruntime.__file__).parent / "transformers" / "convert_generation.py"
    (found,) = (
        part
        for part in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(part, ast.FunctionDef) and part.name == "replace_mha_with_gqa"
    )
    names: dict[str, Any] = {
        "np": np,
        "onnx": onnx,
        "NumpyHelper": NumpyHelper,
        "OnnxModel": OnnxModel,
        "TensorProto": TensorProto,
    }
    exec(compile(ast.Module([found], []), path, "exec"), names)  # noqa: S102  (ONNX Runtime's own)
    made: Callable[..., OnnxModel] = names[found.name]
    return made


def decoder(*, bias: bool, groups: int) -> onnx.ModelProto:
    """Causal attention behind a cache, with the positions turned in. With fewer `groups` of keys than heads,
    which MultiHeadAttention has not, it is the tool's input alone.
    """
    half = SIZE // 2
    angles = np.arange(LONGEST)[:, None] * 10000.0 ** -(np.arange(half) / half)
    constants: dict[str, Any] = {
        "cos": np.cos(angles).astype(np.float32),
        "sin": np.sin(angles).astype(np.float32),
        "wo": random([WIDTH, WIDTH], 30, 0.2),
    }
    # the tool joins the weights of three products of one value, which have to be of one size
    nodes, ends = [node("Identity", ["x"], ["again"])], []
    for index, name in enumerate("qkv"):
        width = WIDTH if name == "q" else groups * SIZE
        source = "x" if name == "q" or groups == HEADS else "again"
        constants[f"w{name}"] = random([WIDTH, width], 10 + index, 0.2)
        nodes.append(node("MatMul", [source, f"w{name}"], [f"{name}0"], name=f"{name}0"))
        ends.append(f"{name}0")
        if bias:
            constants[f"b{name}"] = random([width], 20 + index)
            nodes.append(node("Add", [ends[-1], f"b{name}"], [f"{name}1"], name=f"{name}1"))
            ends[-1] = f"{name}1"
        if name != "v":
            turned = [ends[-1], "position_ids", "cos", "sin"]
            nodes.append(
                node("RotaryEmbedding", turned, [f"{name}2"], name=name, domain="com.microsoft")
            )
            ends[-1] = f"{name}2"
    nodes += [
        node(
            "MultiHeadAttention",
            [*ends, "", "", "", "past_key", "past_value"],
            ["o", "key", "value"],
            name="MultiHeadAttention_0",
            domain="com.microsoft",
            num_heads=HEADS,
            unidirectional=1,
        ),
        node("MatMul", ["o", "wo"], ["y"], name="out"),
    ]
    past = ["B", groups, "P", SIZE]
    return model(
        nodes,
        inputs={
            "x": ["B", "S", WIDTH],
            "attention_mask": ["B", "T"],
            "position_ids": ["B", "S"],
            "past_key": past,
            "past_value": past,
        },
        outputs=["y", "key", "value"],
        constants=constants,
        types={"attention_mask": TensorProto.INT64, "position_ids": TensorProto.INT64},
        domains={"com.microsoft": 1},
        opset=17,
    )


def made_by_the_tool(source: onnx.ModelProto, groups: int) -> onnx.ModelProto:
    copied = OnnxModel(onnx.ModelProto.FromString(source.SerializeToString()))
    made = tool()(copied, "attention_mask", kv_num_heads=groups)
    made.prune_graph()
    made.topological_sort()
    result: onnx.ModelProto = made.model
    return result


def fed(batch: int, count: int, past: int, groups: int) -> dict[str, Any]:
    rng = np.random.default_rng(3)
    cache = (batch, groups, past, SIZE)
    return {
        "x": rng.standard_normal((batch, count, WIDTH), np.float32),
        "attention_mask": np.ones((batch, count + past), np.int64),
        "position_ids": np.tile(np.arange(past, past + count), (batch, 1)),
        "past_key": rng.standard_normal(cache, np.float32),
        "past_value": rng.standard_normal(cache, np.float32),
    }


def agree(found: list[Any], wanted: list[Any], told: str) -> None:
    for one, other in zip(found, wanted, strict=True):
        assert (one.shape, one.dtype) == (other.shape, other.dtype), told
        np.testing.assert_allclose(one, other, rtol=0, atol=TOLERANCE, err_msg=told)


@pytest.mark.each_case
@pytest.mark.parametrize(
    ("bias", "groups"), [(False, HEADS), (True, HEADS), (False, 2), (False, 1)]
)
def test_a_decoder_behind_a_cache(bias: bool, groups: int) -> None:
    source = decoder(bias=bias, groups=groups)
    proto = made_by_the_tool(source, groups)
    assert [n.op_type for n in proto.graph.node].count("GroupQueryAttention") == 1
    plan = fqfuse.compile(proto)
    assert [step.primitive for step in plan.steps if step.op == "Onnx"] == []
    sessions = {name: fqfuse.InferenceSession(plan, name, threads=1) for name in RUNTIMES}
    read = {value.name for value in proto.graph.input}
    # ONNX Runtime's kernel takes several tokens behind a cache of one sequence alone
    for batch, count, past in ((2, 5, 0), (2, 1, 5), (1, 3, 4), (2, 3, 4)):
        feeds = fed(batch, count, past, groups)
        given = {name: array for name, array in feeds.items() if name in read}
        wanted = []
        if batch == 1 or count == 1 or not past:
            wanted.append(run_ort(proto, given))
        if groups == HEADS:
            wanted.append(run_ort(source, feeds))
        for name, session in sessions.items():
            for each in wanted:
                agree(session.run(None, given), each, f"{name} {batch} {count} {past}")


def test_tokens_one_by_one_are_the_prompt() -> None:
    """The cache that a run gives is what the next one takes."""
    proto = made_by_the_tool(decoder(bias=True, groups=HEADS), HEADS)
    read = {value.name for value in proto.graph.input}
    whole = fed(2, 6, 0, HEADS)
    for name in RUNTIMES:
        session = fqfuse.InferenceSession(proto, name, threads=1)
        wanted = session.run(None, {key: array for key, array in whole.items() if key in read})
        key, value, rows = whole["past_key"], whole["past_value"], []
        for place in range(6):
            feeds = {
                "x": whole["x"][:, place : place + 1],
                "attention_mask": np.ones((2, place + 1), np.int64),
                "position_ids": np.full((2, 1), place),
                "past_key": key,
                "past_value": value,
            }
            row, key, value = session.run(
                None, {told: array for told, array in feeds.items() if told in read}
            )
            rows.append(row)
        agree([np.concatenate(rows, axis=1), key, value], wanted, name)
