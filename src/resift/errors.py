"""All exceptions that Resift raises.

    ResiftError
    ├── InputError (ValueError)              an invalid argument or invalid data
    │   ├── InvalidHitError                  a candidate without an id, or with an invalid score
    │   ├── DuplicateIdError                 two candidates in a list have the same id
    │   └── DataFormatError                  a file that cannot be read; the message names file and line
    ├── FileWriteError (OSError)             a file that cannot be written; the message names it
    ├── ConfigError (ValueError)             a mistake in a pipeline file; the message names file and line
    ├── PluginLoadError                      a plugin that exists but cannot be loaded
    │   ├── RerankerNotFound (KeyError)
    │   ├── StoreNotFound (KeyError)
    │   ├── ProfileNotFound (KeyError)       no gate profile with that name; also an InputError
    │   ├── PluginClashError                 two packages register the same name
    │   └── MissingExtraError (ImportError)  an optional package is not installed
    ├── ModelError
    │   ├── UnsupportedLanguageError (ValueError) a language that the model was not trained on
    │   ├── ModelNotAllowedError (ValueError)
    │   ├── ModelFileError                   a file that is missing, changed or unsafe
    │   ├── ModelLoadError                   verified files that the runtime cannot load
    │   └── ModelProbeError                  a model whose scores look wrong, so it is not pinned
    ├── StoreError                           a store failed; `transient` tells whether to try again
    │   └── UnsafeCypherError (ValueError)   a statement that the guard rejects
    ├── RetrievalError                       every store failed; `failures` has the reasons
    ├── CapabilityError (PermissionError)    a missing capability; raised before any I/O
    ├── DeadlineExceeded (TimeoutError)
    ├── CostLimitExceeded                    not called, because it would cost more than a limit
    └── ProviderError                        a hosted reranker or chat endpoint failed
        ├── ProviderTimeout
        ├── ProviderUnreachable              connection refused or reset, DNS, TLS
        ├── ProviderRateLimited              429, or 503 with Retry-After
        ├── ProviderAuthError                401 or 403
        ├── ProviderRejected                 400, 404, 413, 422: the request is invalid
        ├── ProviderServerError              5xx, 408
        ├── ProviderBadAnswer                200 with an invalid response body
        └── CircuitOpenError                 not called, because the breaker is open

Breakers and tiers use `transient`: True means that the same call may succeed later.
"""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Iterable, Mapping
from types import ModuleType

from resift._internal.lazy_exports import renamed_names


class ResiftError(Exception):
    """Base class of all errors that Resift raises on purpose."""

    transient: bool = False

    def __str__(self) -> str:
        # KeyError would otherwise print the message in quotes.
        return str(self.args[0]) if self.args else ""


class InputError(ResiftError, ValueError):
    """An argument or data that cannot be used; the message says what is allowed."""


class InvalidHitError(InputError):
    """A candidate that cannot become a hit."""


class DuplicateIdError(InputError):
    """Two candidates in a list have the same id."""


class _Located:
    """Mixin that puts the file and the line in front of the message."""

    def __init__(self, message: str, *, file: object = None, line: int | None = None) -> None:
        place = ":".join(str(part) for part in (file, line) if part is not None)
        super().__init__(f"{place}: {message}" if place else message)  # type: ignore[call-arg]
        self.file = None if file is None else str(file)
        self.line = line


class DataFormatError(_Located, InputError):
    """A data file that contains a mistake."""


class FileWriteError(ResiftError, OSError):
    """A file that cannot be written; the message names it and says why."""


class ConfigError(_Located, ResiftError, ValueError):
    """A configuration from which no pipeline can be built."""


class PluginLoadError(ResiftError):
    """A plugin could not be loaded."""


class RerankerNotFound(PluginLoadError, KeyError):
    """No plugin with that name in the group `resift.rerankers`."""


class StoreNotFound(PluginLoadError, KeyError):
    """No plugin with that name in the group `resift.stores`."""


class ProfileNotFound(PluginLoadError, InputError, KeyError):
    """No plugin with that name in the group `resift.gate_profiles`."""


