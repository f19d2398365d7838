"""Read files, split them into passages and write them to an index."""

from __future__ import annotations

from resift._internal.lazy_exports import lazy_exports

TYPE_CHECKING = False

if TYPE_CHECKING:
    from resift.ingest.chunking import ChunkSize as ChunkSize
    from resift.ingest.indexing import IndexReport as IndexReport
    from resift.ingest.indexing import index_paths as index_paths
    from resift.ingest.indexing import open_index as open_index
else:
    __getattr__, __dir__, __all__ = lazy_exports(
        __name__,
        """
        chunking: ChunkSize
        indexing: IndexReport index_paths open_index
        """,
    )
