from .chunking import ChunkSize as ChunkSize
from .indexing import IndexReport as IndexReport
from .indexing import index_paths as index_paths
from .indexing import open_index as open_index
