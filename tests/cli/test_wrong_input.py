"""Each mistake of a user gets one message with its place and a remedy, exit code 2, no traceback,
and leaves nothing behind.
"""

from __future__ import annotations

import json
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from support import cli_files

import fqfuse

MODELS = {
    "truncated": (cli_files.truncated, "cut short"),
    "no ONNX": (cli_files.no_onnx, "the file is no ONNX model, but a text file"),
    "empty": (cli_files.empty, "the file is empty"),
    "unknown domain": (cli_files.unknown_domain, "com.acme.Magic"),
}


def assert_one_message(exit_code: int, stdout: str, stderr: str, *words: str) -> None:
    """One message on stderr: what, where, how to fix it; nothing else anywhere."""
    assert exit_code == 2
    assert stdout == ""
    assert "Traceback" not in stderr
    lines = stderr.splitlines()
    assert lines[0].startswith("error: ")
    assert [line for line in lines if line.startswith("error")] == lines[:1]
    assert any(line.startswith("  where: ") for line in lines), stderr
    assert any(line.startswith("  fix:   ") for line in lines), stderr
    for word in words:
        assert word in stderr


@pytest.mark.parametrize("case", MODELS)
def test_wrong_models(spawn, tmp_path: Path, case: str) -> None:
    make, word = MODELS[case]
    make(tmp_path / "wrong.onnx")
    ran = spawn("compile", "wrong.onnx", "-o", "out.plan.onnx", cwd=tmp_path)
    assert_one_message(ran.returncode, ran.stdout, ran.stderr, "wrong.onnx", word)
    assert [path.name for path in tmp_path.iterdir()] == ["wrong.onnx"], (
        "nothing half-written stays behind"
    )


@pytest.mark.parametrize("command", ["inspect", "run"])
@pytest.mark.parametrize("case", MODELS)
def test_wrong_models_in_other_commands(call, tmp_path: Path, command: str, case: str) -> None:
    make, word = MODELS[case]
    make(tmp_path / "wrong.onnx")
    result = call(command, tmp_path / "wrong.onnx")
    assert_one_message(result.exit_code, result.stdout, result.stderr, "wrong.onnx", word)


