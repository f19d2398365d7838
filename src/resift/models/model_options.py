"""Options about models that several plugins share: which one, from which folder, an embedder by its name."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from resift.models.allowlist import Kind
from resift.models.embedding import Embedder
from resift.models.loading import model_ids
from resift.types import JsonObject
from resift.validation import Options, option

NO_EMBEDDER = "none"
"""The value that says: by words only."""


def model_option(kind: Kind, *, default: str) -> Any:
    """Declare the option `model` of a plugin that runs a model of that kind; its argument is `model_name`."""
    return option(
        "The model; only those on the allowlist and folders allowed by `allow_local` load.",
        key="model",
        default=default,
        choices=lambda: model_ids(kind),
    )


def embedding_models() -> list[str]:
    """Return the models that an embedder can run."""
    return model_ids("bi-encoder")


@dataclass(frozen=True, kw_only=True)
class ModelFolder(Options):
    """Where a local model's files are."""

    folder: str | None = option(
        "Folder with the model's files, instead of the cache.", default=None, kind="path", must_exist=True
    )


@dataclass(frozen=True, kw_only=True)
class EmbedderOptions(Options):
    """The model that turns text into vectors; subclasses declare the option `embedder`."""

    def arguments(self) -> JsonObject:
        """Return the arguments with the embedder itself in place of its name."""
        given = super().arguments()
        name = given.pop("embedder", NO_EMBEDDER)
        return given if name == NO_EMBEDDER else {**given, "embedder": Embedder(name)}
