"""Scripts that bind inputs and outputs, hand `OrtValue`s around, fix free dimensions and stop runs do the same on
fqfuse as on ONNX Runtime. The models add and move f32 numbers that no order of summation changes.
"""

from __future__ import annotations

import inspect
import pickle
import re
import threading
import time
from pathlib import Path
from types import ModuleType

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from support.judge import ort_session

import fqfuse
from fqfuse import onnxruntime_names
from fqfuse.errors import FqfuseError, InvalidInput, InvalidModel

MODEL = onnx.parser.parse_model("""
    <ir_version: 8, opset_import: ["" : 17]>
    net (float[N, 3] x, float[3] b) => (float[N, 3] y, float[3, N] z)
    { y = Add(x, b)  r = Relu(y)  z = Transpose<perm: ints = [1, 0]>(r) }
""")
DATA = MODEL.SerializeToString()
X = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)
B = np.asarray([1, 2, 3], np.float32)
CLASSES = ["InferenceSession", "SessionOptions", "RunOptions", "OrtValue", "IOBinding"]
DOCUMENT = Path(__file__).parents[2] / "docs" / "onnxruntime.md"


def script(ort: ModuleType, session: object) -> list[object]:
    """As servers write it."""
    told: list[object] = []
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_input("b", "cpu", 0, np.float32, B.shape, B.ctypes.data)
    binding.synchronize_inputs()
    binding.bind_output("z")
    binding.bind_output("y", "cpu")
    session.run_with_iobinding(binding)
    binding.synchronize_outputs()
    told += [found.tolist() for found in binding.copy_outputs_to_cpu()]
    told += [
        (value.shape(), value.data_type(), value.device_name()) for value in binding.get_outputs()
    ]

    memory, lying = np.zeros((2, 3), np.float32), np.zeros((3, 2), np.float32)
    value = ort.OrtValue.ortvalue_from_numpy(X * 2)
    binding.clear_binding_outputs()
    binding.bind_ortvalue_input("x", value)
    binding.bind_output("y", "cpu", 0, np.float32, [2, 3], memory.ctypes.data)
    binding.bind_ortvalue_output("z", ort.OrtValue.ortvalue_from_numpy(lying))
    session.run_with_iobinding(binding, ort.RunOptions())
    told += [memory.tolist(), lying.tolist()]
    value.update_inplace(X)
    session.run_with_iobinding(binding)
    told += [memory.tolist(), [each.tolist() for each in binding.copy_outputs_to_cpu()]]

    empty = ort.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32, "cpu", 0)
    words = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(np.zeros((2, 4), np.uint16), 16)
    told += [
        empty.shape(),
        empty.numpy().dtype,
        words.data_type(),
        words.element_type(),
        words.shape(),
    ]
    told += [
        value.tensor_size_in_bytes(),
        value.element_type(),
        value.has_value(),
        value.is_tensor(),
    ]
    told += [value.is_tensor_sequence(), value.is_sparse_tensor(), np.asarray(value).tolist()]
    told.append(value.data_ptr() == value.numpy().ctypes.data)
    told.append(ort.OrtValue.from_dlpack(B).numpy().tolist())
    bias = ort.OrtValue.ortvalue_from_numpy(B)
    for found in session.run_with_ort_values(["z", "y"], {"x": value, "b": bias}):
        told += [found.numpy().tolist(), found.data_type()]
    told += [
        found.tolist()
        for found in session.run_with_ort_values(None, {"x": value, "b": bias})
        for found in [found.numpy()]
    ]
    told.append(session.run(["y"], {"x": X.tolist(), "b": [1, 2, 3]})[0].tolist())
    return told


@pytest.mark.parametrize("backend", ["numpy", "auto"])
def test_the_same_script_gives_the_same(backend: str) -> None:
    expected = script(onnxruntime, ort_session(MODEL))
    assert script(fqfuse, fqfuse.InferenceSession(DATA, backend)) == expected


