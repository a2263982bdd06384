"""Runs single primitives on oneDNN 2.6: the oracle of the target `onednn-v2`, in a process of its
own.

It needs NumPy and the wheel onednn-cpu-gomp 2022.2.1 in the environment of its interpreter, nothing
else; `legacy.py` starts it and talks to it over pipes. A message is its length in bytes as an
unsigned 64-bit little-endian integer, then an .npz: `json` (the text of a dictionary, as u8) and
the arrays. The first message from here is `{"version": ...}` or `{"missing": ...}`. A request is
answered by `{"status": 0, "implementation": ...}` and the array `dst`, or by the status of the call
that refused and its name.

The C API is that of oneDNN 2.x: operation descriptors are filled by dnnl_*_desc_init, memory
descriptors are structs of 696 bytes.
"""

from __future__ import annotations

import ctypes
import io
import json
import struct
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

DATA_TYPES = {"f32": 3, "s32": 4, "s8": 5, "u8": 6}
NUMPY_TYPES = {"f32": np.float32, "s32": np.int32, "s8": np.int8, "u8": np.uint8}
CODES = {np.dtype(array_type): DATA_TYPES[name] for name, array_type in NUMPY_TYPES.items()}
ALGORITHMS = {
    "convolution_direct": 0x1,
    "deconvolution_direct": 0xA,
    "eltwise_relu": 0x1F,
    "eltwise_tanh": 0x2F,
    "eltwise_elu": 0x3F,
    "eltwise_square": 0x4F,
    "eltwise_abs": 0x5F,
    "eltwise_sqrt": 0x6F,
    "eltwise_linear": 0x7F,
    "eltwise_soft_relu": 0x9F,
    "eltwise_logistic": 0xAF,
    "eltwise_exp": 0xBF,
    "eltwise_gelu_tanh": 0xCF,
    "eltwise_swish": 0xDF,
    "eltwise_log": 0xEF,
    "eltwise_clip": 0xFF,
    "eltwise_clip_v2": 0x10,
    "eltwise_pow": 0x20,
    "eltwise_gelu_erf": 0x30,
    "eltwise_round": 0x40,
    "eltwise_mish": 0x60,
    "eltwise_hardswish": 0x70,
    "pooling_max": 0x1FF,
    "pooling_avg_include_padding": 0x2FF,
    "pooling_avg_exclude_padding": 0x3FF,
    "binary_add": 0x1FFF0,
    "binary_mul": 0x1FFF1,
    "binary_max": 0x1FFF2,
    "binary_min": 0x1FFF3,
    "binary_div": 0x1FFF4,
    "binary_sub": 0x1FFF5,
    "binary_ge": 0x1FFF6,
    "binary_gt": 0x1FFF7,
    "binary_le": 0x1FFF8,
    "binary_lt": 0x1FFF9,
    "binary_eq": 0x1FFFA,
    "binary_ne": 0x1FFFB,
    "resampling_nearest": 0x2FFF0,
    "resampling_linear": 0x2FFF1,
    "reduction_max": 0x2FFF2,
    "reduction_min": 0x2FFF3,
    "reduction_sum": 0x2FFF4,
    "reduction_mean": 0x2FFF6,
    "softmax_accurate": 0x30000,
    "softmax_log": 0x30001,
}
SRC, SRC_1, DST, WEIGHTS, BIAS, MULTIPLE_SRC, ZERO_POINTS, POST_OP = (
    1,
    2,
    17,
    33,
    41,
    1024,
    4096,
    16384,
)
RUNTIME_S32 = -(2**31)
ARGUMENTS = {"src": SRC, "src_0": SRC, "src_1": SRC_1, "weights": WEIGHTS, "bias": BIAS, "dst": DST}
FORWARD_INFERENCE, CPU, IN_ORDER, TAG_ANY = 96, 1, 1, 1
IMPLEMENTATION, ARGUMENT_DESC = 8, 255  # queries
ALIGNMENT = 64


class MemoryDesc(ctypes.Structure):
    """dnnl_memory_desc_t, filled by the library only."""

    _fields_ = (("opaque", ctypes.c_uint64 * 87),)


