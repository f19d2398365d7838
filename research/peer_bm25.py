"""Peer side of resilience.py: rank_bm25 and bm25s build on the pool and score one query, timed inside."""

from __future__ import annotations

import json
import sys
import time


def rank_bm25_once(query, texts):
    from rank_bm25 import BM25Okapi

    started = time.perf_counter()
    built = BM25Okapi([text.lower().split() for text in texts])
    scores = built.get_scores(query.lower().split())
    return (time.perf_counter() - started) * 1000, scores


def bm25s_once(query, texts):
    import bm25s

    started = time.perf_counter()
    built = bm25s.BM25()
    built.index(bm25s.tokenize(texts, stopwords=None, show_progress=False), show_progress=False)
    scores = built.get_scores(
        bm25s.tokenize([query], stopwords=None, show_progress=False, return_ids=False)[0]
    )
    return (time.perf_counter() - started) * 1000, scores


ENGINES = {"rank_bm25": rank_bm25_once, "bm25s": bm25s_once}

if __name__ == "__main__":
    for line in sys.stdin:
        request = json.loads(line)
        cpu_s = time.process_time()
        took_ms, scores = ENGINES[request["engine"]](request["query"], request["texts"])
        cpu_ms = (time.process_time() - cpu_s) * 1000
        best = int(max(range(len(scores)), key=lambda at: scores[at]))
        print(json.dumps({"ms": took_ms, "cpu_ms": cpu_ms, "best": best}), flush=True)
