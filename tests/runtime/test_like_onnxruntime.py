"""Code for ONNX Runtime runs on fqfuse by another import; the judge is ONNX Runtime itself."""

from __future__ import annotations

import gc
import pickle
import warnings
import weakref
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import onnx
import onnxruntime
import pytest

import fqfuse
from fqfuse.errors import InvalidInput
from fqfuse.models.digits import digits_model_path
from fqfuse.plan.file import plan_bytes

PATH = str(digits_model_path("qdq"))
IMAGES = np.random.default_rng(0).uniform(0, 1, (3, 1, 8, 8)).astype(np.float32)


@pytest.fixture(scope="module")
def data() -> bytes:
    """The model with everything that its file may say about it."""
    model = onnx.load(PATH)
    model.domain, model.doc_string, model.model_version = "some.domain", "what it is", 7
    model.graph.doc_string = "what the graph is"
    onnx.helper.set_model_props(model, {"names": "{0: 'zero'}", "stride": "32"})
    return model.SerializeToString()


def program(module: ModuleType, data: bytes) -> dict[str, object]:
    """As it stands in many a repository."""
    options = module.SessionOptions()
    options.intra_op_num_threads = 1
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.graph_optimization_level = module.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.execution_mode = module.ExecutionMode.ORT_SEQUENTIAL
    options.execution_order = module.ExecutionOrder.PRIORITY_BASED
    module.set_default_logger_severity(3)
    module.set_default_logger_verbosity(0)
    module.set_seed(0)
    assert "CPUExecutionProvider" in module.get_available_providers()
    assert "CPUExecutionProvider" in module.get_all_providers()
    session = module.InferenceSession(
        data,
        options,
        providers=["CPUExecutionProvider"],
        disabled_optimizers=["ConstantFolding"],
        enable_fallback=0,
    )
    run = module.RunOptions()
    run.log_severity_level = 3
    run.only_execute_path_to_fetches = True
    run.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    given, result = session.get_inputs()[0], session.get_outputs()[0]
    meta = session.get_modelmeta()
    (logits,) = session.run([result.name], {given.name: IMAGES}, run)
    return {
        "device": module.get_device(),
        "run": run.get_run_config_entry("memory.enable_memory_arena_shrinkage"),
        "inputs": [(one.name, one.shape, one.type) for one in session.get_inputs()],
        "outputs": [(one.name, one.shape, one.type) for one in session.get_outputs()],
        "meta": [
            (name, getattr(meta, name))
            for name in ("producer_name", "graph_name", "domain", "description")
        ],
        "graph": (meta.graph_description, meta.version, meta.custom_metadata_map),
        "providers": session.get_providers(),
        "entry": options.get_session_config_entry("session.intra_op.allow_spinning"),
        "logits": (type(logits), logits.shape, logits.dtype),
        "digits": logits.argmax(axis=1).tolist(),
    }


def test_the_same_program_says_the_same(data: bytes) -> None:
    assert program(fqfuse, data) == program(onnxruntime, data)


@pytest.mark.parametrize("maker", [fqfuse.SessionOptions, onnxruntime.SessionOptions])
def test_threads_come_from_options(maker: type) -> None:
    options = maker()
    automatic = fqfuse.InferenceSession(PATH).threads
    assert fqfuse.InferenceSession(PATH, sess_options=options).threads == automatic
    options.intra_op_num_threads = 3
    assert fqfuse.InferenceSession(PATH, options).threads == 3
    assert fqfuse.InferenceSession(PATH, sess_options=options).threads == 3
    assert fqfuse.InferenceSession(PATH, sess_options=options, threads=2).threads == 2
    assert fqfuse.InferenceSession(PATH, options, ["CPUExecutionProvider"]).threads == 3


def test_our_own_places_stay() -> None:
    session = fqfuse.InferenceSession(PATH, "numpy", 2)
    assert (session.backend, session.threads) == ("numpy", 2)


@pytest.mark.parametrize(
    "arguments",
    [
        {"providers": ["CPUExecutionProvider"]},
        {"providers": [("CPUExecutionProvider", {"arena_extend_strategy": "kNextPowerOfTwo"})]},
        {"providers": ["CPUExecutionProvider"], "provider_options": [{}]},
        {"providers": []},
        {"path_or_bytes": PATH, "model": None},
        {"sess_options": None, "providers": None, "provider_options": None},
    ],
)
def test_what_is_taken_without_a_word(arguments: dict) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session = fqfuse.InferenceSession(**{"model": PATH, **arguments})
    assert session.get_providers() == ["CPUExecutionProvider"]


@pytest.mark.parametrize(
    "providers",
    [
        ["CUDAExecutionProvider"],
        [("CUDAExecutionProvider", {"device_id": 0}), "CPUExecutionProvider"],
    ],
)
def test_other_providers_are_told(providers: list) -> None:
    with pytest.warns(UserWarning, match="no CUDAExecutionProvider here: .* on the CPU") as told:
        fqfuse.InferenceSession(PATH, providers=providers)
    assert told[0].filename == __file__


