"""Models that work with `resift models add`, as data: license, languages, prompts and published quality.

Their files are not pinned in the package. `add` inspects and probes them and pins what it downloaded.
"""

from __future__ import annotations

import functools
from pathlib import Path

import msgspec


class KnownModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A published model.

    `mteb_retrieval` is the mean nDCG@10 after reranking six first stages, which reach .493 on their own.
    `nanobeir` is the mean nDCG@10 on NanoBEIR. Both are the authors' figures, None if unknown.
    """

    id: str
    kind: str
    license: str
    languages: tuple[str, ...] | str
    max_length: int
    parameters_m: float
    query_prefix: str = ""
    document_prefix: str = ""
    mteb_retrieval: float | None = None
    nanobeir: float | None = None
    note: str = ""

    @property
    def add_command(self) -> str:
        """The command that downloads, checks and pins the model."""
        return f"resift models add {self.id}"


class _Table(msgspec.Struct, frozen=True):
    format: int
    models: tuple[KnownModel, ...]


@functools.cache
def known_models() -> dict[str, KnownModel]:
    """Return the models by id, rerankers first."""
    data = Path(__file__).with_name("known_models.json").read_bytes()
    return {model.id: model for model in msgspec.json.decode(data, type=_Table).models}
