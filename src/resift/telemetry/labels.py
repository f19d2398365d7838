"""What of an event may become a metric label: names and codes, never words, so that series stay few."""

from __future__ import annotations

from resift.events import Event

LABELS = ("provider", "reason", "degraded", "breaker", "from_state", "to_state", "method", "store", "failed")
"""Fields that are labels where their value is a code."""

CODE_CHARACTERS = 40
OTHER = "other"


def labels_of(event: Event) -> dict[str, str]:
    """Return the label values of an event; a sentence in place of a code becomes "other"."""
    fields = event.fields()
    return {key: _code(fields[key]) for key in LABELS if fields.get(key) is not None}


def latency_ms(event: Event) -> float | None:
    """Return how long the event's work took, where it says so."""
    for key in ("latency_ms", "ms"):
        value = event.fields().get(key)
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            return float(value)
    return None


def _code(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value)
    plain = len(text) <= CODE_CHARACTERS and not any(character.isspace() for character in text)
    return text if plain else OTHER
