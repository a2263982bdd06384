"""The law of names: whatever the names in a model, of files and of options are, what fqfuse prints
is text, and the lines are its own.

No control character but the line's end (and colours, where they are asked for), no mark that turns
the direction of writing, no line that looks like one of fqfuse's messages, no line without end,
never exit code 3.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from support.terminals import in_terminal
from typer.testing import CliRunner

import fqfuse
from fqfuse.cli.app import app
from fqfuse.cli.progress import Progress
from fqfuse.errors import printable

HOSTILE = {
    "colour": "\x1b[31mred\x1b[0m",
    "title": "\x1b]0;title\x07",
    "one byte CSI": "\x9b31m",
    "forged": "a\nerror: forged\n  fix:   run rm\n",
    "overwritten": "a\r\x1b[2Kerror: forged",
    "other line ends": "a\u2028error: one\u2029error: two\x85error: three\x0berror: four\x0cerror: five",
    "turned": "\u202eab\u2066cd",
    "invisible": "a\u200bb\ufeffc\u00add\u034fe\u115ff\u1160g\u17b4h\u180bi\u3164j\ufe0fk\uffa0l\U000e0101",
    "deleted": "a\b\b\berror: \x7f\t",
    "markup": "[red]a[/red][link=http://host]b[/link] :skull: {b}%s",
    "blanks": "error: a  fix:   b" + " " * 300 + "error: c",
    "long": "n" * 50_000,
    "long with blanks": "name " * 10_000,
}
HOSTILE["everything"] = "".join(HOSTILE[kind] for kind in HOSTILE if not kind.startswith("long"))
_QUICK = ("everything", "forged", "long", "long with blanks")
KINDS = [kind if kind in _QUICK else pytest.param(kind, marks=pytest.mark.slow) for kind in HOSTILE]
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
# Default_Ignorable_Code_Point of Unicode 16 that Python calls printable
INVISIBLE = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u3164\ufe00-\ufe0f\uffa0\U000e0100-\U000e01ef]"
)
CONTROLS = re.compile(r"\x1b\[\?25[lh]|\r|\x1b\[\d*[KA]")
# From the begin of a line only: tried from each character of a line of 2 MB (JSON) it is quadratic.
BAR = re.compile(r"(?<![^\n\r])[^\n\r━]*+━[^\n\r]*\d:\d\d:\d\d")
"""What a machine that is slow draws behind two seconds: `CONTROLS`, which become "\\r", and lines."""
LONGEST = 30_000
_OWN = re.compile(r"( +>? *[0-9]* \|.*)|  (where: |saved: |fix:   ).*")
_FORGED = re.compile(r"(internal )?(error|usage): |  (where|saved|fix): ", re.IGNORECASE)


def quantized(named: Callable[[str], str]) -> onnx.ModelProto:
    """A convolution between quantizers, a function of a foreign kind, an If, every name given by
    `named`.
    """
    f32 = TensorProto.FLOAT
    shape = [named("batch"), 3, 8, 8]
    weights = np.random.default_rng(0).normal(size=(4, 3, 3, 3)).astype(np.float32)
    constants = {"w": weights, "s": np.float32(0.1), "z": np.uint8(128), "flag": np.bool_(True)}
    quantize = [
        helper.make_node(
            "QuantizeLinear",
            [named("x"), named("s"), named("z")],
            [named("q")],
            name=named("quantize"),
        ),
        helper.make_node(
            "DequantizeLinear",
            [named("q"), named("s"), named("z")],
            [named("d")],
            name=named("dequantize"),
        ),
    ]
    body = [
        helper.make_graph(
            [helper.make_node("Neg", [named("c")], [named(f"inner {side}")])],
            named(f"body {side}"),
            [],
            [helper.make_tensor_value_info(named(f"inner {side}"), f32, None)],
        )
        for side in ("then", "else")
    ]
    nodes = [
        *quantize,
        helper.make_node("Conv", [named("d"), named("w")], [named("c")], name=named("conv")),
        helper.make_node(
            "Relu", [named("c")], [named("r")], name=named("relu"), doc_string=named("doc")
        ),
        helper.make_node(
            "QuantizeLinear",
            [named("r"), named("s"), named("z")],
            [named("qr")],
            name=named("quantize behind"),
        ),
        helper.make_node(
            "DequantizeLinear",
            [named("qr"), named("s"), named("z")],
            [named("y")],
            name=named("dequantize behind"),
        ),
        helper.make_node("NonZero", [named("c")], [named("places")], name=named("non zero")),
    ]
    if "\n" not in named(""):  # see `test_line_ends_in_what_a_subgraph_reads`
        nodes.append(
            helper.make_node(
                "If",
                [named("i")],
                [named("chosen")],
                then_branch=body[0],
                else_branch=body[1],
                name=named("if"),
            )
        )
    inputs = [
        helper.make_tensor_value_info(named("x"), f32, shape),
        helper.make_tensor_value_info(named("i"), TensorProto.BOOL, []),
    ]
    outputs = [helper.make_tensor_value_info(named("y"), f32, [named("batch"), 4, 6, 6])]
    outputs += [
        helper.make_tensor_value_info(named("places"), TensorProto.INT64, [4, named("many")])
    ]
    initializers = [
        numpy_helper.from_array(np.asarray(data), named(name)) for name, data in constants.items()
    ]
    graph = helper.make_graph(
        nodes, named("graph"), inputs, outputs, initializers, doc_string=named("doc")
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 20)],
        ir_version=9,
        producer_name=named("producer"),
    )
    model.domain, model.doc_string = named("domain"), named("doc")
    model.metadata_props.add(key=named("key"), value=named("value"))
    return model


def mistakes(named: Callable[[str], str]) -> Iterator[tuple[str, onnx.ModelProto]]:
    """Models that are refused, each for another reason, in another place."""

    def changed(
        what: str, change: Callable[[onnx.ModelProto], object]
    ) -> tuple[str, onnx.ModelProto]:
        model = quantized(named)
        change(model)
        return what, model

    def external(model: onnx.ModelProto) -> None:
        tensor = model.graph.initializer[0]
        tensor.data_location = TensorProto.EXTERNAL
        del tensor.external_data[:]
        tensor.external_data.add(key="location", value=named("file"))
        tensor.ClearField("raw_data")

    def attribute(model: onnx.ModelProto) -> None:
        model.graph.node[2].attribute.append(helper.make_attribute(named("attribute"), 1))

    def foreign(model: onnx.ModelProto, op: str, domain: str) -> None:
        model.graph.node[3].op_type, model.graph.node[3].domain = op, domain
        model.opset_import.append(helper.make_opsetid(domain, 1))

    yield changed("an op", lambda model: setattr(model.graph.node[3], "op_type", named("Op")))
    yield changed("a domain", lambda model: foreign(model, "Relu", named("domain")))
    yield changed("an op and a domain", lambda model: foreign(model, named("Op"), named("domain")))
    yield changed("an attribute", attribute)
    yield changed("external data", external)
    yield changed(
        "a value made twice", lambda model: model.graph.node[1].output.__setitem__(0, named("q"))
    )
    yield changed(
        "a value never made",
        lambda model: model.graph.node[3].input.__setitem__(0, named("nothing")),
    )
    yield changed("a cycle", lambda model: model.graph.node[0].input.__setitem__(0, named("r")))
    yield changed("two inputs", lambda model: model.graph.input.append(model.graph.input[0]))
    yield changed("a rank", lambda model: model.graph.input[0].type.tensor_type.shape.dim.pop())
    yield changed("data", lambda model: setattr(model.graph.initializer[0], "raw_data", b"1"))
    yield changed(
        "a scale's type", lambda model: model.graph.node[0].input.__setitem__(1, named("z"))
    )
    yield changed("an output", lambda model: setattr(model.graph.output[0], "name", named("gone")))
    yield changed(
        "a type", lambda model: setattr(model.graph.input[0].type.tensor_type, "elem_type", 99)
    )
    yield changed("an input count", lambda model: model.graph.node[3].input.append(named("x")))


def namer(hostile: str) -> Callable[[str], str]:
    return lambda name: f"{hostile}{name}"


def without_bar(shown: str) -> str:
    return BAR.sub("", CONTROLS.sub("\r", shown)).replace("\r", "")


def check_lines(text: str, *, longest: int = LONGEST) -> None:
    for line in text.split("\n"):
        assert line.isprintable(), f"{line[:300]!r}"
        assert not INVISIBLE.search(line), f"{line[:300]!r}"
        assert len(line) <= longest, f"{len(line)}: {line[:300]!r}"


def check_messages(stderr: str, code: int) -> None:
    """Nothing, or one message in fqfuse's own lines."""
    check_lines(stderr)
    assert code in (0, 1, 2), stderr  # 1: two models differ
    if code in (0, 1):
        assert stderr == ""
        return
    head, *rest = stderr.removesuffix("\n").split("\n")
    assert head.startswith("error: "), stderr
    for line in rest:
        assert _OWN.fullmatch(line), stderr
    for label in ("  where: ", "  fix:   "):
        assert sum(line.startswith(label) for line in rest) <= 1, stderr


