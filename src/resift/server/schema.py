"""Parse request bodies from JSON to msgspec structs, and describe failures in the format of each API.

A reader adds the server's limits to a struct, so the same type validates a body and describes it in OpenAPI.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import UnionType
from typing import Annotated, Generic, Literal, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Meta, Struct, defstruct

from resift.server.server_options import Limits
from resift.types import JsonObject, JsonValue
from resift.validation import NOT_BLANK, Problem, find_problems

TeiType = Literal["Empty", "Overloaded", "Unhealthy", "Backend", "Validation", "Tokenizer"]
Kind = Literal[
    "invalid", "empty", "unknown_field", "unknown_model", "too_large", "unauthorized", "overloaded",
    "unavailable", "not_found", "method", "upstream", "internal", "deadline", "foreign_host", "cross_site",
]  # fmt: skip

_KINDS: Mapping[Kind, tuple[int, TeiType, str]] = {
    "invalid": (400, "Validation", "invalid_request_error"),
    "empty": (400, "Empty", "invalid_request_error"),
    "unknown_field": (422, "Validation", "invalid_request_error"),
    "unknown_model": (404, "Validation", "not_found_error"),
    "too_large": (413, "Validation", "invalid_request_error"),
    "unauthorized": (401, "Validation", "authentication_error"),
    "overloaded": (429, "Overloaded", "rate_limit_error"),
    "unavailable": (503, "Unhealthy", "service_unavailable_error"),
    "not_found": (404, "Validation", "not_found_error"),
    "method": (405, "Validation", "invalid_request_error"),
    "upstream": (502, "Backend", "internal_error"),
    "internal": (500, "Backend", "internal_error"),
    "deadline": (504, "Backend", "timeout_error"),
    "foreign_host": (421, "Validation", "invalid_request_error"),
    "cross_site": (403, "Validation", "invalid_request_error"),
}
"""Status of each kind of failure, and its error type in TEI and OpenAI responses."""


@dataclass(eq=False)
class RequestFailed(Exception):
    """A request that failed. The message is sent to the client and never quotes a document."""

    kind: Kind
    message: str
    retry_after_s: int | None = None

    def __post_init__(self) -> None:
        super().__init__(self.message)


MessageError = defstruct("MessageError", [("message", str), ("id", str)])
DetailError = defstruct("DetailError", [("detail", str)])
MessageAndDetailError = defstruct("MessageAndDetailError", [("message", str), ("detail", str), ("id", str)])
TeiError = defstruct("TeiError", [("error", str), ("error_type", TeiType)])
OpenAIErrorDetail = defstruct("OpenAIErrorDetail", [("message", str), ("type", str), ("param", None), ("code", int)])
OpenAIError = defstruct("OpenAIError", [("error", OpenAIErrorDetail)])
OwnError = defstruct("OwnError", [("error", Kind), ("message", str), ("id", str)])


@dataclass(frozen=True, slots=True)
class ErrorForm:
    """Error format of an API: the type of the body, a function that creates it, and its own status codes."""

    type: type[Struct]
    make: Callable[[RequestFailed, int, str], Struct]
    statuses: Mapping[Kind, int] = field(default_factory=dict)

    def body(self, error: RequestFailed, request_id: str) -> tuple[int, Struct]:
        """Return the status and the body for a failure."""
        status = self.statuses.get(error.kind, _KINDS[error.kind][0])
        return status, self.make(error, status, request_id)


_make_detail = lambda error, status, id: DetailError(error.message)  # noqa: E731

COHERE = ErrorForm(MessageError, lambda error, status, id: MessageError(error.message, id))
_INVALID_422: Mapping[Kind, int] = {"invalid": 422, "unknown_model": 422}
JINA = ErrorForm(DetailError, _make_detail, _INVALID_422)
VOYAGE = ErrorForm(DetailError, _make_detail, {"unknown_model": 400, "unknown_field": 400})
COHERE_OR_JINA = ErrorForm(
    MessageAndDetailError, lambda error, status, id: MessageAndDetailError(error.message, error.message, id)
)
TEI = ErrorForm(TeiError, lambda error, status, id: TeiError(error.message, _KINDS[error.kind][1]), _INVALID_422)
OPENAI = ErrorForm(
    OpenAIError,
    lambda error, status, id: OpenAIError(OpenAIErrorDetail(error.message, _KINDS[error.kind][2], None, status)),
    {"unknown_field": 400},
)
OWN = ErrorForm(OwnError, lambda error, status, id: OwnError(error.kind, error.message, id))

_FORMS = (
    (COHERE, "/cohere/", "/v2/rerank"),
    (JINA, "/jina/"),
    (VOYAGE, "/voyage/"),
    (TEI, "/tei/", "/embed"),
    (OPENAI, "/vllm/", "/infinity/", "/v1/embeddings", "/embeddings", "/v1/models", "/score", "/v1/score"),
    (COHERE_OR_JINA, "/v1/rerank", "/rerank"),
)


def error_form_for_path(path: str) -> ErrorForm:
    """Return the error format of a path. It is used until the dialect of the body is known."""
    # The longest prefix wins: /embeddings belongs to OpenAI, although /embed belongs to TEI.
    matches = [(len(prefix), form) for form, *prefixes in _FORMS for prefix in prefixes if path.startswith(prefix)]
    return max(matches, key=lambda match: match[0], default=(0, OWN))[1]


S = TypeVar("S", bound=Struct)

NonEmpty = Annotated[str, Meta(min_length=1)]
NotBlank = Annotated[str, Meta(min_length=1, pattern=NOT_BLANK)]
DocumentId = Annotated[str, Meta(min_length=1, max_length=1000)]
ModelName = Annotated[str, Meta(max_length=400)]
Positive = Annotated[int, Meta(ge=1)]
Milliseconds = Annotated[int, Meta(ge=0, le=999_999_999)]  # a deadline of at most eleven days, as in the header
Fraction = Annotated[float, Meta(ge=0, le=1)]
Flag = bool | Literal["true", "True", "1", "false", "False", "0"]  # some clients send a boolean as a string

MAX_VALUES = 400_000  # in a body; 16 MiB of `[],[],` would block the event loop for seconds
MAX_REPAIRED_BYTES = 2 << 20  # of bodies with lone surrogates, because only the slower parser can replace them


def is_true(flag: Flag | None) -> bool:
    """Return the boolean value of a flag."""
    return flag is True or flag in ("true", "True", "1")


class RequestReader(Generic[S]):
    """Parses bodies of one type and enforces the limits of the server."""

    def __init__(self, struct: type[S], limits: Limits, *, strict: bool = False) -> None:
        self.type: type[S] = limit_struct(struct, limits, strict)
        self._decoder: msgspec.json.Decoder[S] = msgspec.json.Decoder(self.type)
        self._strict = strict

    def read(self, body: bytes) -> S:
        """Return the request, or raise RequestFailed for the first error."""
        if not self._strict and len(body) <= MAX_VALUES:
            try:
                return self._decoder.decode(body)
            except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
                pass  # parse it again below, to repair it or to describe the error
        return self.convert(parse_json(body, unique_keys=self._strict))

    def convert(self, value: JsonValue) -> S:
        """Convert a parsed body to a request, or raise RequestFailed for the first error."""
        try:
            return msgspec.convert(value, self.type)
        except msgspec.ValidationError:
            # In JSON Schema, 3.0 is an integer as well.
            value = _map_values(value, lambda leaf: int(leaf) if type(leaf) is float and leaf.is_integer() else leaf)
        problem = next(find_problems(value, self.type), None)
        if problem is None:
            return msgspec.convert(value, self.type)
        empty = problem.kind == "blank" or (problem.kind == "size" and not problem.value)
        kind: Kind = "unknown_field" if problem.kind == "unknown" else "empty" if empty else "invalid"
        raise RequestFailed(kind, _describe(problem))


def parse_json(body: bytes, *, unique_keys: bool = False) -> JsonValue:
    """Parse a UTF-8 JSON body without NaN and with limited nesting. Lone surrogates are replaced by "?"."""
    if not body.strip():
        raise RequestFailed("invalid", "The body is empty; send JSON")
    # A small body cannot contain that many values, and counting would take longer than parsing it.
    if len(body) > MAX_VALUES and sum(body.count(mark) for mark in (b",", b"[", b"{")) > MAX_VALUES:
        raise RequestFailed("too_large", f"The body has more than {MAX_VALUES} values")
    body = body.removeprefix(b"\xef\xbb\xbf")  # a byte order mark, which some clients send
    try:
        if unique_keys:
            return json.loads(body, object_pairs_hook=_refuse_repeated_keys, parse_constant=_refuse_constant)
        return msgspec.json.decode(body)
    except UnicodeDecodeError:
        raise RequestFailed("invalid", "The body is not UTF-8") from None
    except RecursionError:
        raise RequestFailed("invalid", "The body is nested too deeply") from None
    except (msgspec.MsgspecError, ValueError) as exc:
        if "surrogate" in str(exc) and len(body) <= MAX_REPAIRED_BYTES:
            return _replace_surrogates(body)
        place = str(exc).rpartition("(byte ")[2].rstrip(")")
        where = f" at byte {place}" if place.isdecimal() else ""
        # Do not chain the exception, because it may contain the complete body.
        raise RequestFailed("invalid", f"The body is not JSON{where}") from None


def _replace_surrogates(body: bytes) -> JsonValue:
    try:
        value = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise RequestFailed("invalid", "The body is not JSON") from None
    return _map_values(value, lambda leaf: leaf.encode(errors="replace").decode() if isinstance(leaf, str) else leaf)


def _map_values(value: JsonValue, change: Callable[[JsonValue], JsonValue]) -> JsonValue:
    """Apply a function to every key, text and number of a JSON value."""
    if isinstance(value, list):
        return [_map_values(item, change) for item in value]
    if isinstance(value, dict):
        return {change(key): _map_values(item, change) for key, item in value.items()}
    return change(value)


def _refuse_repeated_keys(pairs: list[tuple[str, JsonValue]]) -> JsonObject:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise RequestFailed("invalid", "The body contains a duplicate key")
    return value


def _refuse_constant(constant: str) -> None:
    raise RequestFailed("invalid", f"{constant} is not JSON")


@functools.lru_cache(maxsize=256)
def limit_struct(struct: type[S], limits: Limits, strict: bool = False) -> type[S]:
    """Return a subclass with the server's limits on texts and lists. `strict` rejects unknown fields."""
    fields = [
        (info.name, limit_type(info.type, limits), *(() if info.required else (info.default,)))
        for info in msgspec.structs.fields(struct)
    ]
    forbid = strict or struct.__struct_config__.forbid_unknown_fields
    return msgspec.defstruct(  # type: ignore[return-value]  # a subclass of its base
        struct.__name__,
        fields,
        bases=(struct,),
        module=struct.__module__,
        namespace={"__doc__": struct.__doc__},
        forbid_unknown_fields=forbid,
        kw_only=True,
    )


