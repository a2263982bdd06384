"""A thin ctypes binding of oneDNN's C API (3.2 <= version < 4), which knows nothing of plans.
Importing it loads no library; `load` does.

In: shapes, layouts, attributes and NumPy arrays. Out: compiled primitives, and calls without
arguments that write into those arrays.

- `discovery.py`, `openmp.py`: where a libdnnl may be, and how the threads under it wait
- `capi.py`, `enums.py`: its functions, one row each, its constants, and the errors of failed calls
- `loading.py`: a path -> a `Library`, its version checked
- `library.py`: `Library`, `Engine`, `Stream`, and `Handle`, which frees what the library made
- `strides.py`, `memory.py`, `layouts.py`: shape, type and layout -> `MemoryDesc`; with an array ->
  `Memory`
- `attributes.py`: scales, zero points and post-ops -> `Attributes`
- `primitive_desc.py`: descriptors, parameters and attributes -> `PrimitiveDesc`, bound to one
  implementation
- `saturation.py`, `defects/`: whether that implementation computes exactly; what oneDNN is known
  to compute wrongly
- `packing.py`: an array -> a memory in a layout that the library chose
- `primitive_cache.py`, `gemm.py`: its cache of primitives; products of matrices that are functions
- `code_generation.py`, `primitive.py`: compiled -> `Primitive`; with memories -> `ExecArgs`, and
  one C call
- `workers.py`, `slabs.py`: threads and buffers that runs need beside the library
- `native/`, `native.py`, `kernels.py`: our functions in C, an optional extension module -> the ones for
  this CPU -> `Kernels`, and calls of them
- `call_loop.py`: one C call after the other -> one call of them all
- `average_kernel.py`, `lookup_kernel.py`, `range_kernel.py`, `block_kernels.py`, `coded_kernels.py`,
  `recurrent_kernel.py`, `lstm_kernel.py`: what each of these computes, and of what

    library = load()                                        # or load("/path/of/libdnnl.so.3")
    library.set_threads(2)                                  # OpenMP threads of the calling thread
    engine = Engine(library)
    stream = Stream(engine)
    desc = describe(engine, "convolution", src_md, weights_md, bias_md, dst_md, strides=..., attributes=Attributes(...), origin="Conv_3")
    primitive = Primitive(desc)
    args = ExecArgs(desc, {Arg.SRC: Memory.wrap(engine, x), ...})  # once
    primitive.execute(stream, args)                          # one C call

Handles free themselves. Several threads may execute one primitive, each with its own `ExecArgs`,
outputs and scratchpad.
"""
