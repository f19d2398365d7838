"""Plumbing that only Resift itself imports."""
