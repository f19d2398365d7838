"""C kernels, and the loader that selects one for this processor."""
