"""What may stand in a configuration, one module per part: its `SECTION`, and `build` that makes the objects.

A new key is one `Key` in the section and one use in `build` beside it; checking, `resift config check`
and the reference page follow from the table.
"""
