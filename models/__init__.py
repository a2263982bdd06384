"""Sample models: one small network trained for real, with the real digits it was not trained on.

`fqfuse.models.digits` gives the committed files and needs NumPy only. The other modules build those
files (`python -m fqfuse.models.build_digits`); training them needs PyTorch, which the package
itself never imports.
"""