@pytest.mark.parametrize("backend", ["numpy", "auto"])
def test_what_is_wrong_is_refused_by_both(backend: str) -> None:
    ours, theirs = fqfuse.InferenceSession(DATA, backend), ort_session(MODEL)
    other = {fqfuse: fqfuse.InferenceSession(DATA, backend), onnxruntime: ort_session(MODEL)}
    small = np.zeros((3, 3), np.float32)

    def bound(session: object, module: ModuleType) -> object:
        binding = session.io_binding()
        binding.bind_cpu_input("x", X)
        binding.bind_cpu_input("b", B)
        binding.bind_ortvalue_output("y", module.OrtValue.ortvalue_from_numpy(small))
        return binding

    def twice(module: ModuleType) -> None:
        module.OrtValue.ortvalue_from_numpy(X).update_inplace(small[0])

    for session, module in ((ours, fqfuse), (theirs, onnxruntime)):
        for wrong in (
            lambda s, m: s.run_with_iobinding(bound(s, m)),  # of another shape
            lambda s, m: other[m].run_with_iobinding(bound(s, m)),
            lambda s, _: s.run_with_iobinding(s.io_binding()),
            lambda s, _: s.io_binding().bind_cpu_input("q", X),
            lambda _, m: twice(m),
            lambda _, m: m.OrtValue.ortvalue_from_numpy([1, 2]),
            lambda _, m: m.OrtValue.ortvalue_from_numpy(X, "cuda", 0),
            lambda _, m: m.OrtValue.ortvalue_from_shape_and_type([2], 4711),
            lambda s, _: s.run(None, {"x": [["a", "b", "c"]], "b": B}),
            lambda s, _: s.run(None, {"x": [[1, 2, 3], [4]], "b": B}),
        ):
            with pytest.raises(InvalidInput if module is fqfuse else Exception, match=r"\S"):
                wrong(session, module)


def test_addresses_are_looked_at() -> None:
    binding = fqfuse.InferenceSession(DATA).io_binding()
    for address, kind in (
        (0, np.float32),
        (-1, np.float32),
        (X.ctypes.data, object),
        (X.ctypes.data, 22),
    ):
        with pytest.raises(InvalidInput):
            binding.bind_input("x", "cpu", 0, kind, X.shape, address)
    with pytest.raises(InvalidInput, match="no type or no shape"):
        binding.bind_output("y", buffer_ptr=X.ctypes.data)
    fixed = X.copy()
    fixed.flags.writeable = False
    with pytest.raises(InvalidInput, match="read-only"):
        fqfuse.OrtValue.ortvalue_from_numpy(fixed).update_inplace(X)
    assert fqfuse.OrtValue.ortvalue_from_numpy(np.zeros(2, ml_dtypes.bfloat16)).element_type() == 16


CUT = [[0.5, 2.5]]
"""What ONNX Runtime makes 0 and 2 of, for integers."""


def lists(module: ModuleType, kind: int, given: object) -> list[object] | None:
    x, y = (onnx.helper.make_tensor_value_info(name, kind, None) for name in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node("Identity", ["x"], ["y"])], "g", [x], [y])
    opset = onnx.helper.make_opsetid("", 17)
    model = onnx.helper.make_model(graph, opset_imports=[opset], ir_version=8)
    session = ort_session(model) if module is onnxruntime else fqfuse.InferenceSession(model)
    try:
        return session.run(None, {"x": given})[0].tolist()
    except (FqfuseError, RuntimeError):
        return None


@pytest.mark.parametrize("kind", [1, 2, 6, 7, 10, 11])
def test_lists_are_taken_where_the_type_has_their_numbers(kind: int) -> None:
    for given in (
        [[1, 2]],
        [[1.0, 2.0]],
        CUT,
        [True, False],
        [1, 300],
        [-1],
        [],
        [B[:2]],
        ["a"],
    ):
        ours, theirs = lists(fqfuse, kind, given), lists(onnxruntime, kind, given)
        if kind in (2, 6, 7) and given is CUT:
            assert ours is None, "ONNX Runtime cuts what is no integer"
        else:
            assert ours == theirs, given


