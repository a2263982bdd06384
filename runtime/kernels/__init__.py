"""The NumPy kernels, one file for each kind of primitive."""