def test_options_that_do_nothing_are_told() -> None:
    options = fqfuse.SessionOptions()
    options.enable_profiling = True
    with pytest.warns(UserWarning, match=r"session\.profile"):
        fqfuse.InferenceSession(PATH, options)
    with pytest.warns(UserWarning, match="save_plan"):
        fqfuse.InferenceSession(
            PATH, SimpleNamespace(intra_op_num_threads=0, optimized_model_filepath="x.onnx")
        )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"providers": "CPUExecutionProvider"}, "providers are no list"),
        ({"providers": ["cpu"]}, "'cpu' is no execution provider"),
        ({"providers": [7]}, "7 is no execution provider"),
        ({"providers": [()]}, "is no execution provider"),
        ({"provider_options": "fast"}, "no list"),
        ({"sess_options": {"threads": 2}}, "a dict is no options of a session"),
        ({"backend": 7}, "a int is no options of a session"),
        ({"backend": fqfuse.SessionOptions(), "sess_options": fqfuse.SessionOptions()}, "twice"),
        ({"threads": ["CPUExecutionProvider"], "providers": []}, "twice"),
        ({"path_or_bytes": PATH}, "twice"),
        ({"model": None}, "cannot be read from a NoneType"),
    ],
)
def test_what_is_refused(arguments: dict, says: str) -> None:
    with pytest.raises(InvalidInput, match=says):
        fqfuse.InferenceSession(**{"model": PATH, **arguments})


def test_runs_take_the_other_names() -> None:
    session = fqfuse.InferenceSession(PATH, "numpy")
    feeds = {"image": IMAGES}
    expected = session.run(None, feeds)
    for found in (
        session.run(None, feeds, None),
        session.run(None, feeds, run_options=onnxruntime.RunOptions()),
        session.run(output_names=None, input_feed=feeds),
    ):
        np.testing.assert_array_equal(found[0], expected[0])
    with pytest.raises(InvalidInput, match="the feeds are of type NoneType"):
        session.run(None)


def test_a_plan_knows_the_name_of_its_graph() -> None:
    meta = fqfuse.InferenceSession(fqfuse.compile(PATH)).get_modelmeta()
    assert meta.graph_name == onnx.load(PATH).graph.name
    assert (meta.producer_name, meta.custom_metadata_map) == ("", {})


def test_what_the_file_says_survives_a_pickle(data: bytes) -> None:
    session = fqfuse.InferenceSession(data, "numpy")
    again = pickle.loads(pickle.dumps(session))  # noqa: S301  (our own)
    assert again.get_modelmeta() == session.get_modelmeta()
    state = session.__getstate__()
    for wrong in (
        {},
        {**state["meta"], "version": "7"},
        {**state["meta"], "custom_metadata_map": {1: 2}},
    ):
        with pytest.raises(InvalidInput, match="not the state of a session"):
            again.__setstate__({**state, "meta": wrong})


@pytest.mark.parametrize("backend", ["numpy", "auto"])
def test_with_closes(backend: str) -> None:
    with fqfuse.InferenceSession(PATH, backend) as session:
        session.run(None, {"image": IMAGES})
        plan = weakref.ref(session.plan)
    gc.collect()
    assert plan() is None, "the memory is held"
    for use in (
        lambda: session.run(None, {"image": IMAGES}),
        lambda: session.run_steps({"image": IMAGES}),
        lambda: session.profile({"image": IMAGES}),
        session.get_inputs,
        session.get_outputs,
        session.get_modelmeta,
        session.placement,
        lambda: session.plan,
        lambda: session.backend,
        lambda: session.threads,
        lambda: pickle.dumps(session),
        session.__enter__,
    ):
        with pytest.raises(InvalidInput, match="the session is closed"):
            use()
    session.close()
    assert not hasattr(session, "misspelt")


def test_an_error_inside_goes_through() -> None:
    with pytest.raises(ZeroDivisionError), fqfuse.InferenceSession(PATH, "numpy"):
        _ = 1 / 0


def test_names_that_are_not_there() -> None:
    session = fqfuse.InferenceSession(PATH, "numpy")
    with pytest.raises(
        AttributeError, match="'InferenceSession' object has no attribute 'io_bindings'"
    ):
        _ = session.io_bindings