def limit_type(hint: object, limits: Limits) -> object:  # noqa: PLR0911 - one case per kind of type
    """Apply the server's length limits to the strings and lists in a type, unless it declares its own maximum."""
    origin, args = get_origin(hint), get_args(hint)
    if hint is str or origin is list:
        return limit_type(Annotated[hint, Meta()], limits)
    if origin is Annotated:
        base, meta = args
        length = limits.max_text_chars
        if get_origin(base) is list:
            base, length = list[limit_type(get_args(base)[0], limits)], limits.max_documents  # type: ignore[misc]
        elif base is not str:
            return hint
        length = meta.max_length or length
        return Annotated[base, Meta(min_length=meta.min_length, max_length=length, pattern=meta.pattern)]
    if origin is dict:
        return dict[args[0], limit_type(args[1], limits)]  # type: ignore[misc, valid-type]
    if origin in (Union, UnionType):
        return Union[tuple(limit_type(arg, limits) for arg in args)]  # noqa: UP007 - created at run time
    if isinstance(hint, type) and issubclass(hint, Struct):
        return limit_struct(hint, limits)
    return hint


_EXPECTED = {
    "StrType": "a string", "IntType": "an integer", "FloatType": "a number", "BoolType": "true or false",
    "ListType": "a list", "NoneType": "null", "LiteralType": "a string",
}  # fmt: skip
_JSON_NAMES = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}


