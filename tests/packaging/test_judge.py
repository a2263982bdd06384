"""ONNX Runtime judges products of codes exactly on every CPU, and no test opens it in another way."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from laws.recurrent import draw_dynamic
from onnx import ModelProto, TensorProto
from support import judge
from support.attention_cases import ATTENTION
from support.onnx_cases import model, node
from support.qoperator_cases import CODES

TESTS = Path(__file__).parents[1]
RUNTIME = "onnxruntime"
TOOLS = {"quantization", "tools", "transformers"}
OPENS = {"onnxruntime_session", "outputs_of"}
"""Functions outside of the tests that open ONNX Runtime."""

DIGITS = "the digits model, whose pairs of products fit in 16 bits"
ELSEWHERE = {
    "accuracy/test_peers.py": (9, f"what the program opens is replaced there; {DIGITS}"),
    "accuracy/test_reduce.py": (2, "what the program opens is replaced there"),
    "benchmarks/test_harness.py": (9, "times, and names of engines"),
    "benchmarks/test_settings.py": (1, "what is opened is replaced there"),
    "cli/test_compare.py": (6, DIGITS),
    "cli/test_json_documents.py": (2, "the form of documents"),
    "frontend/test_tool_cache.py": (1, "its version"),
    "ir/ops/harness.py": (1, "the name of an exception"),
    "measure/test_bench.py": (10, "times, and names of engines"),
    "models/conftest.py": (1, "the name of an engine"),
    "packaging/test_docs.py": (2, "whether it is installed"),
    "packaging/test_house.py": (1, "the name of a distribution"),
    "packaging/test_judge.py": (1, "it names what it looks for"),
    "quantizer_table.py": (1, "its version"),
    "runtime/test_like_onnxruntime.py": (1, f"the names of methods; {DIGITS}"),
    "runtime/test_ort_values.py": (1, "the names of attributes, and sums of small integers in f32"),
    "support/judge.py": (1, "the judge"),
}
"""File -> how often it names ONNX Runtime, and why it may."""


def naming(tree: ast.AST) -> Iterator[ast.AST]:
    """Where a file opens ONNX Runtime, or names it to something that does."""
    for part in ast.walk(tree):
        match part:
            case ast.Import(names):
                roots = [each.name.split(".") for each in names]
                if any(root[0] == RUNTIME and not TOOLS & set(root[1:2]) for root in roots):
                    yield part
            case ast.ImportFrom(str(module), names):
                root, *inner = module.split(".")
                parts = set(inner[:1]) or {each.name for each in names}
                if root == RUNTIME and parts - TOOLS:
                    yield part
            case ast.Constant(value) if value == RUNTIME:
                yield part
            case ast.Name(name) | ast.Attribute(_, name) if name in OPENS:
                yield part
            case ast.Attribute(ast.Name("judge"), name) if name == RUNTIME:
                yield part


def test_tests_open_onnx_runtime_by_the_judge_alone() -> None:
    """Its products of u8 and s8 saturate on CPUs without VNNI: a test that compares them fails there."""
    texts = {path: path.read_text(encoding="utf-8") for path in TESTS.rglob("*.py")}
    found = {
        str(path.relative_to(TESTS)): len(list(naming(ast.parse(text))))
        for path, text in texts.items()
        if any(name in text for name in (RUNTIME, *OPENS))
    }
    assert {path: count for path, count in found.items() if count} == {
        path: count for path, (count, _) in ELSEWHERE.items()
    }, "open a session by support.judge.ort_session"


@pytest.mark.parametrize(
    "text",
    [
        "import onnxruntime",
        "import onnxruntime as ort",
        "from onnxruntime import (\n    SessionOptions,\n    InferenceSession,\n)",
        "from onnxruntime.capi.onnxruntime_inference_collection import InferenceSession",
        "import onnxruntime.backend",
        "ort = pytest.importorskip('onnxruntime')",
        "ort = importlib.import_module('onnxruntime')",
        "ort = judge.onnxruntime",
        "fqfuse.compare(a, b, against='onnxruntime')",
        "ENGINES['onnxruntime'].open(path, 1, None)",
        "engines.onnxruntime_session(model)",
        "setting.outputs_of(model)",
    ],
)
def test_every_way_to_open_it_is_seen(text: str) -> None:
    assert list(naming(ast.parse(text)))


def test_its_tools_are_nobodys_judge() -> None:
    text = "from onnxruntime import quantization\nimport onnxruntime.tools.onnx_model_utils"
    assert not list(naming(ast.parse(text)))


K = 64
CODES_OF = {np.uint8: (235, 256), np.int8: (107, 128)}
"""Products of these saturate in pairs wherever they can."""

SCALES = {"one": np.float32(1), "large": np.float32(2.0**14), "zero": np.uint8(0)}
FORMS: dict[str, tuple[str, ...]] = {
    "MatMulInteger": ("x", "w"),
    "ConvInteger": ("x", "w"),
    "QLinearMatMul": ("x", "one", "x_zero", "w", "one", "w_zero", "large", "zero"),
    "QLinearConv": ("x", "one", "x_zero", "w", "one", "w_zero", "large", "zero"),
    "QGemm": ("x", "one", "x_zero", "w", "one", "w_zero"),
    "MatMulIntegerToFloat": ("x", "w", "one", "one", "x_zero", "w_zero"),
}
"""Products of one source and one set of weights, and what they read."""


def product(op: str, kinds: tuple[type, type], fed: bool) -> tuple[ModelProto, dict[str, Any], Any]:
    """A product of large codes, what is fed to it, and its sums."""
    rng = np.random.default_rng(0)
    x, w = (
        rng.integers(*CODES_OF[kind], shape).astype(kind)
        for kind, shape in zip(kinds, ((4, K), (K, 8)), strict=True)
    )
    sums = x.astype(int) @ w.astype(int)
    if "Conv" in op:
        x, w = x.T[None, ..., None], w.T[..., None, None]
        sums = sums.T[None, ..., None]
    zeros = {"x_zero": x.dtype.type(0), "w_zero": w.dtype.type(0)}
    constants = {**SCALES, **zeros} | ({} if fed else {"w": w})
    feeds = {"x": x} | ({"w": w} if fed else {})
    made = model(
        [
            node(
                op,
                FORMS[op],
                domain="com.microsoft" if op in ("QGemm", "MatMulIntegerToFloat") else "",
            )
        ],
        inputs={name: array.shape for name, array in feeds.items()},
        types={
            n: TensorProto.UINT8 if a.dtype == np.uint8 else TensorProto.INT8
            for n, a in feeds.items()
        },
        constants=constants,
        domains={"com.microsoft": 1},
    )
    return made, feeds, sums


@pytest.mark.each_case
@pytest.mark.parametrize("optimized", [False, True])
@pytest.mark.parametrize("fed", [False, True], ids=["constant", "fed"])
@pytest.mark.parametrize("op", FORMS)
def test_sums_of_u8_and_s8_are_exact(op: str, fed: bool, optimized: bool) -> None:
    made, feeds, sums = product(op, (np.uint8, np.int8), fed)
    for each in (made, judge.exact(made)):
        (found,) = judge.ort_session(each, optimized=optimized).run(None, feeds)
        expected = np.rint(sums / 2**14).clip(0, 255) if "QLinear" in op else sums
        assert np.array_equal(found, expected)
    assert judge.exact(made) != made
    assert judge.exact(judge.exact(made)) == judge.exact(made)


def test_sums_of_s8_and_u8_are_exact() -> None:
    """ConvInteger alone has kernels for them that saturate."""
    made, feeds, sums = product("ConvInteger", (np.int8, np.uint8), fed=False)
    for each in (made, judge.exact(made)):
        assert np.array_equal(judge.ort_session(each).run(None, feeds)[0], sums)


def test_products_of_one_signedness_stay_as_they_are() -> None:
    for kind in CODES_OF:
        for op in FORMS:
            made, _, _ = product(op, (kind, kind), fed=True)
            assert judge.exact(made) == made


DRAWN: dict[str, Callable[[int], Any]] = {
    **{
        op: lambda seed, op=op: {**CODES, **ATTENTION}[op](np.random.default_rng(seed))
        for op in (
            "QLinearConv",
            "QGemm",
            "MatMulIntegerToFloat",
            "DynamicQuantizeMatMul",
            "QAttention",
        )
    },
    "DynamicQuantizeLSTM": draw_dynamic,
}


@pytest.mark.skipif(judge.saturates(), reason="ONNX Runtime's own products saturate on this CPU")
@pytest.mark.parametrize("op", DRAWN)
def test_what_is_exact_means_the_same(op: str) -> None:
    changed = 0
    for seed in range(20):
        case = DRAWN[op](seed)
        made = case.model() if callable(case.model) else case.model
        other = judge.exact(made)
        changed += other != made
        for a, b in zip(
            *(judge.ort_session(m).run(None, case.feeds) for m in (made, other)), strict=True
        ):
            np.testing.assert_array_equal(a, b)
    assert changed >= 4
