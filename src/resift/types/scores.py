"""ScorerInfo, the description of a scorer, and Scores, its result for a list of hits."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from resift.errors import InputError, did_you_mean

ScoreScale = Literal["logit", "probability", "cosine", "unknown"]
"""`logit` is unbounded, `probability` is any score from 0 to 1, and `cosine` is from -1 to 1."""

Languages = tuple[str, ...] | Literal["any"]
"""The ISO 639-1 codes of the languages that a model was trained on, or "any"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScorerInfo:
    """Description of a scorer, used by the blend, calibration, the server and the trace.

    `languages` are the languages that the model was trained on, or "any" for models without such a limit.
    `max_length` is in tokens. `model_digest` is the SHA-256 of the model file; it is empty for remote models.
    `pointwise` means that the score of a text does not depend on the other texts, so it can be cached.
    """

    name: str
    score_scale: ScoreScale = "unknown"
    languages: Languages = "any"
    max_length: int | None = None
    model_digest: str = ""
    supports_instruction: bool = False
    pointwise: bool = False

    def __post_init__(self) -> None:
        check_score_scale(self.score_scale)
        object.__setattr__(self, "languages", check_languages(self.languages))


def check_score_scale(scale: ScoreScale) -> ScoreScale:
    """Return the scale; raises InputError for an unknown one."""
    known = get_args(ScoreScale)
    if scale not in known:
        raise InputError(f"score_scale is {scale!r}; {did_you_mean(str(scale), known)}")
    return scale


def check_languages(languages: Iterable[str]) -> Languages:
    """Return language codes as a tuple, or "any"; raises InputError for anything else."""
    if languages == "any":
        return "any"
    codes = () if isinstance(languages, str) else tuple(languages)
    if not codes or not all(isinstance(code, str) and code for code in codes):
        raise InputError(f"languages is {languages!r}; pass codes such as ('en', 'de'), or 'any'.")
    return codes


@dataclass(frozen=True, slots=True)
class Scores:
    """Scores of a list of hits: one value per hit, None for unscored hits.

    `settled` means that unscored hits were skipped on purpose, because they cannot reach the top. `notes` are
    for single hits, by id. `tokens` is the number of tokens in the query and the texts, 0 if unknown. `usage`
    contains the tokens, search units and cost in dollars of a hosted call. Scorers that call other scorers set
    `scorer` to the description of the one that produced the values.
    """

    values: Sequence[float | None]
    provider: str
    degraded: bool = False
    reason: str | None = None
    note: str = ""
    settled: bool = False
    notes: Mapping[str, str] = field(default_factory=dict)
    tokens: int = 0
    scorer: ScorerInfo | None = None
    usage: Mapping[str, float] = field(default_factory=dict)

    @property
    def partial(self) -> bool:
        """Whether some, but not all, hits are unscored."""
        missing = sum(value is None for value in self.values)
        return 0 < missing < len(self.values)
