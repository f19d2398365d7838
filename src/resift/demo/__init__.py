"""The shipped sample, our own writing about a trust that keeps a lighthouse, and what `resift demo` does.

`sample` reads the data, `quality` measures orders, `running` indexes and asks. Nothing here prints.
"""