class OperationDesc(ctypes.Structure):
    """Room for the descriptor of any operation; the largest of those used here (convolution) takes
    about 6 kB.
    """

    _fields_ = (("opaque", ctypes.c_uint64 * 1024),)


class ExecArgument(ctypes.Structure):
    """dnnl_exec_arg_t."""

    _fields_ = (("arg", ctypes.c_int), ("memory", ctypes.c_void_p))


class Refused(Exception):
    """A call of the library returned this status."""

    def __init__(self, call: str, status: int) -> None:
        super().__init__(f"{call}: status {status}")
        self.call, self.status = call, status


def longs(values: Any) -> Any:
    """A dnnl_dims_t prefix."""
    return (ctypes.c_int64 * len(values))(*map(int, values))


class Library:
    """libdnnl.so.2 with one engine and one stream."""

    def __init__(self, path: str) -> None:
        self.dll = ctypes.CDLL(path)
        self.dll.dnnl_version.restype = ctypes.POINTER(ctypes.c_int)
        self.dll.dnnl_primitive_desc_query_md.restype = ctypes.POINTER(MemoryDesc)
        self.dll.dnnl_memory_desc_get_size.restype = ctypes.c_size_t
        self.version = tuple(self.dll.dnnl_version()[:3])
        self.engine, self.stream = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("engine_create", ctypes.byref(self.engine), CPU, ctypes.c_size_t(0))
        self.call("stream_create", ctypes.byref(self.stream), self.engine, IN_ORDER)

    def call(self, name: str, *arguments: Any) -> None:
        """dnnl_<name>(*arguments); raises Refused unless it returns 0."""
        status = getattr(self.dll, f"dnnl_{name}")(*arguments)
        if status:
            raise Refused(name, status)

    def plain(self, array: np.ndarray, order: str = "plain") -> MemoryDesc:
        """A descriptor of the array's shape and type: row-major, or with channels last."""
        shape = array.shape
        axes = (
            (0, *range(2, len(shape)), 1)
            if order == "last" and len(shape) > 2
            else tuple(range(len(shape)))
        )
        strides, step = [0] * len(shape), 1
        for axis in reversed(axes):
            strides[axis] = step
            step *= shape[axis]
        desc = MemoryDesc()
        self.call(
            "memory_desc_init_by_strides",
            ctypes.byref(desc),
            len(shape),
            longs(shape),
            CODES[array.dtype],
            longs(strides),
        )
        return desc

    def any(self, array: np.ndarray) -> MemoryDesc:
        """A descriptor that leaves the layout to the primitive."""
        desc = MemoryDesc()
        self.call(
            "memory_desc_init_by_tag",
            ctypes.byref(desc),
            array.ndim,
            longs(array.shape),
            CODES[array.dtype],
            TAG_ANY,
        )
        return desc


