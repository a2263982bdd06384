"""A thin ctypes binding of oneDNN's C API (3.2 <= version < 4). Importing it loads no library; `load` does.

    library = load()                                        # or load("/path/of/libdnnl.so.3")
    library.set_threads(2)                                  # OpenMP threads of the calling thread
    engine = Engine(library)
    stream = Stream(engine)
    desc = convolution(engine, src_md, weights_md, bias_md, dst_md, strides=..., attributes=Attributes(...), origin="Conv_3")
    primitive = Primitive(desc)
    args = ExecArgs(desc, {Arg.SRC: Memory.wrap(engine, x), ...})  # once
    primitive.execute(stream, args)                          # one C call

Handles free themselves; `close()` or `with` does it at once. Several threads may execute one primitive, each with its own
`ExecArgs`, outputs and scratchpad.
"""
