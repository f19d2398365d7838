"""Ranking math without I/O: fusion, gate, blend, guard and the shaping of the final list."""
