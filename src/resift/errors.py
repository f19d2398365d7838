"""Every exception Resift raises, and nothing else.

    ResiftError
    ├── InputError (ValueError)              an invalid argument or invalid data
    │   ├── InvalidHitError                  a candidate without an id, or with an invalid score
    │   ├── DuplicateIdError                 two candidates of one list have the same id
    │   └── DataFormatError                  a file that cannot be read: names file and line
    ├── FileWriteError (OSError)             a file that cannot be written: names it
    ├── ConfigError (ValueError)             a pipeline file with a mistake: names file and line
    ├── PluginLoadError                      a plugin that exists but does not load
    │   ├── RerankerNotFound (KeyError)
    │   ├── StoreNotFound (KeyError)
    │   ├── ProfileNotFound (KeyError)       no gate profile of that name; also an InputError
    │   ├── PluginClashError                 two packages offer the same name
    │   └── MissingExtraError (ImportError)  an optional package is not installed
    ├── ModelError
    │   ├── UnsupportedLanguageError (ValueError) a language that the model was not trained on
    │   ├── ModelNotAllowedError (ValueError)
    │   ├── ModelFileError                   a file that is missing, changed or unsafe
    │   ├── ModelLoadError                   verified files that the runtime cannot load
    │   └── ModelProbeError                  a model whose scores look wrong, so it is not pinned
    ├── StoreError                           a store that failed; `transient` says whether to try again
    │   └── UnsafeCypherError (ValueError)   a statement the guard refuses
    ├── RetrievalError                       every store failed: carries the failures
    ├── CapabilityError (PermissionError)    a missing capability, before any I/O
    ├── DeadlineExceeded (TimeoutError)
    ├── CostLimitExceeded                    not called, because it would cost more than a limit
    └── ProviderError                        a hosted reranker or chat endpoint failed
        ├── ProviderTimeout
        ├── ProviderUnreachable              refused, reset, DNS, TLS
        ├── ProviderRateLimited              429, or 503 with Retry-After
        ├── ProviderAuthError                401 or 403
        ├── ProviderRejected                 400, 404, 413, 422: our request is wrong
        ├── ProviderServerError              5xx, 408
        ├── ProviderBadAnswer                200 with an invalid answer
        └── CircuitOpenError                 not called, because the breaker is open

Breakers and tiers read `transient`: True means that the same call may work later.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Mapping
from types import ModuleType

from resift._internal.lazy_exports import renamed_names


class ResiftError(Exception):
    """Root of every error that Resift raises on purpose."""

    transient: bool = False

    def __str__(self) -> str:
        # KeyError would otherwise print the message in quotes.
        return str(self.args[0]) if self.args else ""


class InputError(ResiftError, ValueError):
    """An argument or a piece of data that cannot be used; the message says what is allowed."""


class InvalidHitError(InputError):
    """A candidate that cannot become a hit."""


class DuplicateIdError(InputError):
    """Two candidates of one list share an id."""


class _Located:
    """Adds the file and the line in front of the message."""

    def __init__(self, message: str, *, file: str | None = None, line: int | None = None) -> None:
        place = ":".join(str(part) for part in (file, line) if part is not None)
        super().__init__(f"{place}: {message}" if place else message)  # type: ignore[call-arg]
        self.file = file
        self.line = line


class DataFormatError(_Located, InputError):
    """A data file with a mistake in it."""


class FileWriteError(ResiftError, OSError):
    """A file that cannot be written; the message names it and says why."""


class ConfigError(_Located, ResiftError, ValueError):
    """A configuration that cannot be built."""


class PluginLoadError(ResiftError):
    """A plugin could not be loaded."""


class RerankerNotFound(PluginLoadError, KeyError):
    """No plugin of that name in the group `resift.rerankers`."""


class StoreNotFound(PluginLoadError, KeyError):
    """No plugin of that name in the group `resift.stores`."""


class ProfileNotFound(PluginLoadError, InputError, KeyError):
    """No plugin of that name in the group `resift.gate_profiles`."""


class PluginClashError(PluginLoadError):
    """Two installed packages offer the same plugin name."""


class MissingExtraError(PluginLoadError, ImportError):
    """An optional dependency is missing; the message is the line that installs it."""

    HINT = "is not installed. Run: "

    def __init__(self, module: str, extra: str = "", *, package: str = "") -> None:
        command = f"pip install {package}" if package else install_command(extra)
        super().__init__(f"{module!r} {self.HINT}{command}")
        self.module = module
        self.extra = extra


class ModelError(ResiftError):
    """A local model cannot be used."""


class ModelNotAllowedError(ModelError, ValueError):
    """The model is not on the allowlist."""


class ModelFileError(ModelError):
    """A model file is missing, was changed, or is of a kind that is never loaded."""


class UnsupportedLanguageError(ModelError, InputError):
    """A query or texts in a language that the model was not trained on."""


class ModelLoadError(ModelError):
    """The runtime refused verified files."""


class ModelProbeError(ModelError):
    """The scores of a model look wrong: unrelated texts above the answer, constant or infinite scores."""


class StoreError(ResiftError):
    """A store failed."""

    def __init__(self, message: str, *, store: str = "", transient: bool = False) -> None:
        super().__init__(message)
        self.store = store
        self.transient = transient


class UnsafeCypherError(StoreError, ValueError):
    """A Cypher statement that is not provably read-only; line and column count from 1."""

    def __init__(self, reason: str, *, line: int = 1, column: int = 1, store: str = "") -> None:
        super().__init__(
            f"Refused Cypher at line {line}, column {column}: {reason}. "
            "Allowed is one statement that only reads, with values passed as parameters.",
            store=store,
        )
        self.reason = reason
        self.line = line
        self.column = column


class RetrievalError(ResiftError):
    """No store answered."""

    transient = True

    def __init__(self, failures: Mapping[str, str]) -> None:
        reasons = "; ".join(f"{store}: {why}" for store, why in failures.items())
        super().__init__(f"All {len(failures)} stores failed. {reasons}")
        self.failures = dict(failures)


class CapabilityError(ResiftError, PermissionError):
    """A capability that the work needs was not granted."""

    def __init__(self, missing: Iterable[str]) -> None:
        self.missing = tuple(missing)
        names = ", ".join(self.missing)
        super().__init__(f"Not granted: {names}. Add it to capabilities=, or drop the store or reranker.")


class DeadlineExceeded(ResiftError, TimeoutError):
    """The deadline passed before there was a result."""

    transient = True


class CostLimitExceeded(ResiftError):
    """A call would cost more than a limit allows, so it was not made."""

    transient = True


class ProviderError(ResiftError):
    """A hosted service failed. Never carries the key, the query or a document."""

    def __init__(
        self, message: str, *, status: int | None = None, retry_after_s: float | None = None, provider: str = ""
    ) -> None:
        super().__init__(message)
        self.provider = provider
        self.status = status
        self.retry_after_s = retry_after_s


class ProviderTimeout(ProviderError, TimeoutError):
    """The complete response did not arrive in time."""

    transient = True


class ProviderUnreachable(ProviderError, ConnectionError):
    """The connection failed or was lost."""

    transient = True


class ProviderRateLimited(ProviderError):
    """The provider asks for a pause."""

    transient = True


class ProviderAuthError(ProviderError, PermissionError):
    """The key was refused."""


class ProviderRejected(ProviderError):
    """The provider rejected the request; a retry will not help."""


class ProviderServerError(ProviderError):
    """The provider had an internal error."""

    transient = True


class ProviderBadAnswer(ProviderError):
    """The provider sent an invalid answer."""

    transient = True


class CircuitOpenError(ProviderError):
    """The breaker is open, so the provider was not called."""

    transient = True


def require(module: str, *, extra: str = "", package: str = "") -> ModuleType:
    """Import an optional dependency, or say how to install it: by an extra of Resift, or as a package."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as exc:
        if not f"{module}.".startswith(f"{exc.name}."):
            raise  # installed but broken inside: show the real cause
        raise MissingExtraError(module, extra, package=package) from exc


