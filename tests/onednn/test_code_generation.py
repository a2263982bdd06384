"""A primitive that the library half made never runs: it is refused, also when the cache holds it,
and its step runs on NumPy.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from laws.build import Net
from laws.registry import feeds_for
from support.versions import is_3_2

from fqfuse.composer.compose import plan_from_graph
from fqfuse.ir.types import DType, Quantization
from fqfuse.onednn.attributes import Attributes, Binary, Eltwise
from fqfuse.onednn.code_generation import generates, may_be_half_made
from fqfuse.onednn.enums import AlgKind, Arg, CpuIsa, DataType
from fqfuse.onednn.layouts import row_major
from fqfuse.onednn.library import Engine, Library
from fqfuse.onednn.memory import MemoryDesc
from fqfuse.onednn.primitive_desc import PrimitiveDesc, describe
from fqfuse.passes import optimize
from fqfuse.plan.attributes import Binary as PlanBinary
from fqfuse.plan.types import Plan
from fqfuse.runtime.session import InferenceSession


@pytest.fixture(autouse=True)
def _has_avx512(library: Library) -> None:
    if library.effective_isa() & CpuIsa.avx512_core != CpuIsa.avx512_core:
        pytest.skip("the failure is one of the AVX-512 code generator")


# Without a test behind it the deconvolution is "made", and running it jumps to address 0. In a
# process of its own: should the guard break, it is this test that fails, and not the worker that
# runs it.
HALF_MADE = """
from fqfuse.onednn.attributes import Attributes, Binary
from fqfuse.onednn.capi import OneDnnError
from fqfuse.onednn.enums import AlgKind, Arg, CpuIsa, DataType
from fqfuse.onednn.layouts import row_major
from fqfuse.onednn.library import Engine
from fqfuse.onednn.loading import load
from fqfuse.onednn.memory import MemoryDesc
from fqfuse.onednn.primitive import Primitive
from fqfuse.onednn.primitive_desc import describe

engine = Engine(load())


def any_layout(dtype, *dims):
    return MemoryDesc.any(engine.library, dims, dtype)


def compared():
    threshold = row_major(engine.library, (1, 3, 1, 1), DataType.f32)
    attributes = Attributes({Arg.SRC: 0, Arg.WEIGHTS: 0}, {}, (Binary(AlgKind.binary_ge, threshold),))
    operands = (any_layout(DataType.s8, 2, 4, 4, 4), any_layout(DataType.s8, 3, 4, 2, 2), None, any_layout(DataType.u8, 2, 3, 8, 8))
    window = {"strides": (2, 2), "dilations": (0, 0), "padding_l": (0, 0), "padding_r": (0, 0)}
    return describe(engine, "deconvolution", *operands, **window, attributes=attributes)


print(compared().impl_info)
for _ in range(3):
    try:
        Primitive(compared())
        print("made")
    except OneDnnError as error:
        print("refused" if "runtime_error" in str(error) else error)
shape = row_major(engine.library, (77,), DataType.f32)
Primitive(describe(engine, "eltwise", shape, shape, alg=AlgKind.eltwise_relu))
print("others are made")
"""


@pytest.mark.of_vnni("the implementation that hides its failure is one for VNNI")
def test_a_half_made_primitive_is_refused_each_time() -> None:
    done = subprocess.run(
        [sys.executable, "-c", HALF_MADE], check=False, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    implementation, *rest = done.stdout.splitlines()
    if is_3_2():
        assert "brgconv_strided" in implementation, "the implementation that hides its failure"
        assert rest == ["refused", "refused", "refused", "others are made"]
    else:  # later versions make it
        assert rest in (["refused"] * 3 + ["others are made"], ["made"] * 3 + ["others are made"])


# gemm generates its kernels when it first runs, once for the process, in the thread that runs it.
FAILING = """
from fqfuse.ir.types import DType
from fqfuse.primitives import Binary, Eltwise, PrimitiveAttr, Sum, prim

chain = (Sum("old", 0.25, 0, DType.S32), Binary("lt", "operand"), Eltwise("relu", 0.5))
tensors = {"src": "s8[2,4,1,3]", "weights": "s8[4,2,1,3,1]", "dst": "s32[2,8,2,3]", "operand": "f32[1,8,1,1]"}
window = {"strides": (2, 1), "padding_l": (1, 0)}
prim("deconvolution", PrimitiveAttr(post_ops=chain), engine="onednn", **tensors, **window)
"""
PRODUCT = """
import numpy as np
from fqfuse.primitives import sgemm