@pytest.fixture(autouse=True)
def libraries(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """What libraries print behind our back goes to the same terminal."""
    yield
    check_lines("".join(capfd.readouterr()))


def call(*arguments: object) -> tuple[int, str]:
    """Runs a command whose words may be hostile, checks what it says, and returns the exit code and
    what it printed.
    """
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="fqfuse")
    check_messages(result.stderr, result.exit_code)
    if "--json" in arguments:
        check_lines(result.stdout, longest=1 << 30)  # a document for programs: names are whole
        json.loads(result.stdout)
    elif "--text" in arguments:
        whole = "--all" in arguments  # reads back
        # a step has a name for each operand, output and node
        check_lines(result.stdout, longest=1 << 30 if whole else 4 * LONGEST)
    else:
        plain = COLOUR.sub("", result.stdout) if "always" in arguments else result.stdout
        check_lines(plain)
        assert not any(_FORGED.match(line) for line in plain.split("\n")), plain
    return result.exit_code, result.stdout


REPORTS = (
    [],
    ["--decisions"],
    ["--findings"],
    ["--steps", "--fates"],
    ["--all"],
    ["--json"],
    ["--text"],
    ["--text", "--all"],
    ["--color", "always", "--decisions"],
)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_reports_of_hostile_names(kind: str, tmp_path: Path) -> None:
    named = namer(HOSTILE[kind])
    path, plan, arrays = (
        tmp_path / "model.onnx",
        tmp_path / "model.plan.onnx",
        tmp_path / "feeds.npz",
    )
    onnx.save(quantized(named), path)
    assert call("compile", path, "-o", plan)[0] == 0
    assert call("compile", path, "-o", plan, "--json")[0] == 0
    assert call("inspect", path)[0] == 0
    for options in REPORTS:
        assert call("inspect", plan, *options)[0] == 0
    for name in ("conv", "quantize", "dequantize behind", "c", "non zero"):
        if len(HOSTILE[kind]) < 1000:
            assert call("why", path, named(name))[0] == 0
            call("why", plan, named(name), "--json")  # a plan does not know all of them
    assert call("why", path, "*")[0] == 0
    assert call("why", path, "#1", "--json")[0] == 0
    assert call("why", path, named("nothing"))[0] == 2
    onnx.save(quantized(lambda name: f"{named(name)}2"), tmp_path / "other.onnx")
    for options in ([], ["--json"], ["--all"]):
        assert call("diff", path, tmp_path / "other.onnx", *options)[0] == 1
        assert call("diff", path, "--other-target", "onednn-v2", *options)[0] == 1
    assert call("convert", plan, "-o", tmp_path / "new")[0] == 2, "it is for v3"
    old = fqfuse.compile(path, target="onednn-v2")
    fqfuse.save_plan(
        replace(old, values={name: kind.with_quant(None) for name, kind in old.values.items()}),
        tmp_path / "v2",
    )
    for options in ([], ["--json"], ["--color", "always"]):
        assert (
            call("convert", tmp_path / "v2", "-o", tmp_path / "new", "--how", "semantic", *options)[
                0
            ]
            == 0
        )
    feeds = {named("x"): np.zeros((1, 3, 8, 8), np.float32), named("i"): np.bool_(True)}
    for options in ([], ["--json"]):
        call("run", path, *options)  # inputs are missing
        call("run", plan, "--input", f"{named('nothing')}=x.npy", *options)
        call("run", plan, "--input", f"{named('x')}={tmp_path / 'gone.npy'}", *options)
    if len(HOSTILE[kind]) < 1000:
        np.savez(arrays, **feeds)
        assert call("run", plan, "--input", arrays)[0] == 0
        assert call("run", plan, "--input", arrays, "--output", tmp_path / "out", "--json")[0] == 0
        np.savez(arrays, **(feeds | {named("x"): np.zeros((1, 3, 8, 9), np.float32)}))
        assert call("run", plan, "--input", arrays)[0] == 2


