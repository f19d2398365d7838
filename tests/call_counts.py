"""Count the functions of Resift that a call passes through, in every thread.

with watch_threads() as counter:
    index = Index("docs.db")                      # threads started in here are watched
    counts = counter.count(lambda: index.search("wing"))
assert len(counts.functions) <= 110, counts.report()
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType

import resift
from resift._internal.sync import run_sync

SOURCE = str(Path(resift.__file__).parent)
MODEL_PACKAGES = ("models", "native")
LEFT_OUT = "left out"


@dataclass
class CallCounts:
    """Calls per function, named `pipeline/pool.py:Pool.reorder`.

    Lambdas, comprehensions and generator expressions belong to the function around them and are not counted.
    """

    calls: dict[str, int] = field(default_factory=dict)

    @property
    def functions(self) -> list[str]:
        """The names of the functions, sorted."""
        return sorted(self.calls)

    @property
    def files(self) -> list[str]:
        """The files that the functions are in, sorted."""
        return sorted({name.partition(":")[0] for name in self.calls})

    def report(self) -> str:
        """Return the functions per file, for the message of a failed assertion."""
        lines = [f"{len(self.functions)} functions in {len(self.files)} files"]
        for file in self.files:
            names = [name.partition(":")[2] for name in self.functions if name.startswith(f"{file}:")]
            lines.append(f"  {file}: {', '.join(names)}")
        return "\n".join(lines)


class CallCounter:
    """Counts calls while `count` runs; made by `watch_threads`."""

    def __init__(self, without: Collection[str]) -> None:
        self._without = without
        self._names: dict[CodeType, str] = {}
        self._counts: CallCounts | None = None

    def count(self, function: Callable[[], object], *, warm_up: int = 2) -> CallCounts:
        """Return the counts of one call, after calls that fill the caches."""
        for _ in range(warm_up):
            function()
        counts = self._counts = CallCounts()
        try:
            function()
        finally:
            self._counts = None
        return counts

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        """Count a call; the profile function of a thread."""
        counts, code = self._counts, frame.f_code
        if counts is None or event != "call":
            return
        name = self._function_name(code)
        if name and not self._is_inside(frame):
            counts.calls[name] = counts.calls.get(name, 0) + 1

    def _function_name(self, code: CodeType) -> str:
        """Return the name of a function; "" for code of other packages, of those left out, and of lambdas."""
        name = self._names.get(code)
        if name is None:
            name = ""
            if code.co_filename.startswith(SOURCE) and not code.co_name.startswith("<"):
                file = Path(code.co_filename).relative_to(SOURCE).as_posix()
                name = LEFT_OUT if file.partition("/")[0] in self._without else f"{file}:{code.co_qualname}"
            self._names[code] = name
        return "" if name == LEFT_OUT else name

    def _is_inside(self, frame: FrameType) -> bool:
        """Whether a function of a package that is left out called this one, directly or not."""
        caller = frame.f_back
        while caller is not None:
            self._function_name(caller.f_code)
            if self._names[caller.f_code] == LEFT_OUT:
                return True
            caller = caller.f_back
        return False


@contextmanager
def watch_threads(*, without: Collection[str] = MODEL_PACKAGES) -> Iterator[CallCounter]:
    """Watch this thread, the loop of synchronous calls, and every thread that is started inside the block.

    Functions in the packages `without` are not counted, nor are the functions that they call.
    """
    counter = CallCounter(without)

    async def set_profile(function: CallCounter | None) -> None:
        sys.setprofile(function)

    before = sys.getprofile()
    threading.setprofile(counter)
    run_sync(set_profile(counter))
    sys.setprofile(counter)
    try:
        yield counter
    finally:
        sys.setprofile(before)
        threading.setprofile(None)  # type: ignore[arg-type]  # the stubs lack None
        run_sync(set_profile(None))
