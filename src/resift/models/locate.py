"""Find an allowed model's files in a folder, a cache or a model package, or download them at a fixed revision."""

from __future__ import annotations

import importlib.util
import os
import shutil
import time
import urllib.parse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from resift._internal.files import cache_folder, file_lock, hub_cache_folder
from resift.errors import ModelFileError, install_command, require
from resift.events import Event, Sink, emit
from resift.models import registry
from resift.models.local_models import check_folder, open_folder
from resift.models.registry import ModelFiles, ModelSpec
from resift.models.verify import verify
from resift.types import JsonObject

TIME_LIMIT_S = 3600.0  # total time limit for all files of a model

_HUB = "https://huggingface.co"
_OFFLINE = "HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set"
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


def resolve(
    model_id: str,
    *,
    folder: Path | str | None = None,
    check: bool = True,
    download: bool = True,
    progress: Sink | None = None,
) -> ModelFiles:
    """Find and check an allowed model's files, and download them if they are not on this machine.

    An id that is not allowed raises `ModelNotAllowedError` before anything is read. With check=False,
    the model and tokenizer files are not hashed here; `ModelFiles.read` always hashes the bytes it returns.
    """
    spec = registry.find_spec(model_id)
    files = _find_files(spec, folder)
    if files is None:
        next_step = "Download it once while online, or pass folder= with its files."
        if spec.package is not None:
            next_step = f"Run: {install_command('local')}, or pass folder= with its files."
        problem = f"The files of {spec.id!r} are not on this machine"
        if spec.hub is not None and not download:
            problem += ", and download=False"
        elif spec.hub is not None and is_offline():
            problem += ", and downloads are switched off (HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE)"
        if spec.hub is None or not download or is_offline():
            raise ModelFileError(f"{problem}. {next_step}")
        folder = download_model(spec, download_folder(spec), progress=progress)
        files = ModelFiles(spec=spec, folder=folder, source="hub")
    files.verify(only_unread=not check)
    return files


def package_folder(spec: ModelSpec) -> Path | None:
    """Return the model's folder in its model package, or None if that is not installed. Nothing is imported."""
    if spec.package is None:
        return None
    try:
        module = importlib.util.find_spec(spec.package.name)
    except (ImportError, ValueError):
        return None
    for location in (module.submodule_search_locations or ()) if module else ():
        folder = Path(location).parent / spec.package.folder
        if folder.is_dir():
            return folder
    return None


def download_folder(spec: ModelSpec) -> Path:
    """Return the folder that this model is downloaded to."""
    return cache_folder("models") / spec.id.replace("/", "--") / spec.revision


def _find_files(spec: ModelSpec, folder: Path | str | None) -> ModelFiles | None:
    installed = package_folder(spec)
    names = [pinned.name for pinned in spec.files]
    required = [pinned.name for pinned in spec.files if pinned.required]
    if folder is not None:
        real = open_folder(folder)
        # Installers hard-link packages from their cache. Elsewhere, a second name would allow the bytes to be swapped.
        allow_hardlinks = installed is not None and installed.resolve() == real
        check_folder(real, names, required=required, allow_hardlinks=allow_hardlinks)
        return ModelFiles(spec=spec, folder=real, source="folder")
    local = registry.find_local(spec.id)
    if local is not None:
        if local.spec.onnx:
            check_folder(local.folder, names, required=required)
        return local
    _, locked_folder = registry.locked_models().get(spec.id, (None, None))
    if locked_folder is not None:
        if not _is_complete(locked_folder, required):
            raise ModelFileError(
                f"{locked_folder} lacks files of {spec.id!r} that the lock file pins. Restore the folder, or "
                f"run: resift models add {locked_folder} --name {spec.id}"
            )
        return ModelFiles(spec=spec, folder=locked_folder, source="local")
    candidates = [download_folder(spec)]
    if spec.hub is not None:
        repo = hub_cache_folder() / f"models--{spec.hub.repo.replace('/', '--')}"
        candidates.insert(0, repo / "snapshots" / spec.hub.revision)
    for cached in candidates:
        if _is_complete(cached, required):
            _check_cached_links(cached, names)
            return ModelFiles(spec=spec, folder=cached, source="cache")
    # Checked after the caches, so that a deliberate download takes precedence over the bundled copy.
    if installed is not None and _is_complete(installed, required):
        return ModelFiles(spec=spec, folder=installed, source="package")
    return None


