"""The gate decides which candidates are passed to the reranker. Pure functions on hits; policies are data.

`gate` grades a retrieval (A–F). For a weak one (C, D, F), it lowers the floor and raises top-k. For a strong
one (A, B), it raises the floor to a cliff in the scores. `apply_rates` reports how often the floor was raised.
"""

from resift.ranking.gate.profiles import (
    MEMOSA,
    NEUTRAL,
    OWN_SCORE,
    Cliff,
    Grading,
    Profile,
    Relax,
    load_profile,
    profile_named,
)
from resift.ranking.gate.screening import (
    ApplyRate,
    Gated,
    Grade,
    Hint,
    VectorSearchToolResult,
    apply_rates,
    find_cliff,
    gate,
    grade,
)

__all__ = [
    "MEMOSA", "NEUTRAL", "OWN_SCORE", "ApplyRate", "Cliff", "Gated", "Grade", "Grading", "Hint", "Profile",
    "Relax", "VectorSearchToolResult", "apply_rates", "find_cliff", "gate", "grade", "load_profile",
    "profile_named",
]  # fmt: skip
