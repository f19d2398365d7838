"""A package of strangers next to Resift: its store, scorer, fusion method, profile and stage from YAML.

Nothing of Resift knows it. Each plugin declares its options once; keys, checks, lines, suggestions and the
reference page follow from that.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import textwrap
import zipfile

import pytest

from resift import fuse
from resift.config import inspect_yaml
from resift.config.sections import reference_page
from resift.errors import InputError
from resift.pipeline import Pipeline
from resift.plugins import (
    available_fusions,
    available_gate_profiles,
    available_scorers,
    available_stages,
    available_stores,
)

SOURCE = '''
from dataclasses import dataclass, replace
from pathlib import Path

from resift.ranking.gate import Profile
from resift.validation import Options, option
from resift.types import Hit, Scores


@dataclass(frozen=True, kw_only=True)
class LogOptions(Options):
    path: str = option("The log file.", kind="path", must_exist=True)
    newest_first: bool = option("Whether the last line counts most.", default=True)


class LogStore:
    """Finds lines of a file."""

    Options = LogOptions

    def __init__(self, path, *, name="log", newest_first=True):
        self.name, self.path, self.newest_first = name, path, newest_first

    async def search(self, query, *, k, where=None):
        lines = [line for line in Path(self.path).read_text().splitlines() if query in line]
        lines = lines[::-1] if self.newest_first else lines
        return [Hit(line.split()[0], line, 1 / rank, self.name) for rank, line in enumerate(lines[:k], 1)]


@dataclass(frozen=True, kw_only=True)
class LengthOptions(Options):
    target: int = option("The length that is best.", min=1)


class LengthScorer:
    """Likes texts of one length."""

    Options = LengthOptions
    name = "length"

    def __init__(self, *, target):
        self.target = target

    async def score(self, query, hits, *, deadline):
        return Scores([-abs(len(hit.text) - self.target) for hit in hits], self.name)


@dataclass(frozen=True, kw_only=True)
class TurnsOptions(Options):
    start: int = option("Which list begins.", default=0, min=0)


class TakeTurns:
    """One of each list in turn."""

    Options = TurnsOptions

    def __init__(self, *, start=0):
        self.start = start

    async def fuse(self, per_store, *, k, query=None):
        lists = per_store[self.start :] + per_store[: self.start]
        rounds = range(max(map(len, lists), default=0))
        turns = [hits[at] for at in rounds for hits in lists if at < len(hits)]
        kept = list({hit.id: hit for hit in reversed(turns)}.values())[::-1]
        return [replace(hit, score=1 / rank) for rank, hit in enumerate(kept[:k], 1)]


@dataclass(frozen=True, kw_only=True)
class HarbourOptions(Options):
    strictness: float = option("How high the floor is.", default=0.1, min=0, max=1)


def harbour(*, strictness=0.1):
    return Profile(name="harbour", default=strictness)


harbour.Options = HarbourOptions


@dataclass(frozen=True, kw_only=True)
class AloneOptions(Options):
    word: str = option("Hits with this word come first.")


class WithWord:
    """Puts hits that have a word before the others."""

    Options = AloneOptions
    name = "with-word"

    def __init__(self, *, word):
        self.word = word

    async def __call__(self, pool):
        return pool.reorder(sorted(pool.hits, key=lambda hit: self.word not in hit.text))
'''

ENTRY_POINTS = """
[resift.stores]
log = lighthouse_plugins:LogStore
[resift.rerankers]
length = lighthouse_plugins:LengthScorer
[resift.fusion]
take-turns = lighthouse_plugins:TakeTurns
[resift.gate_profiles]
harbour = lighthouse_plugins:harbour
[resift.stages]
with-word = lighthouse_plugins:WithWord
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """A folder with the package as pip installs it."""
    pytest.importorskip("pip", reason="installs a package")
    folder = tmp_path_factory.mktemp("site")
    wheel = folder / "lighthouse_plugins-1.0-py3-none-any.whl"
    info = "lighthouse_plugins-1.0.dist-info"
    metadata = "Metadata-Version: 2.1\nName: lighthouse-plugins\nVersion: 1.0\n"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("lighthouse_plugins.py", SOURCE)
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{info}/entry_points.txt", ENTRY_POINTS)
        archive.writestr(f"{info}/RECORD", "")
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--target"]
    subprocess.run([*pip, str(folder / "packages"), str(wheel)], check=True)
    return folder / "packages"


@pytest.fixture
def folder(site, tmp_path, monkeypatch):
    """A folder with a log, while the package can be found."""
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "lighthouse_plugins", raising=False)
    (tmp_path / "day.log").write_text("a storm\nb storm over the bay\nc calm\nd storm at night\n")
    return tmp_path


FILE = """\
stores:
  - name: day
    kind: log
    path: day.log
    newest_first: false
fusion:
  method: take-turns
  start: 0
gate:
  profile: harbour
  strictness: 0.05
rerank:
  kind: length
  target: 16
guard: {blend: false, do_no_harm: false}
stages:
  - kind: with-word
    word: bay
    after: shape
"""


def test_all_five_plugins_work_from_a_file_with_their_options(write):
    """Store, fusion method, profile, scorer and stage of strangers make one pipeline."""

    async def work():
        pipe = Pipeline.from_yaml(write(FILE))
        try:
            return await pipe.search("storm"), pipe.stages[1].profile
        finally:
            await pipe.close()

    ranking, profile = asyncio.run(work())
    assert not ranking.degraded, ranking.reason
    assert (profile.name, profile.default) == ("harbour", 0.05)
    # By their distance from 16 characters: 0, 4 and 9; then the one with the word goes first.
    assert (ranking.ids, ranking.tier) == (["b", "d", "a"], "length")
    assert (ranking.trace[-1].name, ranking.trace[-1].kind, ranking.replay()) == ("with-word", "shape", ranking.ids)


