"""The pipeline of a worker: opened once from its file, and told apart from another one."""

from __future__ import annotations

from functools import cache

from resift.errors import InputError
from resift.evaluation.running import code_digest, work_key
from resift.evaluation.systems import Subject, subject_named
from resift.pipeline.pipeline import Pipeline
from resift.protocols import OpensVectors
from resift.types import JsonObject


def subject_of(file: str) -> Subject:
    """Return the pipeline of a file; its stores must be there already."""
    subject = subject_named(file)
    if subject.needs_corpus:
        raise InputError(f"{file}: name a pipeline file whose stores are there, with paths of their own.")
    return subject


def identity_of_pipeline(file: str) -> JsonObject:
    """Return a digest of everything that could change its answers: file, stores as they are now, code."""
    subject = subject_of(file)
    # An index file counts its writes, also those that another process has not yet moved into the file.
    owners = [ref.owner for ref in opened(file).stores]
    writes = [owner.facts().generation if isinstance(owner, OpensVectors) else None for owner in owners]
    return {"pipeline": subject.name, "key": work_key(code_digest(), subject.identity["file"], writes)}


@cache
def opened(file: str) -> Pipeline:
    """Return this process's pipeline of that file."""
    return subject_of(file).open(None)