class Request:
    """One primitive: its descriptor, its memories, its run."""

    def __init__(
        self,
        library: Library,
        case: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray],
        stack: ExitStack,
    ) -> None:
        self.library, self.case, self.arrays, self.stack = library, case, arrays, stack
        self.dst = np.zeros(case["shape"], NUMPY_TYPES[case["dst"]])
        self.buffers: list[np.ndarray] = []
        self.zero_points: dict[int, np.ndarray] = {}

    def call(self, name: str, *arguments: Any) -> None:
        self.library.call(name, *arguments)

    def owned(self, kind: str) -> ctypes.c_void_p:
        """A handle that is destroyed with the request."""
        handle = ctypes.c_void_p()
        destroy = getattr(self.library.dll, f"dnnl_{kind}_destroy")
        self.stack.callback(lambda: destroy(handle) if handle else None)
        return handle

    # -- memories ----------------------------------------------------------------------------------

    def desc(self, role: str, array: np.ndarray) -> MemoryDesc:
        """What the primitive is offered for an argument."""
        layout = self.case.get("layouts", {}).get(role, "any")
        return self.library.any(array) if layout == "any" else self.library.plain(array, layout)

    def memory(
        self, desc: MemoryDesc, array: np.ndarray | None = None
    ) -> tuple[ctypes.c_void_p, np.ndarray]:
        """A memory with a buffer, filled from a row-major array."""
        size = self.library.dll.dnnl_memory_desc_get_size(ctypes.byref(desc))
        buffer = np.zeros(size + ALIGNMENT, np.uint8)
        buffer = buffer[-buffer.ctypes.data % ALIGNMENT :][:size]
        self.buffers.append(buffer)
        memory = self.owned("memory")
        self.call(
            "memory_create",
            ctypes.byref(memory),
            ctypes.byref(desc),
            self.library.engine,
            ctypes.c_void_p(buffer.ctypes.data),
        )
        if array is not None:
            given = self.library.plain(array)
            if self.library.dll.dnnl_memory_desc_equal(ctypes.byref(desc), ctypes.byref(given)):
                buffer[:] = np.ascontiguousarray(array).view(np.uint8).reshape(-1)
            else:
                self.copy(*self.memory(given, array)[:1], given, memory, desc)
        return memory, buffer

    def copy(
        self, source: Any, source_desc: MemoryDesc, target: Any, target_desc: MemoryDesc
    ) -> None:
        """A reorder without attributes."""
        desc, engine = self.owned("primitive_desc"), self.library.engine
        pair = ctypes.byref(source_desc), engine, ctypes.byref(target_desc), engine
        self.call("reorder_primitive_desc_create", ctypes.byref(desc), *pair, None)
        self.execute(desc, {SRC: source, DST: target})

    def execute(self, desc: ctypes.c_void_p, memories: Mapping[int, ctypes.c_void_p]) -> None:
        """Makes the primitive of a descriptor and runs it."""
        primitive = self.owned("primitive")
        self.call("primitive_create", ctypes.byref(primitive), desc)
        arguments = (ExecArgument * len(memories))(
            *(ExecArgument(arg, memory) for arg, memory in memories.items())
        )
        self.call("primitive_execute", primitive, self.library.stream, len(memories), arguments)
        self.call("stream_wait", self.library.stream)

    # -- attributes --------------------------------------------------------------------------------

    def attributes(self) -> ctypes.c_void_p:
        """Output scales, scales, zero points and post-ops."""
        attr, given = self.owned("primitive_attr"), self.case["attr"]
        self.call("primitive_attr_create", ctypes.byref(attr))
        if given["output_scales"]:
            mask, values = given["output_scales"]
            self.call(
                "primitive_attr_set_output_scales",
                attr,
                ctypes.c_int64(len(values)),
                mask,
                (ctypes.c_float * len(values))(*values),
            )
        for role, (mask, values) in given["scales"].items():
            count, floats = ctypes.c_int64(len(values)), (ctypes.c_float * len(values))(*values)
            self.call("primitive_attr_set_scales", attr, ARGUMENTS[role], count, mask, floats)
        for role, (mask, values) in given["zero_points"].items():
            # Several zero points can only be given at run time; a placeholder says so here.
            if len(values) > 1 or role in given["run_time"]:
                self.zero_points[ZERO_POINTS | ARGUMENTS[role]] = np.array(values, np.int32)
            placed = ZERO_POINTS | ARGUMENTS[role] in self.zero_points
            ints = (ctypes.c_int32 * 1)(RUNTIME_S32 if placed else values[0])
            self.call(
                "primitive_attr_set_zero_points",
                attr,
                ARGUMENTS[role],
                ctypes.c_int64(1),
                mask,
                ints,
            )
        post_ops = self.owned("post_ops")
        self.call("post_ops_create", ctypes.byref(post_ops))
        for index, post_op in enumerate(given["post_ops"]):
            self.append(post_ops, index, *post_op)
        self.call("primitive_attr_set_post_ops", attr, post_ops)
        return attr

    def append(self, post_ops: ctypes.c_void_p, index: int, kind: str, *given: Any) -> None:
        """One post-op."""
        if kind == "eltwise":
            algorithm, alpha, beta, scale = given
            floats = map(ctypes.c_float, (alpha, beta))
            self.call(
                "post_ops_append_eltwise",
                post_ops,
                ctypes.c_float(scale),
                ALGORITHMS["eltwise_" + algorithm],
                *floats,
            )
        elif kind == "sum":
            scale, zero_point, dtype = given
            self.call(
                "post_ops_append_sum_v3",
                post_ops,
                ctypes.c_float(scale),
                zero_point,
                DATA_TYPES.get(dtype, 0),
            )
        elif kind == "binary":
            desc = self.library.plain(
                self.arrays[f"post_op{index}"], self.case["layouts"]["operand"]
            )
            self.call(
                "post_ops_append_binary",
                post_ops,
                ALGORITHMS["binary_" + given[0]],
                ctypes.byref(desc),
            )
        else:
            self.call("post_ops_append_prelu", post_ops, given[0])

    # -- the primitive -----------------------------------------------------------------------------

    def roles(self) -> Iterator[tuple[int, str, np.ndarray]]:
        """The primitive's own sources: argument, role, array."""
        for role, array in self.arrays.items():
            if role in ARGUMENTS:
                yield ARGUMENTS[role], role, array
            elif role.startswith("concat"):
                yield MULTIPLE_SRC + int(role.removeprefix("concat")), role, array

    def primitive_desc(self, attr: ctypes.c_void_p) -> ctypes.c_void_p:
        """The descriptor of the primitive."""
        given = {role: self.desc(role, array) for _, role, array in self.roles()}
        dst, kind, engine = self.desc("dst", self.dst), self.case["primitive"], self.library.engine
        found = self.owned("primitive_desc")
        if kind == "reorder":
            pair = ctypes.byref(given["src"]), engine, ctypes.byref(dst), engine
            self.call("reorder_primitive_desc_create", ctypes.byref(found), *pair, attr)
            return found
        if kind == "concat":
            sources = len(given), self.case["axis"], (MemoryDesc * len(given))(*given.values())
            self.call(
                "concat_primitive_desc_create",
                ctypes.byref(found),
                ctypes.byref(dst),
                *sources,
                attr,
                engine,
            )
            return found
        operation = OperationDesc()
        name, arguments = getattr(self, "_" + kind)(
            {role: ctypes.byref(desc) for role, desc in (given | {"dst": dst}).items()}
        )
        self.call(f"{name}_desc_init", ctypes.byref(operation), *arguments)
        self.call(
            "primitive_desc_create",
            ctypes.byref(found),
            ctypes.byref(operation),
            attr,
            engine,
            None,
        )
        return found

    def algorithm(self) -> int:
        return ALGORITHMS[self.case["algorithm"]]

    def window(self, *names: str) -> list[Any]:
        return [longs(self.case[name]) for name in names]

    def _convolution(self, descs: Mapping[str, Any]) -> tuple[str, list[Any]]:
        four = descs["src"], descs["weights"], descs.get("bias"), descs["dst"]
        name = self.case["algorithm"].removesuffix("_direct")
        window = self.window("strides", "dilations", "padding_l", "padding_r")
        return f"dilated_{name}_forward", [FORWARD_INFERENCE, self.algorithm(), *four, *window]

    def _inner_product(self, descs: Mapping[str, Any]) -> tuple[str, list[Any]]:
        four = descs["src"], descs["weights"], descs.get("bias"), descs["dst"]
        return "inner_product_forward", [FORWARD_INFERENCE, *four]

    def _matmul(self, descs: Mapping[str, Any]) -> tuple[str, list[Any]]:
        return "matmul", [descs["src"], descs["weights"], descs.get("bias"), descs["dst"]]

    def _pooling(self, descs: Mapping[str, Any]) -> tuple[str, list[Any]]:
        window = self.window("strides", "kernel", "dilations", "padding_l", "padding_r")
        return "pooling_v2_forward", [
            FORWARD_INFERENCE,
            self.algorithm(),
            descs["src"],
            descs["dst"],
            *window,
        ]

    def _binary(self, descs: Mapping[str, Any]) -> tuple[str, list[Any]]:
        return "binary", [self.algorithm(), descs["src_0"], descs["src_1"], descs["dst"]]

    def _eltwise(self, descs: Mapping[str, Any]) -> tuple[str, list[Any]]:
        floats = ctypes.c_float(self.case["alpha"]), ctypes.c_float(self.case["beta"])
        return "eltwise_forward", [FORWARD_INFERENCE, self.algorithm(), descs["src"], *floats]

    def _softmax(self, descs: Mapping[str, Any]) -> tuple[str, list[Any]]:
        return "softmax_v2_forward", [
            FORWARD_INFERENCE,
            self.algorithm(),
            descs["src"],
            descs["dst"],
            self.case["axis"],
        ]

    def _resampling(self, descs: Mapping[str, Any]) -> tuple[str, list[Any]]:
        return "resampling_forward", [
            FORWARD_INFERENCE,
            self.algorithm(),
            None,
            descs["src"],
            descs["dst"],
        ]

    def _reduction(self, descs: Mapping[str, Any]) -> tuple[str, list[Any]]:
        return "reduction", [
            self.algorithm(),
            descs["src"],
            descs["dst"],
            ctypes.c_float(0),
            ctypes.c_float(0),
        ]

    def answer(self) -> tuple[dict[str, Any], np.ndarray]:
        """Runs the primitive."""
        desc = self.primitive_desc(self.attributes())
        dll, name = self.library.dll, ctypes.c_char_p()
        self.call("primitive_desc_query", desc, IMPLEMENTATION, 0, ctypes.byref(name))
        chosen = {}
        for arg in [*(arg for arg, _, _ in self.roles()), DST]:
            chosen[arg] = MemoryDesc.from_buffer_copy(
                dll.dnnl_primitive_desc_query_md(desc, ARGUMENT_DESC, arg).contents
            )
        memories = {arg: self.memory(chosen[arg], array)[0] for arg, _, array in self.roles()}
        memories[DST], _ = self.memory(chosen[DST], self.arrays.get("old"))
        for arg, values in self.zero_points.items():
            memories[arg], _ = self.memory(self.library.plain(values), values)
        for index, (kind, *_) in enumerate(self.case["attr"]["post_ops"]):
            if f"post_op{index}" in self.arrays:
                operand = self.arrays[f"post_op{index}"]
                lies = self.library.plain(operand, self.case["layouts"]["operand"])
                memories[POST_OP * (index + 1) | (SRC_1 if kind == "binary" else WEIGHTS)] = (
                    self.memory(lies, operand)[0]
                )
        self.execute(desc, memories)
        plain = self.library.plain(self.dst)
        result, buffer = self.memory(plain)
        self.copy(memories[DST], chosen[DST], result, plain)
        implementation = (name.value or b"").decode()
        return {"status": 0, "implementation": implementation}, buffer.view(self.dst.dtype).reshape(
            self.dst.shape
        )


