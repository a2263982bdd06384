"""Side-by-side measurements of fqfuse, ONNX Runtime and OpenVINO on the same quantized files.

Run ``python -m benchmarks --help`` at the repository root; ``README.md`` says what is measured and
how to read it. Nothing here is imported by the compiler. Engines are imported inside worker
processes only, never by the coordinator.
"""
