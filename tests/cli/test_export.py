"""`fqfuse export`: writes what the library writes, says what it is made of, and writes over nothing."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
from support.finding_networks import Net

import fqfuse
from fqfuse.models.digits import digits_model_path
from fqfuse.report.html.data import document


def test_the_file_is_what_the_library_writes(call, tmp_path: Path, model: Path) -> None:
    for form in ("qdq", "qoperator"):
        result = call("export", model, "--to", form, "-o", tmp_path / "cli.onnx")
        assert result.exit_code == 0, result.stderr
        first, *rows = result.stdout.splitlines()
        assert first == f"{model.name}  exported as {form}"
        written = tmp_path / "cli.onnx"
        assert rows[0].split()[:2] == ["file", str(written)]
        told = " ".join(result.stdout.split())
        assert f"{written} ({written.stat().st_size:,} bytes) operators " in told
        assert ("QLinearConv" in told) is (form == "qoperator")
        fqfuse.export(model, tmp_path / "library.onnx", to=form)
        assert (tmp_path / "cli.onnx").read_bytes() == (tmp_path / "library.onnx").read_bytes()


def test_json_says_what_was_written(call, tmp_path: Path, model: Path) -> None:
    document = json.loads(call("export", model, "-o", tmp_path / "new.onnx", "--json").stdout)
    assert document["schema"] == "fqfuse.export/1"
    assert document["opsets"] == {"": 21}
    assert document["operators"]["Conv"] == 7
    assert document["bytes"] == (tmp_path / "new.onnx").stat().st_size


def test_what_stays_f32_is_told_in_80_columns(call, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    net = Net()
    for index in range(5):
        value = net.quantized(net.conv(net.quantized("x"), f"a/rather/long/name/of/conv{index}"))
        net.op("HardSwish", value, name=f"/features/block{index}/act/HardSwish")
    net.op("Sum", *[each.output[0] for each in net.nodes if each.op_type == "HardSwish"], out="y")
    onnx.save(net.proto(), "net.onnx")
    result = call("export", "net.onnx", "-o", "out.onnx")
    assert max(map(len, result.stdout.splitlines())) <= 80
    told = " ".join(result.stdout.split())
    assert "in f32 5 operations: ONNX Runtime has no HardSwish of codes (/features/block0/" in told
    assert "and 2 more: see --json)" in told
    document = json.loads(call("export", "net.onnx", "-o", "out.onnx", "--json").stdout)
    assert len(document["operations"]) == 5
    assert document["products"] == []


def test_names_that_share_their_ends_are_told_apart(call, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    net = Net()
    for index in range(3):
        value = net.quantized(net.conv(net.quantized("x"), f"conv{index}"))
        name = f"/bert/encoder/layers/layer.{index}/attention/output/dense/Reshape_1_output_0_HardSwish"
        net.op("HardSwish", value, name=name)
    net.op("Sum", *[each.output[0] for each in net.nodes if each.op_type == "HardSwish"], out="y")
    onnx.save(net.proto(), "net.onnx")
    result = call("export", "net.onnx", "-o", "out.onnx")
    assert max(map(len, result.stdout.splitlines())) <= 80
    told = " ".join(result.stdout.split())
    assert all(f"layer.{index}…" in told for index in range(3)), told
    findings = document(fqfuse.compile("net.onnx"))["findings"]
    chips = next(found["chips"] for found in findings if len(found["layers"]) == 3)
    assert len(set(chips)) == 3
    assert max(map(len, chips)) <= 40


def test_what_is_not_exported(call, tmp_path: Path, plan: Path) -> None:
    copy = tmp_path / "copy.onnx"
    copy.write_bytes(digits_model_path("qdq").read_bytes())
    for source, output, told in (
        (plan, tmp_path / "new.onnx", "a plan has its scales folded into weights"),
        (copy, copy, "would replace a model that is read"),
        (copy, tmp_path / "no" / "new.onnx", "cannot be written"),
    ):
        result = call("export", source, "-o", output)
        assert result.exit_code == 2
        assert told in " ".join(result.stderr.split())
        assert "\n  fix: " in result.stderr
    assert not (tmp_path / "new.onnx").exists()


def test_quantizers_are_added_by_data(call, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    net = Net()
    net.op("HardSwish", net.conv(net.quantized("x"), "first/conv"), out="y")
    onnx.save(net.proto(), "net.onnx")
    shape = [size.dim_value for size in net.proto().graph.input[0].type.tensor_type.shape.dim]
    feeds = {"x": np.random.default_rng(1).standard_normal(shape, np.float32)}
    np.savez("data.npz", **feeds)
    result = call("export", "net.onnx", "-o", "cli.onnx", "--calibrate", "data.npz")
    told = " ".join(result.stdout.split())
    assert (
        "quantizers 1 quantizer that the model has not, or has with a scale and a range for" in told
    )
    assert "(first/conv)" in told
    fqfuse.export("net.onnx", "library.onnx", calibrate=feeds)
    assert Path("cli.onnx").read_bytes() == Path("library.onnx").read_bytes()
    document = json.loads(
        call("export", "net.onnx", "-o", "b.onnx", "--calibrate", "data.npz", "--json").stdout
    )
    assert document["added"] == ["first/conv"]


def test_data_that_does_not_fit_is_refused(call, tmp_path: Path, model: Path) -> None:
    np.savez(tmp_path / "data.npz", other=np.zeros(3, np.float32))
    result = call("export", model, "-o", tmp_path / "o.onnx", "--calibrate", tmp_path / "data.npz")
    assert result.exit_code == 2
    assert "no inputs of the model: other" in result.stderr
    assert not (tmp_path / "o.onnx").exists()