class PluginClashError(PluginLoadError):
    """Two installed packages register the same plugin name."""


class MissingExtraError(PluginLoadError, ImportError):
    """An optional dependency is missing; the message contains the command that installs it."""

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
    """A model file is missing, was changed, or has a type that is never loaded."""


class UnsupportedLanguageError(ModelError, InputError):
    """The query or the texts are in a language that the model was not trained on."""


class ModelLoadError(ModelError):
    """The runtime could not load files that passed verification."""


class ModelProbeError(ModelError):
    """Unrelated texts score above the answer, or the scores are constant or infinite."""


class StoreError(ResiftError):
    """A store failed."""

    def __init__(self, message: str, *, store: str = "", transient: bool = False) -> None:
        super().__init__(message)
        self.store = store
        self.transient = transient


class UnsafeCypherError(StoreError, ValueError):
    """A Cypher statement that cannot be proved to be read-only; `line` and `column` start at 1."""

    def __init__(self, reason: str, *, line: int = 1, column: int = 1, store: str = "") -> None:
        rule = "Only one read-only statement is allowed, with values passed as parameters"
        super().__init__(f"Cypher rejected at line {line}, column {column}: {reason}. {rule}.", store=store)
        self.reason = reason
        self.line = line
        self.column = column


class RetrievalError(ResiftError):
    """All stores failed."""

    transient = True

    def __init__(self, failures: Mapping[str, str]) -> None:
        reasons = "; ".join(f"{store}: {why}" for store, why in failures.items())
        super().__init__(f"All {len(failures)} stores failed. {reasons}")
        self.failures = dict(failures)


class CapabilityError(ResiftError, PermissionError):
    """A required capability was not granted."""

    def __init__(self, missing: Iterable[str]) -> None:
        self.missing = tuple(missing)
        names = ", ".join(self.missing)
        super().__init__(f"Not granted: {names}. Add it to capabilities=, or drop the store or reranker.")


class DeadlineExceeded(ResiftError, TimeoutError):
    """The deadline passed before a result was available."""

    transient = True


class CostLimitExceeded(ResiftError):
    """A call would cost more than a limit allows, so it was not made."""

    transient = True


class ProviderError(ResiftError):
    """A hosted service failed. The error never contains the API key, the query or a document."""

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
    """The provider limited the rate of requests."""

    transient = True


class ProviderAuthError(ProviderError, PermissionError):
    """The API key was rejected."""


class ProviderRejected(ProviderError):
    """The provider rejected the request; a retry will not help."""


class ProviderServerError(ProviderError):
    """The provider had an internal error."""

    transient = True


class ProviderBadAnswer(ProviderError):
    """The provider sent an invalid response."""

    transient = True


class CircuitOpenError(ProviderError):
    """The breaker is open, so the provider was not called."""

    transient = True


def require(module: str, *, extra: str = "", package: str = "") -> ModuleType:
    """Import an optional dependency; if it is missing, the error says which extra or package to install."""
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as exc:
        if not f"{module}.".startswith(f"{exc.name}."):
            raise  # the module is installed but one of its own imports fails: show the real cause
        raise MissingExtraError(module, extra, package=package) from exc


def install_command(extra: str) -> str:
    """Return the command that installs an extra from the origin of Resift: the package index or a checkout."""
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
    """Return a path for a shell command, quoted if necessary."""
    import shlex

    return shlex.quote(str(path))


def redact(exc: BaseException) -> str:
    """Return the message of a Resift exception, or the type of any other, whose message may quote a document."""
    return str(exc) if isinstance(exc, ResiftError) else type(exc).__name__


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return "Did you mean 'x'? Known: …" for a word that is not in `known`."""
    names = sorted(known)
    close = difflib.get_close_matches(word, names, n=1, cutoff=0.5)
    hint = f"Did you mean {close[0]!r}? " if close else ""
    return f"{hint}Known: {', '.join(names) or 'none'}."


__getattr__ = renamed_names(__name__, {"UnfamiliarTextError": "UnsupportedLanguageError"})
