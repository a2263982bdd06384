"""`fqfuse simulate`: screens, documents, exit codes, the file that it writes, wrong input."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.finding_cases import CASES, Net
from support.json_documents import problems

import fqfuse
from fqfuse.models.digits import digits_model_path, digits_test_set
from fqfuse.plan.saturation import steps_at_risk
from fqfuse.report.verdict.machine import this_machine

FORMS = pytest.mark.parametrize("form", ["qdq", "fakequantize"])


@pytest.fixture(scope="module")
def digits(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("digits") / "in.npz"
    np.savez(file, image=digits_test_set()[0][:16])
    return file


@FORMS
@pytest.mark.parametrize("isa", ["avx2", "avx512_core", "sse41"])
def test_the_answer_comes_first_and_fits_80_columns(
    call, digits: Path, form: str, isa: str
) -> None:
    result = call("simulate", digits_model_path(form), "--data", digits, "--isa", isa)
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert re.match(r"  On this data \d of 8 int8 layers give other numbers there: ", lines[1])
    assert [line for line in lines if len(line) > 80] == []
    assert re.search(r"head\.conv +85/96 +[\d.]+ % +[\d.]+ +[\d.]+ +weights", result.stdout)
    assert "--fix OUT.onnx" in result.stdout


@FORMS
def test_the_file_gives_the_same_numbers_everywhere(
    call, digits: Path, tmp_path: Path, form: str
) -> None:
    out = tmp_path / "out.onnx"
    result = call("simulate", digits_model_path(form), "--data", digits, "--fix", out)
    assert result.exit_code == 0, result.stderr
    assert "No sum of codes saturates there, whatever the data." in " ".join(result.stdout.split())
    assert re.search(r"What the bits cost: \d+\.\d dB SQNR", result.stdout)
    assert [line for line in result.stdout.splitlines() if len(line) > 80 and "/" not in line] == []
    feeds = dict(np.load(digits))
    exact, there = (
        fqfuse.InferenceSession(out, "numpy", isa=isa).run(None, feeds)[0]
        for isa in ("vnni", "avx2")
    )
    assert np.array_equal(exact, there)
    for model, told in ((digits_model_path(form), True), (out, False)):
        result = call("compile", model, "-o", tmp_path / "plan.onnx")
        assert ("  without VNNI " in result.stdout) is told
    assert {node.domain for node in onnx.load(out).graph.node} == {""}, "any runtime reads it"
    again = call("simulate", out, "--data", digits)
    assert "Proven for any data" in again.stdout
    assert "--fix" not in again.stdout
    assert steps_at_risk(fqfuse.compile(out), "avx2") == ()


def test_a_layer_and_products_around_it(call, tmp_path: Path) -> None:
    """LSTM and MatMul as quantize_dynamic writes them."""
    model, out = tmp_path / "model.onnx", tmp_path / "out.onnx"
    onnx.save(recurrent(), model)
    result = call("simulate", model, "--fix", out)
    assert result.exit_code == 0, result.stderr
    told = " ".join(result.stdout.split())
    assert "3 of 3 int8 layers give other numbers there" in told
    assert re.search(r"lstm +16/16 ", result.stdout)
    assert "Changed: the weights of 3 layers to 7 bits. No sum of codes saturates" in told
    assert "What a CPU computes in f32" in told
    assert "it may round in its own way" in told
    found = fqfuse.simulate(out)
    assert found["layers"] == []
    x = np.random.default_rng(7).normal(0, 1, (4, 3, 12)).astype(np.float32)
    exact, there = (
        fqfuse.InferenceSession(out, "numpy", isa=isa).run(None, {"x": x})[0]
        for isa in ("vnni", "avx2")
    )
    assert np.array_equal(exact, there)
    before = fqfuse.InferenceSession(model, "numpy", isa="avx2").run(None, {"x": x})[0]
    assert not np.array_equal(
        before, fqfuse.InferenceSession(model, "numpy").run(None, {"x": x})[0]
    )


def recurrent() -> onnx.ModelProto:
    """DynamicQuantizeLSTM between two products by MatMulInteger, with large weights."""
    rng, hidden, net = np.random.default_rng(3), 16, Net()

    def weights(*shape: int) -> str:
        return net.constant(rng.choice([-127, -90, 0, 90, 127], shape).astype(np.int8))

    def product(x: str, inputs: int, outputs: int, out: str = "") -> str:
        codes, scale, zero = (f"{x}/{part}" for part in ("codes", "scale", "zero"))
        net.nodes.append(
            helper.make_node(
                "DynamicQuantizeLinear", [x], [codes, scale, zero], name=f"{x}/dynamic"
            )
        )
        sums = net.op("MatMulInteger", codes, weights(inputs, outputs), zero, name=f"{x}/product")
        factor = net.op("Mul", scale, net.constant(np.float32(0.002)))
        return net.op("Mul", net.op("Cast", sums, to=TensorProto.FLOAT), factor, out=out)

    front = product("x", 12, 12)
    parts = [weights(1, 12, 4 * hidden), weights(1, hidden, 4 * hidden), *[""] * 5]
    scale, zero = net.constant(np.full(1, 0.004, np.float32)), net.constant(np.zeros(1, np.int8))
    parts += [scale, zero, scale, zero]
    domain = {"domain": "com.microsoft", "hidden_size": hidden}
    y = net.op("DynamicQuantizeLSTM", front, *parts, name="lstm", **domain)
    product(net.op("Squeeze", y, net.constant(np.array([1]))), hidden, 5, out="y")
    return net.proto(inputs={"x": [4, 3, 12]})


def test_inspect_is_quiet_about_what_is_proven(call, digits: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.onnx"
    model = digits_model_path("qdq")
    call("simulate", model, "--data", digits, "--fix", out)
    before, after = (
        json.loads(call("inspect", path, "--json").stdout)["verdict"]["without_vnni"]
        for path in (model, out)
    )
    assert len(before) == (6 if this_machine().exact_int8 else 0), "or a finding tells"
    assert after == []


@pytest.mark.parametrize("fix", [False, True])
def test_the_document(call, digits: Path, tmp_path: Path, fix: bool) -> None:
    model, out = digits_model_path("qdq"), tmp_path / "out.onnx"
    more = ["--fix", out] if fix else []
    told = json.loads(call("simulate", model, "--data", digits, *more, "--json").stdout)
    assert problems(told) == []
    assert (told["output"] is None) != fix
    found = fqfuse.simulate(
        model, data=dict(np.load(digits)), fix=tmp_path / "two.onnx" if fix else None
    )
    assert found["outputs"]["logits"]["sqnr"] == pytest.approx(told["outputs"]["logits"]["sqnr"])
    assert [layer["layer"] for layer in found["layers"]] == [x["layer"] for x in told["layers"]]
    if fix:
        assert told["fix"]["agree"]
        assert out.read_bytes() == (tmp_path / "two.onnx").read_bytes()


def quantized(
    net: Net, op: str, x: str, weights: np.ndarray, out: str = "", **attrs: object
) -> str:
    """A product of quantized x by quantized weights."""
    scale, steps = net.constant(np.float32(0.01)), net.constant(np.float32(0.02))
    codes = net.op("QuantizeLinear", x, scale, net.constant(np.uint8(128)))
    source = net.op("DequantizeLinear", codes, scale, net.constant(np.uint8(128)))
    factors = net.op("DequantizeLinear", net.constant(weights.astype(np.int8)), steps)
    return net.op(op, source, factors, name=f"{op}.layer", out=out, **attrs)


def test_other_cpus_and_large_sums_are_told(call, tmp_path: Path) -> None:
    """Groups of 3 channels run by the reference on AVX2, and not on AVX-512; a deep product's sums pass what
    f32 holds.
    """
    rng, net = np.random.default_rng(0), Net()
    front = quantized(net, "Conv", "x", rng.integers(100, 128, (6, 3, 3, 3)), group=2)
    flat = net.op("Reshape", front, net.constant(np.array([1, 6 * 18 * 18])))
    quantized(net, "MatMul", flat, rng.integers(60, 128, (6 * 18 * 18, 4)), out="y")
    model, out = tmp_path / "model.onnx", tmp_path / "out.onnx"
    onnx.save(net.proto(inputs={"x": [1, 6, 20, 20]}), model)
    result = call("simulate", model, "--fix", out)
    assert result.exit_code == 0, result.stderr
    told = " ".join(result.stdout.split())
    assert (
        "That is for this CPU; on AVX-512 without VNNI 1 layer can still differ (Conv.layer): "
        "--isa avx512_core --fix on the changed model; on SSE4.1 none." in told
    )
    assert "Sums of 1 layer (MatMul.layer) can pass 2^24" in told
    found = fqfuse.simulate(model, fix=out)
    assert found["rounded"] == found["fix"]["rounded"] == ["MatMul.layer"]
    assert found["fix"]["left"] == {"avx512_core": ["Conv.layer"], "sse41": []}
    assert problems(json.loads(call("simulate", model, "--fix", out, "--json").stdout)) == []
    last = tmp_path / "last.onnx"
    again = call("simulate", out, "--fix", last, "--isa", "avx512_core")
    assert "The same holds on AVX2 without VNNI and on SSE4.1." in " ".join(again.stdout.split())


def test_exit_codes(call, digits: Path) -> None:
    command = ["simulate", digits_model_path("qdq"), "--data", digits]
    assert call(*command, "--min-sqnr", "10").exit_code == 0
    assert call(*command, "--min-sqnr", "60").exit_code == 1
    assert call(*command, "--min-sqnr", "nan").exit_code == 2


def test_an_f32_model_is_held_against(call, digits: Path, tmp_path: Path) -> None:
    command = ["simulate", digits_model_path("qdq"), "--data", digits]
    result = call(*command, "--f32", digits_model_path("f32"))
    assert "f32 is the f32 model." in result.stdout
    other = tmp_path / "other.onnx"
    onnx.save(CASES["unused-sign"](False), other)
    result = call(*command, "--f32", other)
    assert result.exit_code == 2
    assert "different inputs" in result.stderr


def test_models_without_codes(call) -> None:
    result = call("simulate", digits_model_path("f32"))
    assert result.exit_code == 0, result.stderr
    assert "no products of codes" in result.stdout
    told = json.loads(call("simulate", digits_model_path("f32"), "--json").stdout)
    assert problems(told) == []


def test_nothing_is_written_over_what_is_read(call, tmp_path: Path, digits: Path) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(digits_model_path("qdq").read_bytes())
    before = model.read_bytes()
    result = call("simulate", model, "--data", digits, "--fix", model)
    assert result.exit_code == 2
    assert "would replace a model that is read" in result.stderr
    assert model.read_bytes() == before
    assert call("simulate", model, "--fix", tmp_path / "nowhere" / "out.onnx").exit_code == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.onnx"]


def test_what_cannot_be_changed_leaves_no_file(call, tmp_path: Path) -> None:
    """The model returns the codes of the source of a product of computed factors."""
    model, out = tmp_path / "model.onnx", tmp_path / "out.onnx"
    net = Net()
    left = net.constant(np.float32(0.03)), net.constant(np.uint8(120))
    right = net.constant(np.float32(0.03)), net.constant(np.int8(0))
    codes = net.op("QuantizeLinear", "x", *left, name="source")
    turned = net.op("QuantizeLinear", net.op("Transpose", "x", perm=[1, 0]), *right)
    product = net.op("QLinearMatMul", codes, *left, turned, *right, *left)
    net.op("DequantizeLinear", product, *left, out="y")
    made = net.proto(inputs={"x": [4, 16]})
    made.graph.output.append(helper.make_tensor_value_info(codes, TensorProto.UINT8, [4, 16]))
    onnx.save(made, model)
    result = call("simulate", model, "--fix", out)
    assert result.exit_code == 2, result.stdout
    assert "the model returns its codes" in result.stderr
    assert "source" in result.stderr
    assert not out.exists()


@pytest.mark.parametrize("word", ["vnni", "neon", "AVX2"])
def test_wrong_words(call, word: str) -> None:
    result = call("simulate", digits_model_path("qdq"), "--isa", word)
    assert result.exit_code == 2
    assert "choose one of avx2, avx512_core, sse41" in result.stderr


def test_figures_that_nobody_knows_are_void(call, tmp_path: Path) -> None:
    """Groups of one channel on AVX-512: which implementation oneDNN takes is not known."""
    constants = {
        "sx": np.float32(0.02),
        "zx": np.uint8(0),
        "w": np.full((4, 1, 1, 1, 2), 127, np.int8),
        "sw": np.float32(0.004),
        "zw": np.int8(0),
    }
    nodes = [
        onnx.helper.make_node("QuantizeLinear", ["x", "sx", "zx"], ["q"]),
        onnx.helper.make_node("DequantizeLinear", ["q", "sx", "zx"], ["d"]),
        onnx.helper.make_node("DequantizeLinear", ["w", "sw", "zw"], ["v"]),
        onnx.helper.make_node("Conv", ["d", "v"], ["y"], name="volume", group=2),
    ]
    ends = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
        for name, shape in (("x", [1, 2, 4, 4, 2]), ("y", None))
    ]
    data = [onnx.numpy_helper.from_array(np.asarray(v), k) for k, v in constants.items()]
    graph = onnx.helper.make_graph(nodes, "g", ends[:1], ends[1:], data)
    model, out = tmp_path / "model.onnx", tmp_path / "out.onnx"
    opsets = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opsets, ir_version=9), model)
    options = ("simulate", model, "--isa", "avx512_core")
    result = call(*options, "--min-sqnr", "10")
    assert result.exit_code == 1, "a figure that is void is not good enough"
    assert "The figures are void where volume is concerned" in " ".join(result.stdout.split())
    (layer,) = fqfuse.simulate(model, "avx512_core")["layers"]
    assert layer["emulated"] is False
    assert call(*options, "--fix", out).exit_code == 0
    assert fqfuse.simulate(out, "avx512_core")["layers"] == []
    assert call("simulate", out, "--isa", "avx512_core", "--min-sqnr", "10").exit_code == 0