def install_command(extra: str) -> str:
    """Return the line that installs an extra where Resift came from: the package index, or a checkout."""
    import json
    from importlib import metadata
    from pathlib import Path
    from urllib.parse import unquote, urlsplit

    try:
        origin = json.loads(metadata.distribution("resift").read_text("direct_url.json") or "{}")
    except (metadata.PackageNotFoundError, ValueError):
        origin = {}
    checkout = Path(unquote(urlsplit(origin.get("url", "")).path))
    if "dir_info" not in origin or not (checkout / "pyproject.toml").is_file():
        return f"pip install 'resift[{extra}]'"
    editable = "-e " if origin["dir_info"].get("editable") else ""
    return f"pip install {editable}'{'.' if checkout == Path.cwd() else checkout}[{extra}]'"


def shell_path(path: object) -> str:
    """Return a path as it must be written in a shell command, with quotes where it needs them."""
    import shlex

    return shlex.quote(str(path))


def redact(exc: BaseException) -> str:
    """Return the message of our own exceptions, and only the type of others.

    The message of another exception may quote the query or a document.
    """
    return str(exc) if isinstance(exc, ResiftError) else type(exc).__name__


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return "Did you mean 'x'? Known: …" for a word that is not among the known ones."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    hint = f"Did you mean {close[0]!r}? " if close else ""
    return f"{hint}Known: {', '.join(names) or 'none'}."


__getattr__ = renamed_names(__name__, {"UnfamiliarTextError": "UnsupportedLanguageError"})