ANSWERS = {
    "get_inputs": (),
    "get_outputs": (),
    "get_modelmeta": (),
    "get_providers": (),
    "get_provider_options": (),
    "get_overridable_initializers": (),
    "set_providers": (["CPUExecutionProvider"],),
    "enable_fallback": (),
    "disable_fallback": (),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_methods_of_its_session_answer_in_its_types(name: str) -> None:
    ours, theirs = (
        getattr(module.InferenceSession(PATH), name)(*ANSWERS[name])
        for module in (fqfuse, onnxruntime)
    )
    assert type(ours) is type(theirs) or name == "get_modelmeta"


def test_its_options_and_providers() -> None:
    session, peer = fqfuse.InferenceSession(PATH, "numpy", 2), onnxruntime.InferenceSession(PATH)
    assert session.get_provider_options() == peer.get_provider_options()
    assert session.get_overridable_initializers() == peer.get_overridable_initializers()
    assert fqfuse.InferenceSession(PATH, session.get_session_options()).threads == 2
    with pytest.warns(UserWarning, match="no CUDAExecutionProvider here") as told:
        session.set_providers(["CUDAExecutionProvider"])
    assert told[0].filename == __file__
    with pytest.raises(InvalidInput, match="no execution provider"):
        session.set_providers(["cpu"])
    session.close()
    with pytest.raises(InvalidInput, match="the session is closed"):
        session.get_provider_options()


@pytest.mark.parametrize("buffer", [bytes, bytearray, memoryview])
@pytest.mark.parametrize("kind", ["model", "plan"])
def test_any_buffer_is_a_model(data: bytes, kind: str, buffer: type) -> None:
    given = buffer(data if kind == "model" else plan_bytes(fqfuse.compile(data)))
    expected = fqfuse.InferenceSession(PATH, "numpy").run(None, {"image": IMAGES})
    found = fqfuse.InferenceSession(given, "numpy").run(None, {"image": IMAGES})
    np.testing.assert_array_equal(found[0], expected[0])


def test_it_prints_in_one_line_open_and_closed() -> None:
    session = fqfuse.InferenceSession(PATH, "numpy", 2)
    assert repr(session) == "<InferenceSession 'digits_qdq' on numpy, 2 threads, 12 steps>"
    session.close()
    assert repr(session) == "<InferenceSession 'digits_qdq', closed>"


def test_sizes_of_one_name_are_compared_where_the_model_compares_them(tmp_path: Path) -> None:
    """What the name promises is folded: fed unlike, the model is compiled again."""
    model = onnx.parser.parse_model("""
        <ir_version: 8, opset_import: ["" : 17]>
        net (float[N] x, float[N] y) => (float[N] z, bool same)
        { a = Shape(x)  b = Shape(y)  equal = Equal(a, b)  same = Squeeze(equal)  z = Add(x, y) }
    """)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    one, two, three = (np.ones(size, np.float32) for size in (1, 2, 3))
    for given in (path, model, model.SerializeToString()):
        session = fqfuse.InferenceSession(given, "numpy")
        assert session.run(None, {"x": two, "y": two})[1]
        with pytest.warns(UserWarning, match="N is 1 in one input and 3 in another") as told:
            z, same = session.run(None, {"x": one, "y": three})
        assert (z.tolist(), bool(same), told[0].filename) == ([2, 2, 2], False, __file__)
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # it is said once
            assert session.run(["z"], {"x": three, "y": one})[0].shape == (3,)
            session.prepare({"x": [2], "y": [1]})
            assert session.run_steps({"x": two, "y": one})["z"].shape == (2,)
            assert session.profile({"x": two, "y": one}, runs=1).as_dict()
            assert session.run(None, {"x": two, "y": two})[1]
        with pytest.raises(InvalidInput, match="Add cannot take these shapes"):
            session.run(None, {"x": two, "y": three})
        with pytest.raises(InvalidInput, match="N is 1 in one input and 3 in another"):
            pickle.loads(pickle.dumps(session)).run(None, {"x": one, "y": three})  # noqa: S301
    session = fqfuse.InferenceSession(path)
    model.graph.node[-1].op_type = "Sub"
    onnx.save(model, path)
    with pytest.raises(InvalidInput, match="the model has changed"):
        session.run(None, {"x": one, "y": three})


def test_shapes_are_described_in_the_words_of_the_file() -> None:
    helper = onnx.helper
    x = helper.make_tensor_value_info("x", 1, ["?", "a b", "", None, -1, "N", 2])
    outputs = {"y": None, "z": ["q", 7, None, "N", 3, "?", 2], "w": [None, "U"], "x": x}
    infos = [helper.make_tensor_value_info(n, 1, s) if n != "x" else x for n, s in outputs.items()]
    nodes = [
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("Sigmoid", ["x"], ["z"]),
        helper.make_node("Flatten", ["x"], ["w"], axis=2),
    ]
    graph = helper.make_graph(nodes, "words", [x], infos)
    opset = helper.make_opsetid("", 17)
    data = helper.make_model(graph, opset_imports=[opset], ir_version=8).SerializeToString()

    def words(session: object) -> list[tuple[str, object, str]]:
        found = (*session.get_inputs(), *session.get_outputs())
        return [(one.name, one.shape, one.type) for one in found]

    session, plan = fqfuse.InferenceSession(data, "numpy"), fqfuse.compile(data)
    expected = words(onnxruntime.InferenceSession(data))
    assert words(session) == expected
    assert words(fqfuse.InferenceSession(plan_bytes(plan), "numpy")) == expected
    assert words(pickle.loads(pickle.dumps(session))) == expected  # noqa: S301  (our own)


@pytest.mark.parametrize("name", ["GraphOptimizationLevel", "ExecutionMode", "ExecutionOrder"])
def test_members_have_the_same_names_and_values(name: str) -> None:
    theirs = getattr(onnxruntime, name).__members__
    assert {member.name: member.value for member in getattr(fqfuse, name)} == {
        member: int(value) for member, value in theirs.items()
    }
