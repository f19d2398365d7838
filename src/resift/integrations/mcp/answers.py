"""What the tools return: typed, so that clients get a schema and structured output."""

from __future__ import annotations

from pydantic import BaseModel, Field

from resift.types import JsonObject


class FoundDocument(BaseModel):
    """One hit of a search."""

    rank: int = Field(description="1 is the best")
    id: str = Field(description="pass it to fetch for the whole text, or to why for the reason")
    title: str
    snippet: str = Field(description="the part of the text that has the words asked for")
    score: float | None = Field(description="larger is better; null where nobody judged it")
    metadata: JsonObject


class SearchAnswer(BaseModel):
    """The best documents for a question."""

    hits: list[FoundDocument]
    degraded: bool = Field(description="whether something did less than it was asked to")
    reason: str | None = Field(description="what failed or was skipped")


class RerankedDocument(BaseModel):
    """One of the documents given, at its new place."""

    index: int = Field(description="its place in the list that was given, from 0")
    score: float | None


class RerankAnswer(BaseModel):
    """The documents given, best first."""

    results: list[RerankedDocument]
    degraded: bool
    reason: str | None


class Source(BaseModel):
    """A document that an answer rests on."""

    number: int
    id: str
    title: str
    text: str


class AskAnswer(BaseModel):
    """An answer with the numbers of its sources, or the honest word that there is none."""

    answer: str
    found: bool
    extractive: bool = Field(description="whether the answer quotes its sources word for word")
    sources: list[Source]
    degraded: bool
    reason: str | None


class WhyAnswer(BaseModel):
    """Why a document stands where it stands, or is absent."""

    why: str


class Document(BaseModel):
    """A whole document."""

    id: str
    text: str
    metadata: JsonObject
    truncated: bool = Field(description="whether the text was longer than what is sent at once")


class WriteAnswer(BaseModel):
    """What was written or removed."""

    ids: list[str] = []
    count: int