def test_a_message_names_what_is_missing_beside_what_is_unknown() -> None:
    session = fqfuse.InferenceSession(DATA)
    with pytest.raises(InvalidInput, match="unknown inputs: X; missing inputs: x, b"):
        session.run(None, {"X": X})


OVERRIDES = [
    {"by_name": [("N", 2)]},
    {"by_name": [("Q", 2)]},
    {"by_name": [("N", 2), ("N", 5)]},
    {"by_denotation": [("data_batch", 2)]},
    {"by_denotation": [("DATA_CHANNEL", 4)]},
    {"by_denotation": [("DATA_CHANNEL", 3)], "by_name": [("N", 2)]},
    {"by_denotation": [("DATA_BATCH", 3)], "by_name": [("N", 2)]},
]


@pytest.mark.parametrize("overrides", OVERRIDES)
def test_free_dimensions_are_fixed_alike(overrides: dict[str, list[tuple[str, int]]]) -> None:
    model = onnx.ModelProto.FromString(DATA)
    batch, channel = model.graph.input[0].type.tensor_type.shape.dim
    batch.denotation, channel.denotation = "DATA_BATCH", "DATA_CHANNEL"
    told = []
    for module in (fqfuse, onnxruntime):
        options = module.SessionOptions()
        for how, rows in overrides.items():
            for row in rows:
                getattr(options, f"add_free_dimension_override_{how}")(*row)
        options.log_severity_level = 4
        try:
            session = module.InferenceSession(model.SerializeToString(), options)
        except (FqfuseError, onnxruntime_state.InvalidArgument):
            told.append("refused")
            continue
        shapes = [one.shape for one in (*session.get_inputs(), *session.get_outputs())]
        for size in (2, 5):
            try:
                session.run(None, {"x": np.zeros((size, 3), np.float32), "b": B})
                shapes.append(size)
            except (FqfuseError, onnxruntime_state.InvalidArgument):
                shapes.append("refused")
        told.append(shapes)
    assert told[0] == told[1]


onnxruntime_state = onnxruntime.capi.onnxruntime_pybind11_state


def test_overrides_are_sizes_and_for_models() -> None:
    options = fqfuse.SessionOptions()
    for wrong in (-1, "3", 1.5, True):
        with pytest.raises(InvalidInput, match="no size of 'N'"):
            options.add_free_dimension_override_by_name("N", wrong)
    options.add_free_dimension_override_by_name("N", 2)
    with pytest.raises(InvalidInput, match="give the model"):
        fqfuse.InferenceSession(fqfuse.compile(DATA), options)
    again = pickle.loads(pickle.dumps(fqfuse.InferenceSession(DATA, options)))  # noqa: S301
    assert again.get_inputs()[0].shape == [2, 3]


class Flag:
    """Options whose `terminate` is True when it was read often enough."""

    def __init__(self, reads: int) -> None:
        self.reads = reads

    @property
    def terminate(self) -> bool:
        self.reads -= 1
        return self.reads < 0


@pytest.mark.parametrize("backend", ["numpy", "auto"])
@pytest.mark.parametrize("module", [fqfuse, onnxruntime])
def test_a_run_ends_where_it_is_terminated(backend: str, module: ModuleType) -> None:
    session = fqfuse.InferenceSession(DATA, backend)
    feeds = {"x": X, "b": B}
    options = module.RunOptions()
    assert options.terminate is False
    expected = session.run(None, feeds)
    for found, value in zip(session.run(None, feeds, options), expected, strict=True):
        np.testing.assert_array_equal(found, value)
    options.terminate = True
    for stopped in (options, Flag(0), Flag(1), Flag(2)):
        with pytest.raises(onnxruntime_names.Fail, match="terminate"):
            session.run(None, feeds, stopped)
    with pytest.raises(onnxruntime_state.Fail, match="terminate"):
        ort_session(MODEL).run(None, feeds, onnx_options(terminate=True))
    for found, value in zip(session.run(None, feeds, Flag(99)), expected, strict=True):
        np.testing.assert_array_equal(found, value)


