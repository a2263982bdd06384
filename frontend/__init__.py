"""From an ONNX model to a Graph: one file for each dialect of quantization."""
