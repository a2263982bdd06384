"""`fqfuse compare`: screens, documents, exit codes, wrong input."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.json_documents import problems
from support.masked_attention import feed, quantized
from support.onnx_cases import model, node

import fqfuse
from fqfuse.accuracy import peers
from fqfuse.models.digits import digits_model_path, digits_test_set

F32 = digits_model_path("f32")


@pytest.fixture(scope="module")
def digits(tmp_path_factory) -> Path:
    file = tmp_path_factory.mktemp("digits") / "in.npz"
    np.savez(file, image=digits_test_set()[0][:8])
    return file


@pytest.mark.parametrize("form", ["qdq", "fakequantize"])
def test_the_answer_comes_first_and_fits_80_columns(call, digits: Path, form: str) -> None:
    result = call("compare", F32, digits_model_path(form), "--data", digits, "--suggest")
    assert result.exit_code == 0, result.stderr
    lines = result.stdout.splitlines()
    assert "f32" in lines[1]
    assert [line for line in lines if len(line) > 80] == []
    assert re.search(r"logits +\d+\.\d dB +0\.99\d\d", result.stdout)
    assert re.search(r"\d+ of \d+ values matched by name", result.stdout)


def test_a_quantized_mask_is_named_first_with_what_leaving_it_out_brings(
    call, tmp_path: Path
) -> None:
    int8 = quantized(tmp_path, [])
    np.savez(tmp_path / "in.npz", **feed(9))
    arguments = (tmp_path / "f32.onnx", int8, "--data", tmp_path / "in.npz", "--suggest")
    result = call("compare", *arguments)
    assert result.exit_code == 0, result.stderr
    told = " ".join(result.stdout.split())
    assert "The output is far from f32: expect wrong results. /attn/biased adds most noise" in told
    _, trials = result.stdout.split("left in f32, tried")
    first = next(line for line in trials.splitlines() if " layers " in line)
    assert "absurd-scale" in first
    assert float(first.split()[-1]) >= 0.95, "the cosine"
    assert "change nodes_to_exclude=['/attn/bias'" in " ".join(trials.split())
    layers = json.loads(call("compare", *arguments[:-1], "--json").stdout)["layers"]
    worst = next(layer for layer in layers if layer["rank"] == 1)
    for words in (worst["reason"], *worst["changes"]):  # what the screen says is in the document
        assert " ".join(words.split()) in told
    assert (worst["layer"], worst["cause"]) == ("/attn/biased", "too-wide")
    assert f"f32 spans {worst['low']:.3g} to {worst['high']:.3g}" in told


def test_python_gives_the_same_figures(call, digits: Path) -> None:
    int8 = digits_model_path("qdq")
    document = json.loads(call("compare", F32, int8, "--data", digits, "--json").stdout)
    found = fqfuse.compare(F32, int8, data=dict(np.load(digits)))
    assert found["outputs"]["logits"]["sqnr"] == pytest.approx(
        document["outputs"]["logits"]["sqnr"]
    )
    assert len(found["layers"]) == found["matched"] == document["matched"]


def test_the_output_is_that_of_two_sessions(digits: Path) -> None:
    x = dict(np.load(digits))
    wanted, found = (
        fqfuse.InferenceSession(digits_model_path(form)).run(None, x)[0].astype(np.float64)
        for form in ("f32", "qdq")
    )
    sqnr = 10 * np.log10((wanted**2).sum() / ((wanted - found) ** 2).sum())
    # f32 is rounded otherwise in a session than in the run without fusing
    compared = fqfuse.compare(F32, digits_model_path("qdq"), data=x)
    assert compared["outputs"]["logits"]["sqnr"] == pytest.approx(sqnr, abs=0.01)


def test_models_the_wrong_way_round_are_told(call) -> None:
    result = call("compare", digits_model_path("qdq"), F32)
    assert result.exit_code == 2
    assert "name the f32 model first" in result.stderr


def classifier(path: Path, classes: int, name: str) -> Path:
    weights = np.ones((4, classes), np.float32)
    nodes = [node("MatMul", ["x", "w"], [f"{name}{at}"], name=f"{name}{at}") for at in range(20)]
    nodes += [node("Sum", [f"{name}{at}" for at in range(20)], ["y"], name=f"{name}sum")]
    proto = model(nodes, inputs={"x": [2, 4]}, constants={"w": weights})
    onnx.save(proto, path)
    return path


@pytest.mark.parametrize("known", [True, False])
def test_models_that_are_no_pair_are_told_and_what_to_do(call, tmp_path: Path, known: bool) -> None:
    """Outputs of one name and other sizes: in the file, or in a run."""
    f32 = classifier(tmp_path / "f32.onnx", 3, "a")
    other = classifier(tmp_path / "other.onnx", 5, "b")
    if not known:
        for path in (f32, other):
            proto = onnx.load(path)
            last = helper.make_node("Reshape", ["sum", "shape"], ["y"], name="last")
            proto.graph.node[-1].output[0] = "sum"
            shared = [helper.make_node("Relu", ["x"], [f"shared{at}"]) for at in range(9)]
            proto.graph.node.extend([*shared, last])  # one network, by these
            proto.graph.input.append(helper.make_tensor_value_info("shape", TensorProto.INT64, [1]))
            onnx.save(proto, path)
    data = tmp_path / "data.npz"
    shape = {} if known else {"shape": np.array([-1])}
    np.savez(data, x=np.ones((2, 4), np.float32), **shape)
    result = call("compare", f32, other, "--data", data)
    assert result.exit_code == 2
    assert "output 'y' is " in result.stderr
    assert "compare a quantized model with the f32 model that it was made from" in result.stderr


def test_two_networks_are_refused(call, tmp_path: Path) -> None:
    f32 = classifier(tmp_path / "f32.onnx", 3, "a")
    result = call("compare", f32, classifier(tmp_path / "other.onnx", 3, "b"))
    assert result.exit_code == 2
    assert not result.stdout
    told = " ".join(result.stderr.split())
    assert "these are not the same network: of 21 values that the first one computes, 1 is" in told
    assert "compare a quantized model with the f32 model that it was made from" in told


@pytest.mark.parametrize(("kept", "doubted"), [(4, True), (12, False)])
def test_models_that_share_few_values_are_doubted_first(
    call, tmp_path: Path, kept: int, doubted: bool
) -> None:
    f32 = classifier(tmp_path / "f32.onnx", 3, "a")
    proto = onnx.load(f32)
    for at in range(kept, 20):
        proto.graph.node[at].output[0] = proto.graph.node[-1].input[at] = f"other{at}"
    proto.graph.node.append(node("MatMul", ["x", "w"], ["more"]))
    other = tmp_path / "other.onnx"
    onnx.save(proto, other)
    told = [line.strip() for line in call("compare", f32, other).stdout.splitlines()]
    assert told[1].startswith("These may be two different networks: of 21 values") is doubted
    assert ("20 MatMul and 21 MatMul" in " ".join(told)) is doubted
    document = json.loads(call("compare", f32, other, "--json").stdout)
    assert (document["doubt"] is not None) is doubted


def test_exit_code_follows_the_bound(call, digits: Path) -> None:
    arguments = ("compare", F32, digits_model_path("qdq"), "--data", digits)
    assert call(*arguments, "--min-sqnr", 5).exit_code == 0
    assert call(*arguments, "--min-sqnr", 90).exit_code == 1


def test_a_model_equals_itself(call) -> None:
    result = call("compare", F32, F32, "--min-sqnr", 90)
    assert result.exit_code == 0, result.stdout
    assert "No layer adds any noise" in result.stdout


def test_onnx_runtime_agrees_with_what_the_file_means(call, digits: Path) -> None:
    pytest.importorskip("onnxruntime")
    arguments = (F32, digits_model_path("qdq"), "--data", digits, "--against", "onnxruntime")
    document = json.loads(call("compare", *arguments, "--json").stdout)
    # ties of rounding fall either way; the quantization's own noise is below 40 dB
    assert float(document["agreement"]["onnxruntime"]["logits"]["sqnr"]) > 45
    assert document["against"] == "onnxruntime"


def test_a_folder_holds_samples(call, tmp_path: Path) -> None:
    images = digits_test_set()[0]
    for number in range(3):
        np.savez(tmp_path / f"{number}.npz", image=images[number : number + 1])
    arguments = ("compare", F32, digits_model_path("qdq"), "--data", tmp_path, "--json")
    assert json.loads(call(*arguments).stdout)["samples"] == 3


def test_wrong_input_is_told(call, tmp_path: Path, digits: Path) -> None:
    int8 = digits_model_path("qdq")
    empty = tmp_path / "empty"
    empty.mkdir()
    for arguments, said in (
        (("--data", empty), "holds no .npz"),
        (("--data", tmp_path / "none.npz"), "none.npz"),
        (("--size", "nothing=3"), "no size 'nothing'"),
        (("--size", "N=0"), "'N=0' leaves no data: a size is 1 or more here"),
        (("--size", "N=3", "--data", digits), "--size is for random data"),
        (("--min-sqnr", "nan"), "nan is no bound"),
        (("--against", "tensorrt"), "choose one of onnxruntime, openvino"),
        (("--against", "onnxruntime", "--against", "openvino"), "once for each"),
    ):
        result = call("compare", F32, int8, *arguments)
        assert result.exit_code == 2
        assert said in result.stderr
        assert "Traceback" not in result.stderr


def test_what_is_cut_out_is_compared_again(call, digits: Path, tmp_path: Path) -> None:
    out = tmp_path / "part.onnx"
    arguments = (F32, digits_model_path("qdq"), "--data", digits, "--reduce", out)
    whole = json.loads(call("compare", *arguments, "--json").stdout)
    assert whole["reduced"] == {
        "model": str(out),
        "inputs": str(tmp_path / "part.npz"),
        "f32": str(tmp_path / "part.f32.onnx"),
    }
    again = call("compare", tmp_path / "part.f32.onnx", out, "--data", tmp_path / "part.npz")
    assert again.exit_code == 0, again.stderr
    assert call("run", out, "-i", tmp_path / "part.npz").exit_code == 0


@pytest.mark.each_case
@pytest.mark.parametrize(
    ("int8", "bound", "said"),
    [
        (digits_model_path("qdq"), 3, r"no layer adds so much noise; the most is \d\d\.\d dB"),
        (F32, None, "no layer adds noise"),
    ],
)
def test_why_nothing_is_cut_out(
    call, digits: Path, tmp_path: Path, int8: str, bound: float | None, said: str
) -> None:
    bounded = () if bound is None else ("--min-sqnr", bound)
    out = tmp_path / "part.onnx"
    result = call("compare", F32, int8, "--data", digits, "--reduce", out, *bounded)
    assert re.search(rf"Nothing to cut out: {said}\.", " ".join(result.stdout.split()))
    assert not out.exists()


def test_a_part_is_not_written_over_a_model(call, tmp_path: Path) -> None:
    model = tmp_path / "model.onnx"
    model.write_bytes(Path(F32).read_bytes())
    before = model.read_bytes()
    for out, said in (
        (model, "written over"),
        (tmp_path / "x.bin", ".onnx file"),
        (tmp_path / "no" / "x.onnx", "folder"),
    ):
        result = call("compare", model, digits_model_path("qdq"), "--reduce", out)
        assert result.exit_code == 2
        assert said in result.stderr
    assert model.read_bytes() == before


def test_a_plan_is_no_model_to_compare(call, tmp_path: Path) -> None:
    plan = tmp_path / "plan.onnx"
    fqfuse.save_plan(fqfuse.compile(digits_model_path("qdq")), plan)
    result = call("compare", F32, plan)
    assert result.exit_code == 2
    assert "name the model that it was compiled from" in result.stderr


def test_names_of_a_stranger_steer_no_terminal(call, tmp_path: Path) -> None:
    model = onnx.load(digits_model_path("qdq"))
    f32 = onnx.load(F32)
    for proto in (model, f32):
        for each in proto.graph.node:
            each.name = f"\x1b[31m{each.name}\n"
        for entries in (proto.graph.output, *(each.output for each in proto.graph.node)):
            for index, value in enumerate(entries):
                if isinstance(value, str):
                    entries[index] = value.replace("logits", "log\x1bits")
                else:
                    value.name = value.name.replace("logits", "log\x1bits")
    files = [tmp_path / "f32.onnx", tmp_path / "int8.onnx"]
    for proto, file in zip((f32, model), files, strict=True):
        onnx.save(proto, file)
    result = call("compare", *files, "--suggest", "--all")
    assert result.exit_code == 0, result.stderr
    assert "\x1b" not in result.stdout
    assert "log\\x1bits" in result.stdout


def test_nan_and_infinity_are_said(call, tmp_path: Path) -> None:
    f32, int8 = (
        onnx.helper.make_model(
            onnx.helper.make_graph(
                [onnx.helper.make_node(op, ["x"], ["y"], name="layer")],
                "g",
                [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2, 3])],
                [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, 3])],
            ),
            opset_imports=[onnx.helper.make_opsetid("", 17)],
            ir_version=8,
        )
        for op in ("Abs", "Sqrt")
    )
    files = [tmp_path / "f32.onnx", tmp_path / "int8.onnx"]
    for proto, file in zip((f32, int8), files, strict=True):
        onnx.save(proto, file)
    result = call("compare", *files, "--min-sqnr", 0)
    assert result.exit_code == 1
    said = " ".join(result.stdout.split())
    assert "NaN or infinite: " in said
    assert "makes NaN or infinities where f32 has numbers" in said
    told = json.loads(call("compare", *files, "--json").stdout)
    assert problems(told) == []
    assert (told["outputs"]["y"]["sqnr"], told["outputs"]["y"]["cosine"]) == ("-inf", "nan")


@pytest.mark.parametrize("program", ["onnxruntime", "openvino"])
def test_a_missing_program_is_told(call, monkeypatch: pytest.MonkeyPatch, program: str) -> None:
    def missing(name: str) -> None:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)

    monkeypatch.setattr(peers, "import_module", missing)
    result = call("compare", F32, digits_model_path("qdq"), "--against", program)
    assert result.exit_code == 2
    assert f"pip install {program}" in result.stderr


def test_data_of_the_quantizers_own_range_are_no_proof(call) -> None:
    """In the sentence that says how close the output is."""
    told = " ".join(call("compare", F32, digits_model_path("qdq")).stdout.split())
    sentence = told[told.index("On random data") :].partition(".")[0]
    assert "drawn from the input quantizer's own range" in sentence
    assert "the output is" in sentence


def test_data_of_another_shape_are_told_with_the_model(call, tmp_path: Path) -> None:
    np.savez(tmp_path / "in.npz", image=np.zeros((1, 1, 3, 3), np.float32))
    result = call("compare", F32, digits_model_path("qdq"), "--data", tmp_path / "in.npz")
    assert result.exit_code == 2
    for part in ("found [1, 1, 3, 3]", f"{F32.name}: input image", "fix:"):
        assert part in " ".join(result.stderr.split())
