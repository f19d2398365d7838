"""C kernels and the loader that chooses one for this processor."""
