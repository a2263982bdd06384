"""The law of arguments: every public function, given any value at any argument, succeeds or raises
a FqfuseError that can be printed.

Never another exception, a hang, or a file half written. The values are what callers mistake for
each other, and whatever arrays and paths can be.
"""

from __future__ import annotations

import os
import pathlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

import fqfuse
from fqfuse.cli.app import app
from fqfuse.frontend import Budgets

HUGE = 10**30


class _Raising:
    """What raises when it is asked for an array or a path."""

    def __array__(self, *_: object, **__: object) -> np.ndarray:
        raise LookupError("on another device")

    def __fspath__(self) -> str:
        raise LookupError("nowhere")


class _Subclass(np.ndarray):
    """An array of the caller's own class."""


def model() -> onnx.ModelProto:
    """`y = x + 1`, f32 [2, 3]; `t = s`, strings [2]; `z` holds `n` ones."""
    f32, text, s64 = TensorProto.FLOAT, TensorProto.STRING, TensorProto.INT64
    inputs = [
        helper.make_tensor_value_info(*row)
        for row in (("x", f32, [2, 3]), ("s", text, [2]), ("n", s64, [1]))
    ]
    outputs = [
        helper.make_tensor_value_info(*row)
        for row in (("y", f32, [2, 3]), ("t", text, [2]), ("z", f32, ["any"]))
    ]
    nodes = [
        helper.make_node("Add", ["x", "one"], ["y"]),
        helper.make_node("Identity", ["s"], ["t"]),
        helper.make_node(
            "ConstantOfShape", ["n"], ["z"], value=helper.make_tensor("value", f32, [1], [1.0])
        ),
    ]
    graph = helper.make_graph(
        nodes, "g", inputs, outputs, [helper.make_tensor("one", f32, [], [1.0])]
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


FEEDS = {
    "x": np.arange(6, dtype=np.float32).reshape(2, 3),
    "s": np.array(["a", "b"], object),
    "n": np.array([4], np.int64),
}


def scalars() -> Iterator[object]:
    """What is no array."""
    yield from (None, 3, -1, 0, 1.5, True, float("nan"), float("inf"), HUGE, -HUGE, 1j)
    yield from (
        "",
        "\0",
        "a\0b",
        "x",
        "\ud800",
        "\x1b[31m",
        b"",
        b"\0",
        b"x",
        bytearray(b"x"),
        memoryview(b"x"),
    )
    yield from ([], {}, (), set(), [None], ["x"], ["y"], {"x": 1}, {1: 2}, {None: None}, range(3))
    yield from (
        object(),
        object,
        len,
        iter([]),
        _Raising(),
        ...,
        NotImplemented,
        np.float32(1),
        np.str_("y"),
        np.datetime64("NaT"),
    )
    yield from ([[1.0, 2.0], [1.0]], [[]], "x" * 100_000, [1] * 100_000)


def arrays() -> Iterator[object]:
    """Arrays of every kind, most of them wrong."""
    right = FEEDS["x"]
    yield from (
        right,
        right.astype(">f4"),
        right.astype("f8"),
        right.astype("f2"),
        right.astype("c8"),
    )
    yield from (
        right.astype("U8"),
        right.astype("S8"),
        np.zeros((2, 3), [("a", "f4")]),
        np.zeros((2, 3), "M8[s]"),
        np.zeros((2, 3), "V4"),
    )
    yield from (
        right.astype(object),
        right[0],
        right[None],
        right.T,
        right[:, :2],
        right[:0],
        np.float32(1),
        np.zeros((), np.float32),
    )
    yield from (
        np.asfortranarray(right),
        right[::-1, ::-1],
        np.broadcast_to(np.float32(2), (2, 3)),
        np.repeat(right, 2, 1)[:, ::2],
    )
    # at an odd address
    yield np.frombuffer(b"\0" + right.tobytes(), np.float32, 6, 1).reshape(2, 3)
    yield from (
        right.view(_Subclass),
        right.view(np.matrix),
        np.ma.masked_array(right, right > 2),
        np.ma.masked_array(right),
    )
    yield from (
        np.array([None, 1], object),
        np.array([b"a", b"b"], object),
        np.array(["a", "b"]),
        np.array([b"a", b"b"]),
    )
    yield from (np.broadcast_to(np.float32(2), (1 << 40, 3)), np.array(["\ud800", "b"]))
    yield from (
        np.array([HUGE, 1], object),
        np.array([1 << 62]),
        np.array([-1]),
        np.array([1 << 40]),
        np.array([]),
        np.array([1 << 33]),
    )
    frozen = right.copy()
    frozen.setflags(write=False)
    yield frozen


def places(folder: Path) -> Iterator[object]:
    """Paths that lead to no model, or nowhere."""
    os.mkfifo(folder / "pipe")
    (folder / "empty").write_bytes(b"")
    (folder / "noise").write_bytes(bytes(range(256)) * 9)
    (folder / "loop").symlink_to(folder / "loop")
    (folder / "dangling").symlink_to(folder / "nothing")
    yield from (
        folder,
        str(folder),
        folder / "pipe",
        folder / "empty",
        folder / "noise",
        folder / "loop",
    )
    yield from (
        folder / "dangling",
        folder / "missing",
        folder / "empty" / "below",
        folder / ("n" * 300),
        "/dev/zero",
        "/dev/null",
    )
    yield from (
        "/dev/stdin",
        "/proc/self/mem",
        Path(),
        Path("/"),
        ".",
        "..",
        os.fsencode(folder / "empty"),
        folder / "\x1b]0;title\x07",
    )
    yield from (folder / "\udc80", pathlib.PurePosixPath("/"))


def is_told(call: Callable[[], object], what: str) -> None:
    """Calls; what is raised must be an error of fqfuse that can be printed."""
    try:
        call()
    except fqfuse.FqfuseError as error:
        told = str(error)
        assert all(line.isprintable() for line in told.splitlines()), told
        assert len(told) < 20_000
    except Exception as error:
        raise AssertionError(f"{what}: {type(error).__name__}: {error}") from error


def everything(folder: Path) -> list[object]:
    return [*scalars(), *arrays(), *places(folder)]


@pytest.fixture(scope="module")
def plan() -> fqfuse.Plan:
    return fqfuse.compile(model())


@pytest.fixture(params=["numpy", "onednn"])
def session(request: pytest.FixtureRequest, plan: fqfuse.Plan) -> fqfuse.InferenceSession:
    return fqfuse.InferenceSession(plan, request.param, budgets=Budgets(run_bytes=1 << 24))


CONSTRUCTORS = {
    "compile(model)": fqfuse.compile,
    "compile(target)": lambda value: fqfuse.compile(model(), target=value),
    "compile(budgets)": lambda value: fqfuse.compile(model(), budgets=value),
    "compile(observers)": lambda value: fqfuse.compile(model(), observers=value),
    "convert(plan)": fqfuse.convert,
    "findings(plan)": fqfuse.findings,
    "convert(target)": lambda value: fqfuse.convert(
        fqfuse.compile(model(), target="onednn-v2"), value
    ),
    "convert(how)": lambda value: fqfuse.convert(
        fqfuse.compile(model(), target="onednn-v2"), how=value
    ),
    "load_plan(source)": fqfuse.load_plan,
    "InferenceSession(model)": fqfuse.InferenceSession,
    "InferenceSession(backend)": lambda value: fqfuse.InferenceSession(model(), value),
    "InferenceSession(threads)": lambda value: fqfuse.InferenceSession(model(), "numpy", value),
    "InferenceSession(budgets)": lambda value: fqfuse.InferenceSession(
        model(), "numpy", budgets=value
    ),
    "Budgets": lambda value: fqfuse.compile(model(), budgets=Budgets(nodes=value, run_bytes=value)),
    "setstate": lambda value: fqfuse.InferenceSession(model(), "numpy").__setstate__(value),
    "setstate(plan)": lambda value: fqfuse.InferenceSession(model(), "numpy").__setstate__(
        {"plan": value, "backend": value, "threads": value, "run_bytes": value}
    ),
}


@pytest.mark.parametrize("function", CONSTRUCTORS)
def test_any_value_at_any_argument(
    function: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for value in everything(tmp_path):
        is_told(lambda value=value: CONSTRUCTORS[function](value), f"{function} of {value!r:.80}")


def test_any_value_at_run(session: fqfuse.InferenceSession, tmp_path: Path) -> None:
    for value in everything(tmp_path):
        what = f"{session.backend} of {value!r:.80}"
        is_told(lambda value=value: session.run(value, FEEDS), f"output_names, {what}")
        is_told(lambda value=value: session.run([value], FEEDS), f"one of output_names, {what}")
        is_told(lambda value=value: session.run(None, value), f"feeds, {what}")
        is_told(lambda value=value: session.run_steps(value), f"run_steps, {what}")
        for name in FEEDS:
            is_told(
                lambda name=name, value=value: session.run(None, FEEDS | {name: value}),
                f"feed {name}, {what}",
            )
        if value.__hash__ is not None and not isinstance(value, memoryview):
            is_told(
                lambda value=value: session.run(None, FEEDS | {value: FEEDS["x"]}),
                f"a name of a feed, {what}",
            )


def test_arrays_in_any_layout_give_the_same(session: fqfuse.InferenceSession) -> None:
    """What has the right type and shape is computed with, however it lies in memory."""
    taken = 0
    for value in arrays():
        right = isinstance(value, np.ndarray) and not isinstance(value, np.ma.MaskedArray)
        if right and value.dtype == np.float32 and value.dtype.isnative and value.shape == (2, 3):
            (found,) = session.run(["y"], FEEDS | {"x": value})
            assert type(found) is np.ndarray
            np.testing.assert_array_equal(found, np.asarray(value) + np.float32(1))
            taken += 1
    assert taken >= 9


def test_any_place_for_a_plan(
    plan: fqfuse.Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for value in everything(tmp_path):
        before = {path.name for path in tmp_path.iterdir()}
        is_told(lambda value=value: fqfuse.save_plan(plan, value), f"save to {value!r:.80}")
        for path in tmp_path.iterdir():
            if path.name not in before:
                assert fqfuse.load_plan(path) == plan
                path.unlink()
        assert before <= {path.name for path in tmp_path.iterdir()}


@pytest.mark.parametrize(
    "arguments",
    [
        ("inspect", "?"),
        ("compile", "?", "-o", "out"),
        ("compile", "right", "-o", "?"),
        ("run", "?"),
        ("convert", "?", "-o", "out"),
        ("convert", "v2", "-o", "?"),
        ("run", "right", "--input", "?"),
        ("run", "right", "--input", "x=?"),
    ],
    ids=" ".join,
)
def test_any_place_on_the_command_line(
    arguments: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 2 and a message, or 0 where a plan may be written; nothing else changes."""
    monkeypatch.chdir(tmp_path)
    onnx.save(model(), tmp_path / "right")
    fqfuse.save_plan(fqfuse.compile(model(), target="onednn-v2"), tmp_path / "v2")
    for place in places(tmp_path):
        words = [word.replace("?", os.fsdecode(place)) for word in arguments]
        before = {path: path.lstat().st_mtime_ns for path in tmp_path.iterdir()}
        result = CliRunner().invoke(app, words, prog_name="fqfuse")
        writes = arguments[-1] == "?" and "-o" in arguments
        assert result.exit_code == 2 or (writes and result.exit_code == 0), (words, result.output)
        assert "Traceback" not in result.output
        for path in tmp_path.iterdir():
            if before.get(path) != path.lstat().st_mtime_ns:
                assert result.exit_code == 0
                fqfuse.save_plan(fqfuse.load_plan(path), path)
                path.unlink()


# -- the byte budget of a run ----------------------------------------------------------------------


@pytest.mark.parametrize("backend", ["numpy", "onednn"])
def test_a_run_has_a_byte_budget(plan: fqfuse.Plan, backend: str) -> None:
    """What sizes alone decide is refused before anything is allocated, what data decides as soon as
    the data is there.
    """
    session = fqfuse.InferenceSession(plan, backend, budgets=Budgets(run_bytes=1 << 12))
    assert session.run(["z"], FEEDS)[0].shape == (4,)
    with pytest.raises(fqfuse.InvalidInput) as caught:
        session.run(["z"], FEEDS | {"n": np.array([1 << 50])})
    assert (
        "the value z of shape [1125899906842624] takes 4,503,599,627,370,496 bytes, and a run may take 4,096"
        in caught.value.what
    )
    assert "Budgets(run_bytes=4503599627370496)" in caught.value.hint
    assert session.run(["z"], FEEDS)[0].shape == (4,), "the session goes on"


@pytest.mark.parametrize("backend", ["numpy", "onednn"])
@pytest.mark.parametrize("size", [1 << 20, 1 << 40, 1 << 58])
def test_shapes_that_are_too_large(backend: str, size: int) -> None:
    """An input of a symbolic size, an array without memory of its own behind it; and the same as a
    static shape of the model.
    """
    for dims in (["N", 2], [size, 2]):
        x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, dims) for name in "xy")
        graph = helper.make_graph(
            [helper.make_node("Sin", ["x"], ["h"]), helper.make_node("Exp", ["h"], ["y"])],
            "g",
            [x],
            [y],
        )
        large = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
        with pytest.raises(
            fqfuse.InvalidInput, match=rf"x of shape \[{size}, 2\] takes {8 * size:,} bytes"
        ):
            _run_large(large, backend, size)


def _run_large(large: onnx.ModelProto, backend: str, size: int) -> None:
    session = fqfuse.InferenceSession(large, backend, budgets=Budgets(run_bytes=1 << 20))
    session.run(None, {"x": np.broadcast_to(np.float32(1), (size, 2))})


def test_the_memory_of_a_whole_run() -> None:
    """Each value fits, all that live at a time do not."""
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N"])
    nodes = [
        helper.make_node("Exp", ["x"], ["a"]),
        helper.make_node("Sigmoid", ["x"], ["b"]),
        helper.make_node("Mul", ["a", "b"], ["c"]),
    ]
    graph = helper.make_graph([*nodes, helper.make_node("Softmax", ["c"], ["y"])], "g", [x], [y])
    session = fqfuse.InferenceSession(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9),
        "numpy",
        1,
        budgets=Budgets(run_bytes=5 << 20),
    )
    session.run(None, {"x": np.zeros(1 << 10, np.float32)})
    with pytest.raises(
        fqfuse.InvalidInput, match=r"one run takes .* bytes; the largest value is . of shape"
    ):
        session.run(None, {"x": np.zeros(1 << 20, np.float32)})


def test_an_operator_whose_package_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    x = helper.make_tensor_value_info("x", TensorProto.UINT8, ["n"])
    y = helper.make_tensor_value_info("y", TensorProto.UINT8, ["h", "w", 3])
    graph = helper.make_graph(
        [helper.make_node("ImageDecoder", ["x"], ["y"], name="decode")], "g", [x], [y]
    )
    session = fqfuse.InferenceSession(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    )
    with pytest.raises(
        fqfuse.UnsupportedOp, match="ImageDecoder needs a package that is not installed"
    ) as caught:
        session.run(None, {"x": np.zeros(10, np.uint8)})
    assert caught.value.where == "decode"
    assert caught.value.hint == "install it: pip install Pillow"