def _describe(problem: Problem) -> str:  # noqa: PLR0911 - one sentence per kind of problem
    """Describe an error in one sentence, without the value, which may be a document."""
    value: JsonValue = problem.value
    expected: JsonValue = problem.expected
    # Field names come from the client as well.
    name = "".join(char if char.isprintable() else "?" for char in problem.name()[:120])
    name = name or ("''" if problem.path else "body")
    if problem.kind == "type":
        first = expected.types[0] if hasattr(expected, "types") else expected
        expected_type = _EXPECTED.get(type(first).__name__, "an object")
        return f"{name} must be {expected_type}, not {_JSON_NAMES.get(type(value), 'null')}"
    if problem.kind == "range":
        if expected.ge is not None and value < expected.ge and expected.ge > -sys.float_info.max:
            return f"{name} must be at least {expected.ge:g}"
        if expected.le is not None and value > expected.le and expected.le < sys.float_info.max:
            return f"{name} must be at most {expected.le:g}"
        return f"{name} must be a finite number"
    if problem.kind == "size":
        if len(value) < (expected.min_length or 0):
            return f"{name} must not be empty"
        unit = "characters" if isinstance(value, str) else "items"
        return f"{name} has {len(value)} {unit}; the limit is {expected.max_length}"
    sentences = {
        "blank": "must not be blank",
        "choice": f"must be one of {', '.join(problem.allowed)}",
        "missing": "is missing",
        "unknown": "is not a known field",
    }
    return f"{name} {sentences[problem.kind]}"