@pytest.mark.parametrize("kind", KINDS)
def test_refusals_of_hostile_names(kind: str, tmp_path: Path) -> None:
    refused = 0
    for number, (_, model) in enumerate(mistakes(namer(HOSTILE[kind]))):
        path = tmp_path / f"{number}.onnx"
        path.write_bytes(model.SerializeToString())
        refused += call("compile", path, "-o", tmp_path / "out.onnx")[0] == 2
    call("inspect", path, "--json")
    assert refused >= 12


@pytest.mark.parametrize("kind", KINDS)
def test_hostile_words_on_the_command_line(kind: str, tmp_path: Path) -> None:
    word = HOSTILE[kind]
    model = tmp_path / "model.onnx"
    onnx.save(quantized(namer("")), model)
    for command in ("compile", "inspect", "run", "convert", "demo"):
        for option in (
            "--target",
            "--backend",
            "--color",
            "--threads",
            "--input",
            "--output",
            "--form",
            "--to",
            "--how",
        ):
            if (command, option) not in {
                ("compile", "--output"),
                ("demo", "--output"),
                ("inspect", "--output"),
            }:
                assert call(command, model, option, word)[0] == 2
        assert call(command, model, f"--{word}")[0] == 2
        assert call(command, word)[0] == 2
        assert call(command, word, "--json")[0] == 2
    assert call(word)[0] == 2
    if len(word) < 100 and "/" not in word:
        for name in (f"{word}.onnx", f"{word}.npy"):
            (tmp_path / name).write_bytes(b"no model")
            assert call("inspect", tmp_path / name)[0] == 2
            assert call("run", model, "--input", tmp_path / name)[0] == 2
        onnx.save(quantized(namer("")), tmp_path / f"{word}.onnx")
        assert (
            call("compile", tmp_path / f"{word}.onnx", "-o", tmp_path / f"{word}.plan.onnx")[0] == 0
        )
        assert call("inspect", tmp_path / f"{word}.plan.onnx")[0] == 0