def test_a_damaged_plan(call, tmp_path: Path, plan: Path) -> None:
    damaged = tmp_path / "damaged.plan.onnx"
    content = bytearray(plan.read_bytes())
    content[len(content) // 2] ^= 1
    damaged.write_bytes(content)
    result = call("inspect", damaged)
    assert_one_message(result.exit_code, result.stdout, result.stderr, "damaged")


def _f32(shape: tuple[int, ...]) -> Callable[[Path], None]:
    return lambda path: np.save(path, np.zeros(shape, np.float32))


def _npy(shape: str) -> bytes:
    """A .npy file whose header says this for its shape."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(256)


def _headed(shape: str) -> Callable[[Path], None]:
    return lambda path: path.write_bytes(_npy(shape))


def _archived(*members: tuple[str, bytes]) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            for name, content in members:
                archive.writestr(name, content)

    return make


WRONG_FEEDS = {
    "no file": ("image=missing.npy", None, "missing.npy"),
    "wrong name": ("picture=feed.npy", _f32((2, 1, 8, 8)), "the model's inputs are: image"),
    "wrong rank": ("image=feed.npy", _f32((2, 8, 8)), "feed.npy, input image"),
    "wrong size": ("image=feed.npy", _f32((2, 1, 8, 9)), "expected 8"),
    "wrong type": (
        "image=feed.npy",
        lambda path: np.save(path, np.zeros((2, 1, 8, 8))),
        "astype('float32')",
    ),
    "no array": ("feed.npy", lambda path: path.write_text("hello"), "neither .npy nor .npz"),
    "empty file": ("feed.npy", lambda path: path.write_bytes(b""), "neither .npy nor .npz"),
    "cut off": (
        "feed.npy",
        lambda path: path.write_bytes(b"\x93NUMPY\x01\x00v\x00{'descr': '<f4', "),
        "damaged",
    ),
    "negative size": ("feed.npy", _headed("(-1, 1, 8, 8)"), "damaged"),
    "size of many digits": ("feed.npy", _headed("(0, 99999999999999999999)"), "damaged"),
    "size that is no integer": ("feed.npy", _headed("(True, 1, 8, 8)"), "damaged"),
    "open bracket": ("feed.npy", _headed("(1, 1"), "damaged"),
    "objects": (
        "feed.npy",
        lambda path: np.save(path, np.array([{}]), allow_pickle=True),
        "never unpickles",
    ),
    "wrong name in archive": (
        "feed.npz",
        lambda path: np.savez(path, picture=np.zeros(1)),
        "picture",
    ),
    "archive with a name": (
        "image=feed.npz",
        lambda path: np.savez(path, image=np.zeros(1)),
        "--input feed.npz",
    ),
    "broken archive": (
        "feed.npz",
        lambda path: path.write_bytes(b"PK\x03\x04" + bytes(40)),
        "damaged",
    ),
    "no array in archive": ("feed.npz", _archived(("image.npy", b"hello")), "no array"),
    "two arrays of a name": (
        "feed.npz",
        _archived(("image.npy", _npy("(1, 1, 8, 8)")), ("image", _npy("(1, 1, 8, 8)"))),
        "one name",
    ),
    "objects in archive": (
        "feed.npz",
        lambda path: np.savez(path, image=np.array([{}]), allow_pickle=True),
        "never unpickles",
    ),
}


@pytest.mark.parametrize("case", WRONG_FEEDS)
def test_wrong_inputs(
    call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plan: Path, case: str
) -> None:
    argument, make, word = WRONG_FEEDS[case]
    monkeypatch.chdir(tmp_path)
    if make is not None:
        make(Path(argument.rpartition("=")[2]))
    before = sorted(tmp_path.iterdir())
    result = call("run", plan, "-i", argument, "-o", "out.npz")
    assert_one_message(result.exit_code, result.stdout, result.stderr, word)
    assert sorted(tmp_path.iterdir()) == before


@pytest.mark.parametrize("case", ["wrong name", "wrong rank", "wrong type", "no file"])
def test_wrong_inputs_in_a_process(spawn, tmp_path: Path, plan: Path, case: str) -> None:
    argument, make, word = WRONG_FEEDS[case]
    if make is not None:
        make(tmp_path / "feed.npy")
    ran = spawn("run", plan, "-i", argument, "-o", "out.npz", cwd=tmp_path)
    assert_one_message(ran.returncode, ran.stdout, ran.stderr, word)
    assert not (tmp_path / "out.npz").exists()


def test_a_missing_input(spawn, tmp_path: Path, plan: Path) -> None:
    ran = spawn("run", plan, "-o", "out.npz", cwd=tmp_path)
    assert_one_message(
        ran.returncode, ran.stdout, ran.stderr, "missing inputs: image", "--input image=FILE.npy"
    )
    assert list(tmp_path.iterdir()) == []


def test_one_of_two_inputs_missing_twice_or_unnamed(call, tmp_path: Path) -> None:
    cli_files.two_inputs(tmp_path / "two.onnx")
    np.save(tmp_path / "a.npy", np.zeros((1, 2), np.float32))
    a = f"a={tmp_path / 'a.npy'}"
    for arguments, word in (
        (("-i", a), "missing inputs: b"),
        (("-i", a, "-i", a), "given twice"),
        (("-i", tmp_path / "a.npy"), "2 inputs"),
    ):
        result = call("run", tmp_path / "two.onnx", *arguments)
        assert_one_message(result.exit_code, result.stdout, result.stderr, word)


def test_one_symbol_with_two_sizes(call, tmp_path: Path) -> None:
    cli_files.two_inputs(tmp_path / "two.onnx")
    np.savez(tmp_path / "in.npz", a=np.zeros((1, 2), np.float32), b=np.zeros((3, 2), np.float32))
    result = call("run", tmp_path / "two.onnx", "-i", tmp_path / "in.npz")
    assert (result.exit_code, result.stderr.startswith("note: dimension N is 1")) == (0, True)
    assert call("compile", tmp_path / "two.onnx", "-o", tmp_path / "plan.onnx").exit_code == 0
    result = call("run", tmp_path / "plan.onnx", "-i", tmp_path / "in.npz")
    assert_one_message(result.exit_code, result.stdout, result.stderr, "N")


UNWRITABLE = ["nowhere/out{}", "file.txt/out{}", "taken{}"]


@pytest.mark.parametrize("place", UNWRITABLE)
@pytest.mark.parametrize("command", ["compile", "convert", "run"])
def test_unwritable_outputs(
    spawn, tmp_path: Path, model: Path, plan: Path, image_file: Path, command: str, place: str
) -> None:
    (tmp_path / "file.txt").write_text("a file is no folder")
    output = place.format(".npz" if command == "run" else ".onnx")
    taken = tmp_path / output
    if place.startswith("taken"):
        taken.mkdir()
        (taken / "inside").touch()
    arguments = {
        "compile": ["compile", model],
        "run": ["run", plan, "-i", image_file],
        "convert": ["convert", tmp_path / "v2"],
    }[command]
    if command == "convert":
        fqfuse.save_plan(fqfuse.compile(model, target="onednn-v2"), tmp_path / "v2")
    before = sorted(tmp_path.rglob("*"))
    ran = spawn(*arguments, "-o", output, cwd=tmp_path)
    # a folder is a fine place for outputs, whatever its name
    if command == "run" and taken.is_dir():
        assert ran.returncode == 0
        assert (taken / "logits.npy").exists()
        return
    assert_one_message(ran.returncode, ran.stdout, ran.stderr, output.partition("/")[0])
    assert sorted(tmp_path.rglob("*")) == before, "nothing half-written stays behind"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_behind_stdout(spawn, plan: Path) -> None:
    with Path("/dev/full").open("w") as full:
        for arguments in (
            ("inspect", plan),
            ("inspect", plan, "--json"),
            ("inspect", plan, "--text"),
        ):
            ran = spawn(*arguments, capture_output=False, stdout=full, stderr=-1)
            assert_one_message(
                ran.returncode, "", ran.stderr, "No space left on device", "standard output"
            )


def test_a_reader_that_goes_away_is_no_error(plan: Path) -> None:
    command = f"'{Path(sys.executable).with_name('fqfuse')}' inspect '{plan}' --json | head -n 1"
    ran = subprocess.run(
        ["/bin/sh", "-c", command], capture_output=True, text=True, check=False, timeout=60
    )
    assert (ran.stdout, ran.stderr) == ("{\n", "")


COMMAND_LINES = {
    "no such command": (["fuse"], "fuse"),
    "no such option": (["inspect", "m.onnx", "--colour"], "--colour"),
    "no model": (["inspect"], "MODEL_OR_PLAN"),
    "no output": (["compile", "m.onnx"], "--output"),
    "no output of a conversion": (["convert", "m.onnx"], "--output"),
    "no thread": (["run", "m.onnx", "--threads", "0"], "'0' is no number of threads"),
    "json and text": (["inspect", "m.onnx", "--json", "--text"], "--text"),
    "no such file": (["inspect", "m.onnx"], "there is no such file\n  where: m.onnx"),
    "a folder": (
        ["inspect", "."],
        "this is a folder, not a file\n  where: .\n  fix:   give the path of the .onnx file in it",
    ),
    "a name that is too long": (
        ["inspect", "m" * 300],
        "the file cannot be read: File name too long",
    ),
}


@pytest.mark.parametrize("case", COMMAND_LINES)
def test_wrong_command_lines(
    call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments, word = COMMAND_LINES[case]
    result = call(
        *[argument for argument in arguments if argument != "--json" or case == "json and text"]
    )
    if case == "json and text":
        assert result.exit_code == 2
        assert json.loads(result.stdout)["error"]["kind"] == "InvalidInput"
        return
    assert_one_message(result.exit_code, result.stdout, result.stderr, word)


WRONG_WORDS = {
    "backend": (
        "run m.onnx --backend cuda",
        "there is no backend 'cuda'",
        "choose one of auto, numpy, onednn",
    ),
    "backend of the demo": (
        "demo --backend cuda",
        "there is no backend 'cuda'",
        "choose one of auto, numpy, onednn",
    ),
    "form": ("demo --form Qdq", "there is no form 'Qdq'", "choose one of f32, fakequantize, qdq"),
    "color": (
        "inspect m.onnx --color red",
        "there is no color 'red'",
        "choose one of auto, always, never",
    ),
    "threads": (
        "run m.onnx --threads many",
        "'many' is no number of threads",
        "give a whole number of 1 or more",
    ),
    "target of a conversion": (
        "convert m.onnx -o n.onnx --to onednn-v2",
        "there is no conversion to 'onednn-v2'",
        "choose one of onednn-v3, unified",
    ),
    "conversion": (
        "convert m.onnx -o n.onnx --how fast",
        "there is no conversion 'fast'",
        "choose one of mechanical, semantic",
    ),
    "negative threads": (
        "run m.onnx --threads -2",
        "'-2' is no number of threads",
        "give a whole number of 1 or more",
    ),
    "fractions of threads": (
        "run m.onnx --threads 1.5",
        "'1.5' is no number of threads",
        "give a whole number of 1 or more",
    ),
}


@pytest.mark.parametrize("case", WRONG_WORDS)
def test_wrong_words_behind_options(call, case: str) -> None:
    line, what, hint = WRONG_WORDS[case]
    result = call(*line.split())
    place = f"command line, {line.split()[-2]}"
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"error: {what}\n  where: {place}\n  fix:   {hint}\n", (
        "our own words: those of a library change"
    )
    error = json.loads(call(*line.split(), "--json").stdout)["error"]
    assert error == {"kind": "UsageError", "what": what, "where": place, "hint": hint, "saved": ""}


def test_wrong_targets(call, model: Path, plan: Path) -> None:
    result = call("inspect", plan, "--target", "onednn-v2")
    assert_one_message(
        result.exit_code, result.stdout, result.stderr, "for target onednn-v3", str(plan)
    )
    for path in (model, plan):
        result = call("inspect", path, "--target", "onednn-v4")
        words = (
            "there is no target 'onednn-v4'",
            "where: command line, --target\n",
            "onednn-v2, onednn-v3",
        )
        assert_one_message(result.exit_code, result.stdout, result.stderr, *words)
    with pytest.raises(fqfuse.InvalidInput) as caught:
        fqfuse.compile(model, target="onednn-v4")
    assert (caught.value.what, caught.value.where) == (
        "there is no target 'onednn-v4'",
        "target",
    ), "the argument of the function"


def test_what_is_not_compiled(call, tmp_path: Path, model: Path, plan: Path) -> None:
    copy = tmp_path / "model.onnx"
    copy.write_bytes(model.read_bytes())
    for source, output, word in (
        (plan, tmp_path / "out.onnx", "a plan already"),
        (copy, copy, "replace the model"),
    ):
        result = call("compile", source, "-o", output)
        assert_one_message(result.exit_code, result.stdout, result.stderr, word)
    assert copy.read_bytes() == model.read_bytes()


OUTPUTS = {"out.txt": "not written as .txt", "out.npy": "holds one array", "there": "no folder"}


@pytest.mark.parametrize("output", OUTPUTS)
def test_wrong_forms_of_output_are_refused_before_anything_runs(
    call, tmp_path: Path, output: str
) -> None:
    cli_files.two_inputs(tmp_path / "two.onnx")
    (tmp_path / "there").touch()
    # the inputs are missing, too: that would be told later
    result = call("run", tmp_path / "two.onnx", "-o", tmp_path / output)
    assert_one_message(result.exit_code, result.stdout, result.stderr, OUTPUTS[output])


def test_errors_as_documents(call, tmp_path: Path, plan: Path) -> None:
    cli_files.no_onnx(tmp_path / "no.onnx")
    for arguments, kind in (
        (["inspect", tmp_path / "no.onnx"], "InvalidModel"),
        (["compile", tmp_path / "no.onnx", "-o", tmp_path / "x"], "InvalidModel"),
        (["run", plan], "InvalidInput"),
        (["run", plan, "--threads", "many"], "UsageError"),
        (["demo", "--target", "tpu"], "InvalidInput"),
    ):
        result = call(*arguments, "--json")
        document = json.loads(result.stdout)
        assert list(document) == ["schema", "error", "exit_code"]
        assert (document["schema"], document["exit_code"], result.exit_code) == (
            "fqfuse.error/1",
            2,
            2,
        )
        assert list(document["error"]) == ["kind", "what", "where", "hint", "saved"]
        assert document["error"]["kind"] == kind
        assert result.stderr.startswith(f"error: {document['error']['what']}"), (
            "stdout is no terminal: a log shall show it, too"
        )