@pytest.mark.parametrize(
    ("after", "kinds"),
    [
        ("fusion", ["fuse", "with-word", "gate", "rerank", "shape"]),
        ("gate", ["fuse", "gate", "with-word", "rerank", "shape"]),
        ("rerank", ["fuse", "gate", "rerank", "with-word", "shape"]),
        ("shape", ["fuse", "gate", "rerank", "shape", "with-word"]),
    ],
)
def test_a_stage_runs_after_the_section_it_names(write, after, kinds):
    """Where a stage of strangers runs is said in the file."""
    pipe = Pipeline.from_yaml(write(FILE.replace("after: shape", f"after: {after}")))
    own = {"Fuse": "fuse", "Gate": "gate", "Rerank": "rerank", "Shape": "shape", "WithWord": "with-word"}
    assert [own[type(stage).__name__] for stage in pipe.stages] == kinds
    asyncio.run(pipe.close())


def test_an_unknown_stage_is_reported_with_its_line(tmp_path):
    """Without any package that has stages, too."""
    file = tmp_path / "pipe.yaml"
    file.write_text("stores:\n  - {name: m, kind: memory}\nstages:\n  - kind: with-word\n")
    [mistake] = inspect_yaml(file)[1].lines()
    assert mistake.startswith(f"{file}:4: ")
    assert "No installed package provides 'with-word' in the group resift.stages" in mistake


@pytest.mark.parametrize(
    ("change", "line", "message"),
    [
        (("path: day.log", "path: night.log"), 4, "stores[day].path: night.log does not exist"),
        (("newest_first: false", "newest_first: 3"), 5, "stores[day].newest_first is 3; it must be true or false"),
        (("newest_first", "newest_frist"), 5, "stores[day] has no key 'newest_frist'. Did you mean 'newest_first'?"),
        (("kind: log", "kind: lgo"), 3, "stores[day].kind is 'lgo'. Did you mean 'log'?"),
        (("start: 0", "start: -1"), 8, "fusion.start is -1; it must be an integer ≥ 0"),
        (("method: take-turns", "method: take-turn"), 7, "Did you mean 'take-turns'?"),
        (("strictness: 0.05", "strictness: 4"), 11, "gate.strictness is 4; it must be a number ≥ 0, ≤ 1"),
        (("profile: harbour", "profile: habour"), 10, "gate.profile is 'habour'. Did you mean 'harbour'?"),
        (
            ("profile: harbour", "profile: neutral"),
            11,
            "gate has no key 'strictness'; that key belongs to profile harbour",
        ),
        (("target: 16", "target: long"), 14, "rerank.target is 'long'; it must be an integer ≥ 1"),
        (("  target: 16\n", ""), 13, "rerank needs the key 'target': The length that is best."),
        (
            ("target: 16", "target: 16\n  patience: 3"),
            15,
            "rerank has no key 'patience'; that key belongs to kind cascade",
        ),
        (("word: bay", "word: bay\n    wrod: 3"), 19, "stages[0] has no key 'wrod'. Did you mean 'word'?"),
        (("kind: with-word", "kind: wth-word"), 17, "stages[0].kind is 'wth-word'. Did you mean 'with-word'?"),
        (("after: shape", "after: lunch"), 19, "stages[0].after is 'lunch'"),
        (("word: bay", "word: 3"), 18, "stages[0].word is 3; it must be text"),
    ],
)
def test_mistakes_in_plugin_options_have_lines_and_suggestions(write, change, line, message):
    """What a stranger declares is checked as well as our own."""
    file = write(FILE.replace(*change))
    [mistake] = inspect_yaml(file)[1].lines()
    assert mistake.startswith(f"{file}:{line}: ")
    assert message in mistake


def test_fuse_accepts_the_method_of_a_plugin(folder):
    """One name, in files and in Python: the trace and the checks are the same."""
    ranking = fuse({"one": ["a", "b"], "two": ["c"]}, method="take-turns", k=2)
    assert (ranking.ids, ranking.replay(), [hit.id for hit in ranking.cut]) == (["a", "c"], ["a", "c"], ["b"])
    assert fuse([["a"], ["b"]], method="take-turns", start=1).ids == ["b", "a"]
    with pytest.raises(InputError, match="take-turns"):
        fuse([["a"]], method="take-turns", strt=1)


def test_plugins_are_listed_and_on_the_reference_page(folder):
    """Names come from entry points; the page of all installed plugins has their options, ours has not."""
    assert "log" in available_stores()
    assert "length" in available_scorers()
    assert "take-turns" in available_fusions()
    assert "harbour" in available_gate_profiles()
    assert "with-word" in available_stages()
    theirs = reference_page(packages=None)
    for text in (
        "The log file.",
        "The length that is best.",
        "Which list begins.",
        "How high the floor is.",
        "Hits with this word",
    ):
        assert text in theirs
        assert text not in reference_page()


def test_a_broken_plugin_is_reported_with_its_line(folder, write, monkeypatch):
    """A package that does not load costs one message; the rest of the file is checked."""
    (folder / "lighthouse_plugins.py").write_text("1 / 0")
    monkeypatch.syspath_prepend(str(folder))
    messages = inspect_yaml(write(textwrap.dedent(FILE)))[1].lines()
    lines = {int(message.split(":")[1]) for message in messages}
    assert lines == {3, 7, 10, 13, 17}
    assert all("of lighthouse-plugins cannot be loaded: ZeroDivisionError" in each for each in messages)