def onnx_options(*, terminate: bool) -> onnxruntime.RunOptions:
    options = onnxruntime.RunOptions()
    options.terminate = terminate
    return options


def test_another_thread_ends_a_run() -> None:
    """Of a chain that takes long: hundreds of products of 400 x 400."""
    rows = "".join(f"x{i + 1} = MatMul(x{i}, w)  " for i in range(400))
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["" : 17]> net (float[400, 400] x0, float[400, 400] w)'
        f" => (float[400, 400] x400) {{ {rows} }}"
    )
    session, options = fqfuse.InferenceSession(model, "numpy"), fqfuse.RunOptions()
    data = np.eye(400, dtype=np.float32)
    ended: list[str] = []

    def run() -> None:
        try:
            while True:
                session.run(None, {"x0": data, "w": data}, options)
        except InvalidInput as error:
            ended.append(error.what)

    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(0.05)
    options.terminate = True
    thread.join(20)
    assert ended == ["the run was ended: terminate of its RunOptions is True"]


def test_errors_have_the_names_that_scripts_catch(tmp_path: Path) -> None:
    names = {
        name
        for name, kind in vars(onnxruntime_state).items()
        if inspect.isclass(kind) and issubclass(kind, Exception)
    }
    assert all(issubclass(getattr(onnxruntime_names, name), FqfuseError) for name in names)
    state = fqfuse.capi.onnxruntime_pybind11_state
    session = fqfuse.InferenceSession(DATA)
    with pytest.raises(state.InvalidArgument):
        session.run(["q"], {"x": X, "b": B})
    with pytest.raises(state.InvalidArgument):
        session.run(None, {"x": X.astype(np.float64), "b": B})
    with pytest.raises(state.NoSuchFile):
        fqfuse.InferenceSession(tmp_path / "model.onnx")
    with pytest.raises(state.InvalidProtobuf) as caught:
        fqfuse.InferenceSession(b"\x08abc")
    assert isinstance(caught.value, state.InvalidGraph)
    assert caught.type is InvalidModel


def made(name: str) -> object:
    if name == "InferenceSession":
        return fqfuse.InferenceSession(DATA, "numpy")
    if name == "IOBinding":
        return fqfuse.InferenceSession(DATA, "numpy").io_binding()
    return fqfuse.OrtValue(X) if name == "OrtValue" else getattr(fqfuse, name)()


@pytest.mark.parametrize("name", CLASSES)
def test_every_attribute_is_there_or_documented_as_absent(name: str) -> None:
    ours, theirs = made(name), getattr(onnxruntime, name)
    text = DOCUMENT.read_text("utf-8")
    absent = set()
    for attribute in (each for each in dir(theirs) if not each.startswith("_")):
        found = getattr(ours, attribute)
        if "Not here: " not in (getattr(found, "__doc__", None) or ""):
            continue
        absent.add(attribute)
        with pytest.raises(InvalidInput, match=rf"no {attribute}\(\)\n +fix: +\S"):
            found(1, two=2)
    (row,) = re.findall(rf"^\| `{name}` \| (.*) \|$", text, re.MULTILINE)
    assert set(re.findall(r"`(\w+)\(\)`", row)) == absent


def test_defaults_of_options_are_the_same() -> None:
    for name in ("SessionOptions", "RunOptions"):
        ours, theirs = getattr(fqfuse, name)(), getattr(onnxruntime, name)()
        for attribute in dir(theirs):
            value = getattr(theirs, attribute)
            if not attribute.startswith("_") and not callable(value):
                assert getattr(ours, attribute) == (value if isinstance(value, str) else int(value))