a = np.arange(2400, dtype=np.float32).reshape(40, 60) % 7
print(np.array_equal(sgemm(a, a.T, engine="onednn"), a @ a.T))
"""


@pytest.mark.parametrize("in_the_thread", [False, True])
def test_gemm_behind_a_failure_is_right_or_refused(in_the_thread: bool) -> None:
    """A primitive that a user makes fails in a thread of its own, and gemm is right in the user's. In
    the one where it failed (nobody runs anything there) the library refuses gemm, to all later callers.
    """
    script = (HALF_MADE if in_the_thread else FAILING) + PRODUCT
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=120)
    if in_the_thread and done.returncode:
        assert "oneDNN: sgemm" in done.stderr
    else:
        assert done.stdout.split()[-1] == "True", done.stderr


def two_deconvolutions() -> tuple[Plan, dict[str, np.ndarray]]:
    """The first one compares with 3 channels of a constant; the second one is like it otherwise,
    and nothing is wrong with it.
    """
    n = Net()
    for name in ("first", "second"):
        x = n.dq(n.input((2, 4, 4, 4), dtype=DType.S8, quant=Quantization.of(2**-5)))
        y = n.op(
            "ConvTranspose",
            x,
            n.weights((4, 3, 2, 2), 2**-7, 1),
            kernel_shape=(2, 2),
            strides=(2, 2),
        )
        n.q(n.op("Max", y, np.asarray([0.5, -0.25, 1.0]).reshape(1, 3, 1, 1)), 2**-4, name=name)
    graph = n.done("first_y", "second_y")
    plan = plan_from_graph(optimize(graph.copy()))
    assert [step.primitive for step in plan.steps] == ["deconvolution"] * 2
    first = plan.steps[0]
    post_ops = tuple(
        replace(op, algorithm="ge") if isinstance(op, PlanBinary) else op
        for op in first.attr.post_ops
    )
    assert post_ops != first.attr.post_ops
    steps = (replace(first, attr=replace(first.attr, post_ops=post_ops)), plan.steps[1])
    return replace(plan, steps=steps), feeds_for(graph)


def test_only_the_step_that_cannot_be_made_runs_on_numpy() -> None:
    plan, feeds = two_deconvolutions()
    wanted = InferenceSession(plan, "numpy", 1).run(None, feeds)
    for _ in range(2):  # the second session finds what the first one left in the library's cache
        session = InferenceSession(plan, "onednn", 1)
        for a, b in zip(wanted, session.run(None, feeds), strict=True):
            assert a.tobytes() == b.tobytes()
        first, second = (place.runtime for place in session.placement())
        assert second == "onednn"
        assert first == "numpy" or not is_3_2()  # later versions make it


def compute(engine: Engine, *post_ops: object) -> PrimitiveDesc:
    library = engine.library
    shapes = [
        ((2, 4, 4, 4), DataType.s8),
        ((16, 4, 2, 2), DataType.s8),
        ((2, 16, 8, 8), DataType.u8),
    ]
    src, weights, dst = (MemoryDesc.any(library, dims, dtype) for dims, dtype in shapes)
    window = {"strides": (2, 2), "dilations": (0, 0), "padding_l": (0, 0), "padding_r": (0, 0)}
    return describe(
        engine,
        "deconvolution",
        src,
        weights,
        None,
        dst,
        **window,
        attributes=Attributes({Arg.SRC: 0, Arg.WEIGHTS: 0}, {}, post_ops),
    )


def test_what_is_doubted(engine: Engine, library: Library) -> None:
    operand = row_major(library, (1, 16, 1, 1), DataType.f32)
    assert may_be_half_made(compute(engine, Binary(AlgKind.binary_mul, operand)))
    assert may_be_half_made(compute(engine, Eltwise(AlgKind.eltwise_relu)))
    assert not may_be_half_made(compute(engine))
    assert generates(engine)


def test_a_deconvolution_that_takes_its_post_ops_element_by_element_runs_in_f32() -> None:
    """`conv:any+x64:gemm_s8s8s32:jit` is not called a reference, and took 145 ms for what NumPy
    computes in 6: the product is one of f32, with its post-ops behind it.
    """
    n = Net()
    x = n.dq(n.input((1, 6, 4, 4), dtype=DType.S8, quant=Quantization.of(2**-6, 7)))
    y = n.op(
        "ConvTranspose",
        x,
        n.weights((6, 1, 3, 3), 2**-7),
        kernel_shape=(3, 3),
        strides=(2, 2),
        group=6,
    )
    graph = n.done(n.q(n.op("LeakyRelu", y, alpha=0.25), 2**-4, 3))
    plan, feeds = plan_from_graph(optimize(graph.copy())), feeds_for(graph)
    session = InferenceSession(plan, "onednn", 1)
    (found,) = session.run(None, feeds)
    (place,) = session.placement()
    assert place.runtime == "onednn"
    assert "gemm_s8" not in place.implementation
    assert found.tobytes() == InferenceSession(plan, "numpy", 1).run(None, feeds)[0].tobytes()


@pytest.mark.usefixtures("without_amx")  # its code cannot be generated, and NumPy takes the step
@pytest.mark.parametrize("channels", [3, 17])
@pytest.mark.parametrize("op", ["Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal"])
def test_a_comparison_of_channels_that_do_not_fill_a_vector_runs_on_onednn(
    op: str, channels: int
) -> None:
    n = Net()
    y = n.conv(
        n.dq(n.input((1, 4, 4, 4), dtype=DType.U8, quant=Quantization.of(2**-5))), channels, 1
    )
    truth = n.op("Cast", n.op(op, y, n.input((1, channels, 4, 4))), to=DType.F32)
    graph = n.done(n.q(truth, 2**-6, 3))
    plan, feeds = plan_from_graph(optimize(graph.copy())), feeds_for(graph)
    session = InferenceSession(plan, "onednn", 1)
    (found,) = session.run(None, feeds)
    assert [place.runtime for place in session.placement()] == ["onednn"]
    assert found.tobytes() == InferenceSession(plan, "numpy", 1).run(None, feeds)[0].tobytes()