def _is_complete(folder: Path, required: list[str]) -> bool:
    return all(os.path.lexists(folder / name) for name in required)


def _check_cached_links(folder: Path, names: list[str]) -> None:
    """Reject links that leave the cached repository. Links to its blobs are part of the hub's cache layout."""
    root = (folder.parent.parent if folder.parent.name == "snapshots" else folder).resolve()
    for path in (folder / name for name in names if os.path.lexists(folder / name)):
        try:
            real = path.resolve(strict=True)
        except (OSError, RuntimeError) as exc:
            raise ModelFileError(f"Cached model file {path} is a broken link. Delete it.") from exc
        if not real.is_relative_to(root):
            raise ModelFileError(f"Cached model file {path} links to a file outside the cache. Delete it.")


class Fetching(Event, name="model_fetching"):
    """Part of a model file has been received."""

    model: str
    file: str
    done_bytes: int
    total_bytes: int


def is_offline() -> bool:
    """Whether the environment forbids downloads."""
    values = (os.environ.get(name, "").strip().lower() for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"))
    return any(value in ("1", "true", "yes", "on") for value in values)


def hub_endpoint() -> str:
    """Return the hub's address, or `HF_ENDPOINT` if set. It must use https, or http on this machine."""
    url = os.environ.get("HF_ENDPOINT") or _HUB
    try:
        parts = urllib.parse.urlsplit(url)
        host = parts.hostname
    except ValueError as exc:
        raise ModelFileError("HF_ENDPOINT is not a URL.") from exc
    if parts.username or parts.password:
        raise ModelFileError("HF_ENDPOINT contains a user name or password. Remove it.")
    if not host or not (parts.scheme == "https" or (parts.scheme == "http" and host in _LOOPBACK)):
        raise ModelFileError(
            f"HF_ENDPOINT is {parts.scheme or 'no scheme'}://{host or ''}; models are downloaded over https, "
            "or over http from this machine."
        )
    return url.rstrip("/")


def download_model(
    spec: ModelSpec,
    folder: Path,
    *,
    progress: Sink | None = None,
    time_limit_s: float = TIME_LIMIT_S,
    clock: Callable[[], float] = time.monotonic,
) -> Path:
    """Download the missing files of a model into the folder and return it; a second process waits for the first."""
    if spec.hub is None:
        raise ModelFileError(f"{spec.id!r} is not on the hub at a pinned revision.")
    if is_offline():
        raise ModelFileError(f"{spec.id!r} is not downloaded: {_OFFLINE}.")
    hub = _Hub(spec.hub.repo, progress, clock, clock() + time_limit_s)
    # Files are moved to their final place only after verification.
    staging = folder.with_name(folder.name + ".part")
    with file_lock(folder.with_name(folder.name + ".lock"), error=ModelFileError):
        for pinned in spec.files:
            target = folder / pinned.name
            if target.exists():
                verify(target, pinned)
            elif pinned.required:
                subject = f"{pinned.name!r} of {spec.id!r}"
                with _translate_errors(subject, "Check the network and HF_ENDPOINT, then try again to resume."):
                    path = hub.fetch(pinned.name, spec.hub.revision, staging, model=spec.id, pinned_bytes=pinned.size)
                try:
                    verify(path, pinned)
                except ModelFileError as exc:
                    path.unlink(missing_ok=True)
                    raise ModelFileError(f"The download of {subject} does not match its pin and was deleted.") from exc
                try:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    path.replace(target)
                except OSError as exc:
                    raise ModelFileError(f"Cannot write to {target.parent}: {exc.strerror}.") from exc
        shutil.rmtree(staging, ignore_errors=True)
    return folder


def download_repository(repo: str, revision: str, *, progress: Sink | None = None) -> tuple[Path, str]:
    """Download the model files of a hub repository, not yet pinned; return their folder and the exact commit."""
    from resift.models.hf_folder import needed_files

    command = f"resift models add ./folder --name {repo}"
    if is_offline():
        raise ModelFileError(f"{repo!r} is not downloaded: {_OFFLINE}. Add a local folder: {command}")
    hub = _Hub(repo, progress, time.monotonic, time.monotonic() + TIME_LIMIT_S)
    with _translate_errors(repr(repo), f"Check the name, the network and HF_ENDPOINT, or run: {command}"):
        commit, names = hub.list_files(revision)
        folder = cache_folder("models") / repo.replace("/", "--") / commit
        for name in needed_files(names):
            if not (folder / name).is_file():
                hub.fetch(name, commit, folder, model=repo)
        shutil.rmtree(folder / ".cache", ignore_errors=True)  # metadata written by the client
    return folder, commit


class _Hub:
    """Client for one hub repository, without a token and with a time limit."""

    def __init__(self, repo: str, progress: Sink | None, clock: Callable[[], float], ends_at: float) -> None:
        # With telemetry on, the client reports the calling program and requests a list of known programs.
        os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
        self._client = require("huggingface_hub", extra="local")
        self._repo, self._progress, self._clock, self._ends_at = repo, progress, clock, ends_at
        # Models are public, so a token in the environment must not be sent.
        self._options: JsonObject = {"endpoint": hub_endpoint(), "token": False, "user_agent": "resift"}

    def list_files(self, revision: str) -> tuple[str, list[str]]:
        """Return the exact commit of a revision and the names of its files."""
        info = self._client.HfApi(**self._options).model_info(self._repo, revision=revision)
        return str(info.sha), [sibling.rfilename for sibling in info.siblings or ()]

    def fetch(self, name: str, revision: str, folder: Path, *, model: str, pinned_bytes: int | None = None) -> Path:
        """Download one file into the folder; abort as soon as more bytes arrive than pinned."""
        subject = f"Downloading {name!r} of {model!r}"

        def report(done_bytes: int, announced_bytes: int) -> None:
            total_bytes = announced_bytes if pinned_bytes is None else pinned_bytes
            if pinned_bytes is not None and done_bytes > pinned_bytes:
                raise ModelFileError(f"{subject} failed: the hub sent more than the {pinned_bytes:,} pinned bytes.")
            if self._clock() > self._ends_at:
                raise ModelFileError(f"{subject} took too long. Try again to resume.")
            emit(self._progress, Fetching(model=model, file=name, done_bytes=done_bytes, total_bytes=total_bytes))

        report(0, 0)
        self._client.hf_hub_download(
            self._repo, name, revision=revision, local_dir=folder, tqdm_class=_progress_class(report), **self._options
        )
        return folder / name


@contextmanager
def _translate_errors(subject: str, advice: str) -> Iterator[None]:
    """Convert all exceptions of the client, including those of its HTTP library, to ModelFileError."""
    try:
        yield
    except ModelFileError:
        raise
    except Exception as exc:
        status = getattr(getattr(exc, "response", None), "status_code", None)
        problem = f"the hub returned status {status}" if status else f"{type(exc).__name__}: {exc}".rstrip(".")
        raise ModelFileError(f"Downloading {subject} failed: {problem}. {advice}") from exc


def _progress_class(report: Callable[[int, int], None]) -> type:
    """Return a silent tqdm class that reports received and expected bytes; `report` may raise to abort."""
    base: type = require("tqdm.auto", extra="local").tqdm

    class Progress(base):  # type: ignore[misc]  # the base class is known only at run time
        def __init__(self, *args: object, **options: object) -> None:
            self.done_bytes = int(str(options.get("initial") or 0))
            self.total_bytes = int(str(options.get("total") or 0))
            super().__init__(*args, **{**options, "disable": True})

        def update(self, n: float | None = 1) -> None:
            self.done_bytes += int(n or 0)
            report(self.done_bytes, self.total_bytes)

    return Progress