@pytest.mark.parametrize("kind", KINDS)
def test_errors_in_python(kind: str) -> None:
    named = namer(HOSTILE[kind])
    session = fqfuse.InferenceSession(quantized(named), "numpy")
    calls = [
        lambda: session.run(None, {}),
        lambda: session.run(None, {named("nothing"): 1}),
        lambda: session.run([named("nothing")], {}),
        lambda: session.run(None, {named("x"): np.zeros(3), named("i"): np.bool_(True)}),
        *(
            lambda model=model: fqfuse.InferenceSession(model).run(None, {})
            for _, model in mistakes(named)
        ),
    ]
    for each in calls:
        with pytest.raises(fqfuse.FqfuseError) as caught:
            each()
        check_lines(str(caught.value))
        check_lines(repr(caught.value))
        head, *rest = str(caught.value).split("\n")
        assert not _FORGED.match(head)
        assert all(_OWN.fullmatch(line) for line in rest)


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=pytest.mark.slow) for kind in HOSTILE],
)
def test_on_a_terminal(kind: str, tmp_path: Path) -> None:
    """Lines are wrapped there, and colours are on."""
    model, wrong, word = tmp_path / "model.onnx", tmp_path / "wrong.onnx", HOSTILE[kind]
    model.write_bytes(quantized(namer(word)).SerializeToString())
    wrong.write_bytes(next(mistakes(namer(word)))[1].SerializeToString())
    program = Path(sys.executable).with_name("fqfuse")
    commands = (
        (0, ("inspect", model)),
        (0, ("inspect", model, "--json")),
        (2, ("inspect", wrong, "--json")),
        (2, ("run", model)),
    )
    for code, arguments in commands:
        ended, shown = in_terminal(100, program, *arguments)
        assert ended == code
        plain = without_bar(COLOUR.sub("", shown))
        check_lines(plain, longest=1 << 30 if "--json" in arguments else LONGEST)
        told = [line for line in plain.split("\n") if _FORGED.match(line)]
        assert len(told) == (3 if code == 2 and "--json" not in arguments else 0), told


