"""The language that frontend, passes, composer and runtime speak.

- `types.py`, `element_types.py`: element type, shape, quantization; the numbers that ONNX gives the
  types
- `ops/`, `algorithms.py`: the op table, and oneDNN's eltwise and binary algorithms
- `node.py`, `graph.py`, `order.py`, `cleanup.py`: the graph and its edits; `model_node.py`: a node as the model has it
- `paths.py`, `ranges.py`, `telling.py`, `block_weights.py`: what passes and composer both ask of a graph
- `decision.py`, `rule.py`: what is told of what was done, and what rules have in common
- `text_write.py`, `text_print.py`: the text form; `text_cursor.py`, `text_read.py`: types and attributes, the way back
- `verify.py`, `diagnostic.py`: the specification of each stage, and findings against it
- `constants.py`: constants by name, those of half floats as such; `lifting.py`: large ones of a file, read apart from what is parsed
- `interpret.py`: a graph run node by node, the reference
"""
