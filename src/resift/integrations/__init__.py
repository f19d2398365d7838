"""Adapters that use Resift in other frameworks and their indexes as stores. One module per framework."""
