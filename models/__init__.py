"""Sample models: one small network trained for real, with the real digits it was not trained on.

`fqfuse.models.digits` gives the committed files and needs NumPy only. `make models` builds them, in
`benchmarks/digits/`: training needs PyTorch, which the package never imports.
"""
