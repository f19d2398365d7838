"""Resift inside other frameworks, and their indexes as our stores. One leaf each; none imports another."""
