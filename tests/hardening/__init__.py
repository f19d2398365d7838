"""Attacks on every part of Resift, seeded: each module has one attack, `__main__` runs them all."""
