"""ResiftJoiner: lists of Haystack documents fused into one.

Haystack reads `Variadic` from the annotations themselves, so they are no strings in this module.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from haystack import Document, component
from haystack.core.component.types import Variadic

from resift.integrations.facts import with_facts
from resift.integrations.haystack.saving import Saved
from resift.ranking.fusion.entry import fuse
from resift.types import Hit


@component
class ResiftJoiner(Saved):
    """Fuses the lists by any of Resift's methods (`method="rrf"`) with its options (`k_param`, `weights`, …).

    Equal scores go by id, and the order in which the lists arrive makes no difference to the order that
    comes out. Documents get the fused score and, in their meta, `why`.
    """

    saved = ("method", "top_k", "options")

    def __init__(
        self, method: str = "rrf", *, top_k: int | None = None, options: Mapping[str, Any] | None = None
    ) -> None:
        self.method = method
        self.top_k = top_k
        self.options = dict(options or {})
        fuse({}, k=0, method=method, **{name: one for name, one in self.options.items() if name != "weights"})

    @component.output_types(documents=list[Document])
    def run(self, documents: Variadic[list[Document]], top_k: int | None = None) -> dict[str, Any]:
        """Return the documents of all lists, each once, best first."""
        return self._joined(documents, top_k)

    @component.output_types(documents=list[Document])
    async def run_async(
        self, documents: Variadic[list[Document]], top_k: int | None = None
    ) -> dict[str, Any]:
        """Do the same from async code: fusing waits for nobody."""
        return self._joined(documents, top_k)

    def _joined(self, documents: Variadic[list[Document]], top_k: int | None) -> dict[str, Any]:
        given = list(documents)
        first: dict[str, Document] = {}
        for document in (one for documents_of_list in given for one in documents_of_list):
            first.setdefault(document.id, document)
        lists = {
            f"list-{at}": [
                Hit(one.id, one.content or "", one.score, f"list-{at}") for one in documents_of_list
            ]
            for at, documents_of_list in enumerate(given, start=1)
        }
        ranking = fuse(lists, k=self.top_k if top_k is None else top_k, method=self.method, **self.options)
        joined = []
        for hit, facts in with_facts(ranking):
            document = first[hit.id]
            joined.append(replace(document, score=hit.score, meta={**document.meta, **facts}))
        return {"documents": joined}
