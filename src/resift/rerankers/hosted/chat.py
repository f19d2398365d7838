"""Any OpenAI-compatible chat endpoint: messages in, one text out. For rerankers and answer writers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict, Unpack

from resift.deadline import Deadline
from resift.errors import ConfigError, ProviderBadAnswer
from resift.rerankers.hosted.client import at_least
from resift.rerankers.hosted.connecting import ConnectionOptions, connect
from resift.types import JsonMapping, JsonValue
from resift.validation import check_arguments

PATH = "/v1/chat/completions"


class Message(TypedDict):
    """One turn of a conversation."""

    role: Literal["system", "user", "assistant"]
    content: str


@dataclass(frozen=True, slots=True)
class Completion:
    """What the model wrote; `finished` is False when it was cut off by its length limit."""

    text: str
    finished: bool = True

    def __repr__(self) -> str:
        return f"Completion({len(self.text)} characters, finished={self.finished})"


class ChatClient:
    """Asks one model at one OpenAI-compatible endpoint.

    No key is sent unless one is given or `api_key_env` names where it is: a key of one vendor must
    not travel to another's address. `body` adds fields to each request; a value of None drops one.
    """

    @check_arguments
    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        body: JsonMapping | None = None,
        max_tokens: int = 1024,
        temperature: float = 0.0,
        name: str = "chat",
        **connection: Unpack[ConnectionOptions],
    ) -> None:
        if not isinstance(model, str) or not model:
            raise ConfigError(f"{name}: model is {model!r}; name the model that the endpoint serves.")
        at_least(name, "max_tokens", max_tokens, least=1)
        at_least(name, "temperature", temperature, least=0)
        patient: ConnectionOptions = {"timeout_s": 30.0, "max_concurrency": 4, **connection}
        self._client = connect(name, base_url, patient, message_at=("error", "message"))
        self.name = name
        self.model = model
        self._body = {"temperature": temperature, "max_tokens": max_tokens, **(body or {})}

    def __repr__(self) -> str:
        return f"ChatClient({self._client.endpoint.base_url!r}, {self.model!r})"

    @property
    def timeout_s(self) -> float:
        """How long one request may take, whatever the deadline."""
        return self._client.timeout_s

    @property
    def breaker_key(self) -> tuple[str, str, str, str]:
        """What fails together."""
        return self._client.breaker_key(self.model)

    async def complete(
        self, messages: Sequence[Message], *, deadline: Deadline, max_tokens: int | None = None
    ) -> Completion:
        """Return what the model answers, within the deadline; raises a ProviderError otherwise."""
        fields = {**self._body, **({"max_tokens": max_tokens} if max_tokens else {})}
        payload = {
            "model": self.model,
            "messages": [dict(message) for message in messages],
            "stream": False,
            **{key: value for key, value in fields.items() if value is not None},
        }
        return self._read(await self._client.post(PATH, payload, deadline=deadline))

    def _read(self, answer: JsonValue) -> Completion:
        try:
            choice = answer["choices"][0]
            text = choice["message"]["content"]
        except (TypeError, KeyError, IndexError):
            text = None
        if not isinstance(text, str) or not text.strip():
            raise ProviderBadAnswer(
                f"{self.name} answered 200, but there is no text in it.", provider=self.name, status=200
            )
        return Completion(text, finished=choice.get("finish_reason") != "length")