def send(stream: BinaryIO, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Writes one message."""
    packed = io.BytesIO()
    np.savez(packed, json=np.frombuffer(json.dumps(header).encode(), np.uint8), **arrays)
    stream.write(struct.pack("<Q", packed.tell()) + packed.getvalue())
    stream.flush()


def receive(stream: BinaryIO) -> tuple[dict[str, Any], dict[str, np.ndarray]] | None:
    """Reads one message; None at the end of the stream."""
    head = stream.read(8)
    if len(head) < 8:
        return None
    (size,) = struct.unpack("<Q", head)
    with np.load(io.BytesIO(stream.read(size)), allow_pickle=False) as arrays:
        found = {name: arrays[name] for name in arrays.files}
    return json.loads(found.pop("json").tobytes()), found


def serve(library: Library) -> None:
    """Answers requests until the other side hangs up."""
    while (message := receive(sys.stdin.buffer)) is not None:
        with ExitStack() as stack:
            try:
                header, dst = Request(library, *message, stack).answer()
                arrays = {"dst": dst}
            except Refused as refused:
                header, arrays = {"status": refused.status, "call": refused.call}, {}
            send(sys.stdout.buffer, header, arrays)


def main() -> None:
    """Loads the library of this interpreter's environment and serves."""
    path = Path(sys.prefix) / "lib" / "libdnnl.so.2"
    if not path.is_file():
        send(sys.stdout.buffer, {"missing": path.name}, {})
        return
    library = Library(str(path))
    isa = library.dll.dnnl_get_effective_cpu_isa()
    has_vnni = (isa & 0x67) == 0x67 or (isa & 0x407) == 0x407  # avx512_core_vnni, avx2_vnni
    has_amx = (isa & 0x3E7) == 0x3E7  # avx512_core_amx
    about = {"version": library.version, "isa": isa, "vnni": has_vnni, "amx": has_amx}
    send(sys.stdout.buffer, about, {})
    serve(library)


if __name__ == "__main__":
    main()
