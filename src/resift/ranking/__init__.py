"""Ranking algorithms without I/O: fusion, gate, blend, guard and shaping of the final list."""