@pytest.mark.hypothesis
@given(
    st.text(st.characters(codec=None) | st.sampled_from(HOSTILE["invisible"]), max_size=60),
    st.integers(1, 300),
)
def test_any_text_is_made_printable(text: str, times: int) -> None:
    shown = printable(text * times)
    assert shown.isprintable()
    assert not INVISIBLE.search(shown)
    assert len(shown) <= 4000
    assert printable(shown) == shown, "errors are made of errors"
    kept = text.isprintable() and not INVISIBLE.search(text) and len(text) * times <= 500
    assert shown == text * times or not kept


def test_line_ends_in_what_a_subgraph_reads() -> None:
    """A foreign node names them line by line, so such a name is refused; elsewhere it is taken."""
    with pytest.raises(fqfuse.InvalidModel, match="holds the end of a line"):
        fqfuse.compile(quantized(lambda name: "a\nb" if name == "c" else name))
    assert (
        fqfuse.InferenceSession(quantized(lambda name: "a\nb" if name == "d" else name))
        .get_inputs()[0]
        .name
        == "x"
    )


@pytest.mark.parametrize("kind", KINDS)
def test_tracebacks_and_bugs(kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A traceback that was asked for, and exceptions of Python that hold names."""
    monkeypatch.setenv("FQFUSE_TRACEBACK", "1")
    model = tmp_path / "model.onnx"
    model.write_bytes(next(mistakes(namer(HOSTILE[kind])))[1].SerializeToString())
    for error in (
        None,
        KeyError(HOSTILE[kind]),
        fqfuse.InternalError(HOSTILE[kind], excerpt="  > 1 | a"),
        MemoryError(HOSTILE[kind]),
    ):
        if error is not None:
            monkeypatch.setattr("fqfuse.compiler.compile", _raising(error))
        result = CliRunner().invoke(app, ["inspect", str(model)], prog_name="fqfuse")
        assert result.stderr.startswith("Traceback (most recent call last):\n")
        check_lines(result.stderr)
        assert (
            sum(
                line.startswith(("error: ", "internal error: "))
                for line in result.stderr.split("\n")
            )
            == 1
        )
        assert result.exit_code == (2 if error is None or isinstance(error, MemoryError) else 3)


def _raising(error: BaseException) -> Callable[..., object]:
    def failing(*_: object, **__: object) -> object:
        raise error from KeyError("\x1b[31m")

    return failing


@pytest.mark.parametrize("kind", KINDS)
def test_the_progress_bar(kind: str) -> None:
    with Progress() as progress:
        progress.say(HOSTILE[kind])
        assert progress._text.isprintable()
        assert len(progress._text) <= 4000
