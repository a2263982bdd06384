"""What the commands do when everything is right."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from support.json_documents import problems
from support.plan_text import parse_plan

import fqfuse
from fqfuse.cli.outputs import write_outputs
from fqfuse.errors import BackendUnavailable, InvalidInput
from fqfuse.models.digits import digits_model_path
from fqfuse.onednn.loading import load
from fqfuse.onednn.native import missing
from fqfuse.report.tables import TABLES


def test_help_names_the_commands_and_their_summaries(call) -> None:
    result = call("--help")
    assert result.exit_code == 0
    assert result.stdout == call().stdout
    for command, summary in (
        ("compile", "Compile a model into"),
        ("inspect", "Show what"),
        ("why", "Tell the story"),
        ("diff", "Compare two"),
        ("compare", "Compare a quantized"),
        ("simulate", "Tell what a quantized"),
        ("fix", "Repair a quantized"),
        ("run", "Run a model"),
        ("batch", "Run a data set"),
        ("bench", "Measure how fast"),
        ("convert", "Convert a plan"),
        ("export", "Write a quantized"),
        ("demo", "Compile a small"),
    ):
        assert re.search(rf"{command} +{summary}", result.stdout)
        assert "Usage: fqfuse " + command in call(command, "-h").stdout


def test_version(call, spawn, monkeypatch) -> None:
    first = f"fqfuse {version('fqfuse')}\n"
    assert call("--version").stdout == spawn("--version").stdout
    assert call("--version").stdout.startswith(first)
    if not missing():
        assert call("--version").stdout == first
    monkeypatch.setitem(sys.modules, "fqfuse.onednn._native", None)
    told = call("--version").stdout
    assert told.startswith(f"{first}without kernels in C, slower on oneDNN: ")
    assert told.count("\n") == 2


def test_module_runs_like_the_program() -> None:
    ran = subprocess.run(
        [sys.executable, "-m", "fqfuse", "--version"], capture_output=True, text=True, check=True
    )
    assert ran.stdout == f"fqfuse {version('fqfuse')}\n"


def test_help_loads_nothing_heavy() -> None:
    heavy = ["numpy", "onnx", "networkx", "fqfuse.compiler", "fqfuse.ir.graph"]
    code = f"import sys, fqfuse.cli.app; sys.exit(', '.join(sorted(set({heavy}) & set(sys.modules))) or 0)"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_compile_writes_what_the_library_writes(call, tmp_path: Path, model: Path) -> None:
    result = call("compile", model, "-o", tmp_path / "cli.onnx")
    assert (result.exit_code, result.stderr) == (0, "")
    assert str(tmp_path / "cli.onnx") in result.stdout
    fqfuse.save_plan(fqfuse.compile(model), tmp_path / "library.onnx")
    assert (tmp_path / "cli.onnx").read_bytes() == (tmp_path / "library.onnx").read_bytes()


def test_compile_may_approximate(call, tmp_path: Path, model: Path) -> None:
    path = tmp_path / "approximate.onnx"
    result = call("compile", model, "-o", path, "--approximate", "int8-recurrence")
    assert (result.exit_code, result.stderr) == (0, "")
    assert fqfuse.load_plan(path).options["approximate"] == ("int8-recurrence",)
    result = call("compile", model, "-o", path, "--approximate", "int4")
    assert result.exit_code == 2
    assert "there is no approximation 'int4'" in result.stderr
    assert "where: command line, --approximate" in result.stderr


def test_compile_as_a_document(call, tmp_path: Path, model: Path) -> None:
    path = tmp_path / "v2.onnx"
    document = json.loads(
        call("compile", model, "-o", path, "--target", "onednn-v2", "--json").stdout
    )
    assert list(document) == ["schema", "model", "plan", "bytes", "summary"]
    assert document["schema"] == "fqfuse.compile/1"
    assert document["bytes"] == path.stat().st_size
    assert document["summary"]["target"] == "onednn-v2"
    assert fqfuse.load_plan(path).target == "onednn-v2"


def test_inspect_tells_the_same_of_a_model_and_its_plan(call, model: Path, plan: Path) -> None:
    of_model, of_plan = (call("inspect", path).stdout.splitlines() for path in (model, plan))
    assert of_model[0] == f"{model.name}  compiled for onednn-v3"
    assert of_model[1:] == of_plan[1:]
    assert call("inspect", model, "--json").stdout == call("inspect", plan, "--json").stdout


def test_inspect_text_reads_back(call, plan: Path) -> None:
    assert parse_plan(call("inspect", plan, "--text", "--all").stdout) == fqfuse.load_plan(plan)
    short = call("inspect", plan, "--text").stdout
    assert short.startswith("plan digits")
    assert "\ndata\n" not in short


def test_inspect_text_cuts_names_that_nobody_has(call, tmp_path: Path) -> None:
    long = "a/b" * 1_000_000
    node = helper.make_node("Relu", ["x"], [long], name=f"{long}.relu")
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in ("x", long)]
    onnx.save(
        helper.make_model(helper.make_graph([node], "long", infos[:1], infos[1:])),
        tmp_path / "long.onnx",
    )
    assert call("compile", tmp_path / "long.onnx", "-o", tmp_path / "plan.onnx").exit_code == 0
    assert fqfuse.load_plan(tmp_path / "plan.onnx").outputs == (long,), "the file has it whole"
    text = call("inspect", tmp_path / "plan.onnx", "--text").stdout
    assert len(text) < 10_000
    assert re.search(r"\n  out %[ab/]{200,} …\(3,000,000 characters\)… [ab/]{200,}\n", text)
    whole = call("inspect", tmp_path / "plan.onnx", "--text", "--all").stdout
    assert parse_plan(whole) == fqfuse.load_plan(tmp_path / "plan.onnx")
    assert "over 500 characters" in " ".join(
        call("inspect", "--help", env={"COLUMNS": "300"}).stdout.split()
    )


def test_inspect_decisions(call, plan: Path) -> None:
    assert "Decisions" not in call("inspect", plan).stdout
    assert re.search(
        r"split_fake_quantize +image.fq +u8 codes", call("inspect", plan, "--decisions").stdout
    )


def test_inspect_shows_what_is_asked_for(call, plan: Path) -> None:
    first = call("inspect", plan).stdout
    assert "multiply-adds" in first
    assert len(first.splitlines()) <= 24
    heads = {
        "--totals": "  inputs ",
        "--steps": "Steps  ",
        "--fates": "Fates  ",
        "--weighed": "Weighed  ",
        "--decisions": "Decisions  ",
        "--findings": "1  ",
    }
    for option, head in heads.items():
        shown = call("inspect", plan, option).stdout.splitlines()
        assert shown[0] == first.splitlines()[0]
        assert [
            name for name in heads.values() if any(line.startswith(name) for line in shown)
        ] == [head]
    every = call("inspect", plan, "--all").stdout
    assert all(f"\n{head}" in every for option, head in heads.items() if option != "--findings")


def test_inspect_takes_sizes_that_the_model_leaves_open(call, plan: Path) -> None:
    def macs(*options: str) -> int:
        return json.loads(call("inspect", plan, "--json", *options).stdout)["verdict"]["macs"]

    assert macs("--size", "N=32") == 32 * macs()
    assert "For open sizes, guessed: N=1 (--size, --data):" in call("inspect", plan).stdout
    assert "open sizes" not in call("inspect", plan, "--size", "N=32").stdout
    assert macs("--size", "N=0") == 0
    for wrong in ("N", "N=-1", "N=x", "=3", "M=3"):
        assert call("inspect", plan, "--size", wrong).exit_code == 2


GUESS = "For open sizes, guessed: N=1"


@pytest.mark.slow
def test_every_command_takes_sizes_and_says_first_what_it_guessed(call, tmp_path: Path) -> None:
    """Each of them by each of the options; without them the line below the title is about the guess."""
    data, out = tmp_path / "data.npz", tmp_path / "out.onnx"
    np.savez(data, image=np.zeros((5, 1, 8, 8), np.float32))
    model, f32 = digits_model_path("qdq"), digits_model_path("f32")
    quick = ("--rounds", "1", "--time", "0.01", "--backend", "numpy")
    commands = {
        "inspect": (model,),
        "inspect --totals": (model, "--totals"),
        "inspect --findings": (model, "--findings"),
        "why": (model, "block1.conv1"),
        "diff": (f32, model),
        "compare": (f32, model),
        "simulate": (model,),
        "fix": (model, "--dry-run"),
        "export": (model, "-o", out),
        "bench": (model, *quick),
    }
    without_figures = ("why", "export")
    for command, arguments in commands.items():
        name = command.split()[0]
        first = call(name, *arguments).stdout.splitlines()[1:3]
        assert any(line.strip().startswith(GUESS) for line in first) != (name in without_figures)
        for given in (("--size", "N=5"), ("--shape", "image=5x1x8x8"), ("--data", data)):
            result = call(name, *arguments, *given)
            assert result.exit_code in (0, 1), (command, given, result.stderr)
            assert "open sizes" not in result.stdout, (command, given)
            lines = [line for line in result.stdout.splitlines() if str(out) not in line]
            whole = command in ("inspect --totals", "bench")  # names and lists, in a pipe
            assert whole or max(map(len, lines)) <= 80, command
            if name == "export":
                (dim, *_) = onnx.load(out).graph.input[0].type.tensor_type.shape.dim
                assert dim.dim_value == 5
        for wrong in (("--size", "Q=5"), ("--shape", "image=5x2x8x8"), ("--shape", "q=5")):
            result = call(name, *arguments, *wrong)
            assert (result.exit_code, "Traceback" in result.stderr) == (2, False), (command, wrong)


def test_python_takes_the_same_sizes(tmp_path: Path) -> None:
    plan = fqfuse.compile(digits_model_path("qdq"))
    other = fqfuse.compile(digits_model_path("f32"))
    five, one = ({"N": size} for size in (5, 1))
    assert fqfuse.diff(plan, other, sizes=five) != fqfuse.diff(plan, other, sizes=one)
    assert fqfuse.diff(plan, other, sizes=one) == fqfuse.diff(plan, other)
    assert fqfuse.why(plan, "block1.conv1", sizes=five)["name"] == "block1.conv1"
    for wrong in (
        lambda: fqfuse.why(plan, "block1.conv1", sizes={"Q": 1}),
        lambda: fqfuse.diff(plan, other, sizes={"Q": 1}),
        lambda: fqfuse.export(digits_model_path("qdq"), tmp_path / "x.onnx", sizes={"Q": 1}),
        lambda: fqfuse.export(digits_model_path("qdq"), tmp_path / "x.onnx", sizes={"N": -1}),
    ):
        with pytest.raises(fqfuse.InvalidInput):
            wrong()
    assert not (tmp_path / "x.onnx").exists()


@pytest.mark.parametrize(
    "sizes", [("--size", "N=5"), ("--shape", "image=5x1x8x8"), ("--data", "data.npz")]
)
def test_sizes_are_given_in_three_ways(call, tmp_path: Path, sizes: tuple[str, str]) -> None:
    data = tmp_path / "data.npz"
    np.savez(data, image=np.zeros((5, 1, 8, 8), np.float32))
    model = digits_model_path("qdq")
    given = [str(data) if word == "data.npz" else word for word in sizes]
    document = json.loads(call("inspect", model, *given, "--json").stdout)
    assert document["verdict"]["guessed_sizes"] == {}
    alone = json.loads(call("inspect", model, "--json").stdout)
    assert alone["verdict"]["guessed_sizes"] == {"N": 1}
    assert document["verdict"]["macs"] == 5 * alone["verdict"]["macs"]
    other = call("diff", model, model, *given)
    assert other.exit_code == 0, other.output


@pytest.mark.parametrize(
    ("wrong", "what"),
    [
        (("--shape", "image=5x1x8"), "is no shape of image"),
        (("--shape", "image=5x2x8x8"), "is no shape of image"),
        (("--shape", "picture=5x1x8x8"), "no input 'picture'"),
        (("--shape", "image=a"), "'image=a' is no shape of an input"),
        (("--data", "missing.npz"), "missing.npz"),
    ],
)
def test_wrong_shapes_are_told(call, wrong: tuple[str, str], what: str) -> None:
    for command in (("inspect",), ("diff", digits_model_path("qdq"))):
        result = call(*command, digits_model_path("qdq"), *wrong)
        assert result.exit_code == 2
        assert what in " ".join(result.output.split())


def test_inspect_of_digits_as_issue_2_demands(call, model: Path) -> None:
    document = json.loads(call("inspect", model, "--json").stdout)
    steps = document["steps"]
    for step in steps:
        if step["primitive"] in ("convolution", "matmul"):
            assert [text[:2] for text in step["types"]["inputs"][:2]] == ["u8", "s8"]
    reorders = [step for step in steps if step["primitive"] == "reorder"]
    assert [step["inputs"] for step in reorders] == [["image"]], (
        "no standalone quantize step except at the graph's input"
    )
    for add in ("block1.add", "block2.add"):
        (step,) = [step for step in steps if add in step["origin"]]
        assert step["primitive"] == "convolution"
        assert {op["kind"] for op in step["post_ops"]} & {"sum", "binary"}
    assert (
        len(document["fates"])
        == document["summary"]["quantizers"]
        == document["summary"]["settled"]
    )


def test_colours_only_when_asked(call, plan: Path) -> None:
    plain = call("inspect", plan).stdout
    assert "\x1b" not in plain
    assert plain == call("inspect", plan, "--color", "never", env={"FORCE_COLOR": "1"}).stdout
    coloured = call("inspect", plan, "--color", "always").stdout
    assert "\x1b[" in coloured
    assert [
        re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in coloured.splitlines()
    ] == plain.splitlines()


@pytest.mark.parametrize("feed", ["image={}", "{}"])
def test_run_writes_an_archive(
    call, tmp_path: Path, plan: Path, image_file: Path, images: np.ndarray, feed: str
) -> None:
    output = tmp_path / "out.npz"
    result = call(
        "run",
        plan,
        "-i",
        feed.format(image_file),
        "--output",
        output,
        "--backend",
        "numpy",
        "--threads",
        "1",
    )
    assert (result.exit_code, result.stderr) == (0, "")
    with np.load(output) as archive:
        found = dict(archive)
    (expected,) = fqfuse.InferenceSession(plan, backend="numpy").run(None, {"image": images})
    assert list(found) == ["logits"]
    np.testing.assert_array_equal(found["logits"], expected)


def test_run_takes_an_archive_and_gives_one_array(
    call, tmp_path: Path, model: Path, plan: Path, images: np.ndarray
) -> None:
    np.savez(tmp_path / "in.npz", image=images)
    for path, output in ((plan, "of_plan.npy"), (model, "of_model.npy")):
        assert call("run", path, "-i", tmp_path / "in.npz", "-o", tmp_path / output).exit_code == 0
    assert (tmp_path / "of_plan.npy").read_bytes() == (tmp_path / "of_model.npy").read_bytes()


def test_run_reads_the_other_byte_order(
    call, tmp_path: Path, plan: Path, image_file: Path, images: np.ndarray
) -> None:
    np.save(tmp_path / "swapped.npy", images.astype(images.dtype.newbyteorder(">")))
    call("run", plan, "-i", image_file, "-o", tmp_path / "a.npy")
    assert (
        call("run", plan, "-i", tmp_path / "swapped.npy", "-o", tmp_path / "b.npy").exit_code == 0
    )
    assert (tmp_path / "a.npy").read_bytes() == (tmp_path / "b.npy").read_bytes()


def test_run_as_a_document(call, tmp_path: Path, plan: Path, image_file: Path) -> None:
    result = call(
        "run",
        plan,
        "-i",
        image_file,
        "-o",
        tmp_path / "new folder",
        "--json",
        "--backend",
        "numpy",
        "--threads",
        "2",
    )
    document = json.loads(result.stdout)
    assert problems(document) == []
    assert {step["runtime"] for step in document["steps"]} == {"numpy"}
    assert (document["schema"], document["backend"], document["threads"]) == (
        "fqfuse.run/1",
        "numpy",
        2,
    )
    assert document["backend_reason"] == "the backend numpy was asked for"
    assert document["seconds"] > 0
    assert document["inputs"] == [
        {"name": "image", "type": "f32[8,1,8,8]", "file": str(image_file)}
    ]
    assert document["outputs"] == [
        {"name": "logits", "type": "f32[8,10]", "file": str(tmp_path / "new folder" / "logits.npy")}
    ]
    assert np.load(tmp_path / "new folder" / "logits.npy").shape == (8, 10)


def test_run_without_output_writes_nothing(
    call, tmp_path: Path, plan: Path, image_file: Path
) -> None:
    result = call("run", plan, "-i", image_file)
    assert result.exit_code == 0
    assert re.search(r"output +logits +f32\[8,10\] +not written", result.stdout)
    assert list(tmp_path.iterdir()) == [image_file]


@pytest.mark.parametrize("place", ["out.npz", "out"])
def test_outputs_with_odd_names(tmp_path: Path, place: str) -> None:
    outputs = {
        "file": np.arange(3),  # numpy.savez has an argument of that name
        "a/b": np.float32([[1.5]]),
        "a:b": np.array(["x", "longer"], dtype=object),
        ".": np.zeros(()),
        "n" * 300: np.zeros(0, np.uint8),
    }
    files = write_outputs(outputs, tmp_path / place)
    for name, array in outputs.items():
        found = np.load(files[name], allow_pickle=False)
        found = found[name] if place.endswith(".npz") else found
        assert found.tolist() == array.tolist()
    again = {name: path.read_bytes() for name, path in files.items()}
    write_outputs(outputs, tmp_path / place)
    assert again == {name: path.read_bytes() for name, path in files.items()}, (
        "the same outputs give the same bytes"
    )
    assert not [path for path in tmp_path.rglob("*") if path.name.endswith(".tmp")]


def test_outputs_are_all_written_or_none(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    (folder / "b.npy").mkdir(parents=True)
    with pytest.raises(InvalidInput, match="a folder has its name"):
        write_outputs({"a": np.zeros(1), "b": np.zeros(1)}, folder)
    assert [path.name for path in folder.iterdir()] == ["b.npy"]


def test_an_archive_is_an_ordinary_zip(tmp_path: Path) -> None:
    write_outputs({"a": np.zeros(1)}, tmp_path / "out.npz")
    assert zipfile.ZipFile(tmp_path / "out.npz").namelist() == ["a.npy"]


@pytest.mark.parametrize("name", ["a\0b", "n" * 65_532, "\u5bbd" * 21_844])
def test_an_archive_refuses_names_that_it_would_cut(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidInput, match=r"an \.npz archive has no names"):
        write_outputs({name: np.zeros(1), "a\0c": np.ones(1)}, tmp_path / "out.npz")
    assert not list(tmp_path.iterdir())


def test_files_of_outputs_on_every_system(tmp_path: Path) -> None:
    """Where `Y` is `y`, or a name is that of a device; and no letter that is drawn as nothing."""
    names = [
        "Y",
        "y",
        "\u00e9",
        "e\u0301",
        "CON",
        "nul.x",
        "console",
        "\u5bbd" * 200,
        "a\u115f",
        "a_",
    ]
    files = write_outputs({name: np.zeros(1) for name in names}, tmp_path / "out")
    found = [files[name].name for name in names]
    assert found == [
        "Y.npy",
        "y.2.npy",
        "\u00e9.npy",
        "e_.npy",
        "_CON.npy",
        "_nul.x.npy",
        "console.npy",
        "\u5bbd" * 66 + ".npy",
        "a_.npy",
        "a_.2.npy",
    ]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == sorted(found)


@pytest.mark.parametrize("form", ["f32", "fakequantize", "qdq"])
def test_demo_classifies_the_digits(call, form: str) -> None:
    result = call("demo", "--form", form, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    document = json.loads(result.stdout)
    assert problems(document) == []
    assert document["schema"] == "fqfuse.demo/1"
    runs = document["runs"]
    assert list(runs) == (["f32", "plan"] if form == "f32" else ["f32", "unfused", "plan"])
    assert document["digits"] == len(runs["plan"]["labels"]) == 360
    assert runs["plan"]["accuracy"] >= 97
    assert abs(runs["plan"]["accuracy"] - runs["f32"]["accuracy"]) <= 0.5
    assert runs["f32"]["same_as_f32"] == 360
    assert all(check["holds"] for check in document["checks"])
    assert (
        len(document["fates"])
        == document["summary"]["quantizers"]
        == {"f32": 0, "fakequantize": 18, "qdq": 26}[form]
    )


def test_demo_tells_the_fate_of_every_quantizer(spawn) -> None:
    ran = spawn("demo", "--backend", "numpy", "--target", "onednn-v2")
    assert (ran.returncode, ran.stderr) == (0, "")
    for name in fqfuse.compile(digits_model_path("fakequantize")).quantizers:
        assert re.search(rf"^  {re.escape(name)} +\w+", ran.stdout, flags=re.MULTILINE)
    assert re.search(r"int8 plan on numpy +360 +100.00 %", ran.stdout)
    assert "output_scales" in ran.stdout


def test_demo_fails_where_the_plan_is_not_accurate(call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "fqfuse.inference.InferenceSession.run", lambda *_: [np.zeros((360, 10), np.float32)]
    )
    result = call("demo")
    assert result.exit_code == 1
    assert re.search(r"NO +the plan's accuracy is at least 97 %", result.stdout)
    assert "0, not 1" in result.stdout, "the first digit is a 1"


def test_auto_says_which_runtime_it_took_and_why(
    spawn, plan: Path, image_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        load()
        assert re.search(r"\n  onednn: oneDNN 3\.\d+", spawn("run", plan, "-i", image_file).stdout)
    except BackendUnavailable:
        pass  # the second half is all that can be seen here
    monkeypatch.setenv("FQFUSE_ONEDNN", "/nowhere/libdnnl.so.3")
    ran = spawn("run", plan, "-i", image_file)
    assert ran.returncode == 0
    assert (
        "\n  numpy: oneDNN cannot be used: the path in the environment variable FQFUSE_ONEDNN does not exist"
        in ran.stdout
    )


def test_asking_for_onednn_without_it_says_how_to_install_it(
    spawn, plan: Path, image_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FQFUSE_ONEDNN", "/nowhere/libdnnl.so.3")
    ran = spawn("run", plan, "-i", image_file, "-o", "out.npz", "--backend", "onednn")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert 'pip install "fqfuse[onednn]"' in ran.stderr
    assert not Path("out.npz").exists()


@pytest.mark.parametrize("table", ["findings", "steps", "fates", "decisions"])
def test_a_table_as_csv_is_that_of_the_plan(call, plan: Path, table: str) -> None:
    result = call("inspect", plan, f"--{table}", "--csv")
    assert result.exit_code == 0
    header, *rows = csv.reader(io.StringIO(result.stdout, newline=""), strict=True)
    loaded = fqfuse.load_plan(plan)
    expected = getattr(loaded, "steps_table" if table == "steps" else table)()
    assert header == list(TABLES[table])
    assert len(rows) == len(expected)
    for row, told in zip(rows, expected, strict=True):
        assert len(row) == len(header)
        assert row[0].removeprefix("'") == str(next(iter(told.values())))


FORMS = [
    *([f"--{name}"] for name in ("totals", "steps", "fates", "weighed", "decisions", "findings")),
    *(["--text"], ["--json"], ["--all"], ["--csv", "--fates"], ["--text", "--all"], []),
]


@pytest.mark.each_case
@pytest.mark.parametrize("form", FORMS, ids=" ".join)
def test_a_size_that_the_model_has_not_is_refused_in_every_form(call, plan: Path, form) -> None:
    result = call("inspect", plan, *form, "--size", "N=4", "--size", "width=3")
    assert result.exit_code == 2
    told = result.stdout if "--json" in form else result.stderr
    assert "the inputs have no size 'width'" in told
    assert "the sizes that are open: N" in told
    assert "--size" in told
    assert call("inspect", plan, *form, "--size", "N=4").exit_code == 0


def test_csv_counts_the_sizes_that_are_given(call, model: Path) -> None:
    one, eight = (
        call("inspect", model, "--steps", "--csv", *sizes) for sizes in ((), ("--size", "N=8"))
    )
    macs = [
        sum(int(row["macs"]) for row in csv.DictReader(io.StringIO(result.stdout)))
        for result in (one, eight)
    ]
    assert macs[1] == 8 * macs[0] > 0


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--csv"], "none is asked for"),
        (["--csv", "--steps", "--fates"], "--steps, --fates is asked for"),
        (["--csv", "--totals"], "--totals is asked for"),
        (["--csv", "--steps", "--json"], "--json and --csv exclude each other"),
    ],
)
def test_csv_is_one_table(call, plan: Path, options: list[str], said: str) -> None:
    result = call("inspect", plan, *options)
    assert result.exit_code == 2
    assert said in result.stderr
