"""Which models may load, as data: id, revision, sha256 and size of every file. No file is opened here.

The data is `allowlist.json` beside this module. A model that is not in it is refused before anything is read,
unless the user allowed a folder of their own with `local_models.allow_local`.
"""

from __future__ import annotations

import functools
import json
import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from resift.errors import ModelNotAllowedError, did_you_mean
from resift.types import JsonMapping, Languages, ScorerInfo, ScoreScale, check_languages

Kind = Literal["cross-encoder", "late-interaction", "bi-encoder", "nli"]
SCORE_SCALES: Mapping[Kind, ScoreScale] = {
    "cross-encoder": "logit",
    "late-interaction": "unknown",  # a sum over the tokens of the query
    "bi-encoder": "cosine",
    "nli": "probability",
}
"""The scale of the scores of each kind of model, for models that declare no other."""

KINDS: tuple[Kind, ...] = tuple(SCORE_SCALES)

_OWN_FILES = "For files of your own, call resift.models.allow_local."
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}(?:/[A-Za-z0-9][A-Za-z0-9._-]{0,95})?")


class PinnedFile(NamedTuple):
    """One file of a model, named relative to the model's folder, and the only bytes it may hold."""

    name: str
    size: int
    sha256: str
    required: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Carrier:
    """An installed package that carries the files; it is looked up and never imported."""

    package: str
    version: str
    folder: str


@dataclass(frozen=True, slots=True, kw_only=True)
class HubSource:
    """A repository on the hub at one immutable commit."""

    repo: str
    revision: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """What is known about a model before any of its files is opened."""

    id: str
    kind: Kind
    licence: str
    revision: str
    onnx: str
    tokenizer: str
    files: tuple[PinnedFile, ...]
    languages: Languages = "any"
    score_scale: ScoreScale = "unknown"
    max_length: int = 512
    query_prefix: str = ""
    document_prefix: str = ""
    pooling: Literal["cls", "mean"] = "cls"
    query_marker_id: int | None = None
    document_marker_id: int | None = None
    entailment_index: int | None = None
    aliases: tuple[str, ...] = ()
    carrier: Carrier | None = None
    hub: HubSource | None = None

    def pin(self, name: str) -> PinnedFile:
        """Return the pin of one file."""
        for pinned in self.files:
            if pinned.name == name:
                return pinned
        raise ModelNotAllowedError(f"{name!r} is no pinned file of {self.id!r}.")

    def scorer_info(self, name: str) -> ScorerInfo:
        """Return the description of a scorer of that name that scores one text at a time with this model."""
        return ScorerInfo(
            name=name,
            score_scale=self.score_scale,
            languages=self.languages,
            max_length=self.max_length,
            model_digest=self.pin(self.onnx).sha256,
            pointwise=True,
        )


def known() -> tuple[str, ...]:
    """Return the ids of all models that ship with a pin, sorted."""
    return tuple(sorted(spec.id for spec in _shipped().values()))


def shipped(model_id: str) -> ModelSpec | None:
    """Return the shipped pin of that id or alias, or None."""
    return _by_name().get(model_id)


def check_name(model_id: object) -> str:
    """Return the id if it is a plain name; refuse paths, URLs and control characters with the reason."""
    if not isinstance(model_id, str):
        raise ModelNotAllowedError(
            f"A model id is a string such as 'org/name', not {type(model_id).__name__}."
        )
    reason = _why_bad(model_id)
    if reason is not None:
        raise ModelNotAllowedError(
            f"model_name {model_id[:80]!r} is not in allowed models: {reason}. "
            f"Known: {', '.join(known())}. {_OWN_FILES}"
        )
    return model_id


def not_allowed(model_id: str, *, also_known: tuple[str, ...] = ()) -> ModelNotAllowedError:
    """Return the error for a well-formed id that nobody allowed."""
    hint = did_you_mean(model_id, {*known(), *also_known})
    return ModelNotAllowedError(f"model_name {model_id!r} is not in allowed models. {hint} {_OWN_FILES}")


def parse(entry: JsonMapping) -> ModelSpec:
    """Build a spec from one entry of the data file."""
    fields = dict(entry)
    fields["files"] = tuple(PinnedFile(**pinned) for pinned in fields["files"])
    fields["aliases"] = tuple(fields.get("aliases", ()))
    fields["languages"] = check_languages(fields.get("languages", "any"))
    fields.setdefault("score_scale", SCORE_SCALES[fields["kind"]])
    if fields.get("carrier"):
        fields["carrier"] = Carrier(**fields["carrier"])
    if fields.get("hub"):
        fields["hub"] = HubSource(**fields["hub"])
    return ModelSpec(**fields)


def _why_bad(name: str) -> str | None:
    checks = (
        (not name, "it is empty"),
        ("\0" in name, "it holds a NUL"),
        (any(unicodedata.category(char).startswith("C") for char in name), "it holds a control character"),
        ("://" in name or name.lower().startswith(("http:", "https:", "file:")), "it is a URL"),
        ("\\" in name, "it holds a backslash"),
        (".." in name, "it holds '..'"),
        (name.startswith(("/", "~", ".")) or name.count("/") > 1, "it is a path"),
        (
            _ID.fullmatch(name) is None,
            "a model id is 'name' or 'org/name' in letters, digits, '.', '_' and '-'",
        ),
    )
    return next((reason for bad, reason in checks if bad), None)


@functools.cache
def _shipped() -> dict[str, ModelSpec]:
    text = Path(__file__).with_name("allowlist.json").read_text(encoding="utf-8")
    specs = [parse(entry) for entry in json.loads(text)["models"]]
    return {spec.id: spec for spec in specs}


@functools.cache
def _by_name() -> dict[str, ModelSpec]:
    return {name: spec for spec in _shipped().values() for name in (spec.id, *spec.aliases)}
