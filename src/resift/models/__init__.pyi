from .embedder import Embedder as Embedder
from .local_models import allow_local as allow_local
from .local_models import write_manifest as write_manifest
from .locate import resolve as resolve
from .registry import ModelFiles as ModelFiles
from .registry import disallow_local as disallow_local
