"""The compiled code: C files, and which of their kernels runs on this processor."""
