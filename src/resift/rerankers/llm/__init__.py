"""Listwise reranking by a chat model: prompt, answer, and the sliding window between them."""

from __future__ import annotations

from resift.rerankers.llm.scorer import LLMReranker

__all__ = ["LLMReranker"]
