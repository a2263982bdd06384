"""From Plan to numbers. In: a verified plan and feeds. Out: arrays.

- `session.py`: what users hold; picks the runtime
- `shapes.py`, `budget.py`: sizes of all values for the feeds' shapes, and how much memory they may
  take
- `numpy_runtime.py`, `kernels/`: the runtime that defines the numbers
- `lowering/`: the plan on oneDNN
- `executor.py`, `placement.py`: what both give to a session, and where each step runs
- `bodies.py`, `trips.py`: plans in the bodies of If, Loop and Scan; what a run of several trips
  takes and gives
- `fallback.py`, `evaluator.py`: operators that only ONNX's reference evaluator knows, and what stands in the place
  of some of its own
- `program.py`, `arena.py`, `pool.py`, `processors.py`: recorded calls, shared memory, threads, what
  the machine grants
- `numerics.py`, `windows.py`, `padding.py`: float orders, windows of convolutions, and what padding
  adds to a bias, for both
- `onnx_backend.py`: the interface of `onnx.backend`, above the sessions that it makes
- `profile.py`, `footprint.py`: how long each step takes, and how much memory; `like_onnxruntime.py`:
  ONNX Runtime's Python API
"""
