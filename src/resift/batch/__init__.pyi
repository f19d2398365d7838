from .job import BatchReport as BatchReport
from .job import load_shards as load_shards
from .job import run_batch as run_batch
from .shards import BatchWork as BatchWork
from .work_kinds import EmbedWork as EmbedWork
from .work_kinds import EvaluateWork as EvaluateWork
from .work_kinds import IndexWork as IndexWork
from .work_kinds import RerankWork as RerankWork
