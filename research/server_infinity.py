"""`resift serve` beside infinity: the same architecture, the same requests, 1, 8 and 32 clients.

infinity runs the cross-encoder's shape in torch with random weights, since only the int8 file is here; what a
pass costs does not depend on the values. Clients obey Retry-After; time counts from the first attempt.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

from benchmarks.harness import ENVS, peer_env
from resift.models.locate import resolve
from resift.rerankers.cross_encoder import DEFAULT_MODEL
from tests.server.load import Load, closed_loop, request_bytes
from tests.server.process import real

REQUIREMENTS = (
    "torch==2.13.0",
    "transformers<4.50",
    "optimum<1.24",
    "click<8.2",
    "infinity-emb[server]==0.0.78",
    "sentence-transformers<4",
    "pandas<3",
    "pyarrow<20",
)
CLIENTS = (1, 8, 32)
DOCUMENTS, WORDS = 20, 90
TEXT = (
    "the sea was calm when ship came into harbour and light of tower turned over water while men on deck sang"
)
VOCABULARY = TEXT.split()

MAKE_MODEL = """
import sys, torch
from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast
source, target = sys.argv[1:]
torch.manual_seed(0)
config = BertConfig(
    hidden_size=384, num_hidden_layers=12, num_attention_heads=12, intermediate_size=1536, num_labels=1
)
BertForSequenceClassification(config).save_pretrained(target)
names = {"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]"}
tokenizer = PreTrainedTokenizerFast(tokenizer_file=source, model_max_length=512, **names)
tokenizer.save_pretrained(target)
"""


def requests(path: str) -> list[bytes]:
    """Return requests of 20 documents of about 100 tokens."""
    seed = random.Random(5)
    return [
        request_bytes(
            path,
            {
                "model": "m",
                "query": "when did the ship come into the harbour",
                "documents": [" ".join(seed.choices(VOCABULARY, k=WORDS)) for _ in range(DOCUMENTS)],
            },
        )
        for _ in range(64)
    ]


def compare(*, quick: bool) -> dict[str, Any]:
    """Return throughput and latency of both, and the ratios."""
    python = peer_env("infinity", REQUIREMENTS)
    folder = _model(python)
    seconds = 5.0 if quick else 30.0
    found: dict[str, Any] = {"infinity": {}, "resift": {}}
    server = real("--any-model", "--embedder", "none", "--no-access-log")
    try:
        with _infinity(python, folder) as theirs:
            ports = {"infinity": theirs, "resift": server.port}
            # In turns, the other one idle: whatever else the machine does meets both.
            for clients in CLIENTS:
                for name, port in ports.items():
                    found[name][clients] = _measured(port, clients, seconds)
    finally:
        server.stop()
    found["ratios"] = {
        str(clients): {
            "throughput": round(
                found["resift"][clients]["pairs_per_s"] / found["infinity"][clients]["pairs_per_s"], 2
            ),
            "p95": round(found["resift"][clients]["p95_s"] / found["infinity"][clients]["p95_s"], 3),
        }
        for clients in CLIENTS
    }
    return found


def _measured(port: int, clients: int, seconds: float) -> dict[str, Any]:
    asked = requests("/rerank")
    asyncio.run(closed_loop(port, asked, connections=1, seconds=1.0))
    return _row(asyncio.run(closed_loop(port, asked, connections=clients, seconds=seconds, patient=True)))


def _row(load: Load) -> dict[str, Any]:
    return {
        "pairs_per_s": round(load.count(200) * DOCUMENTS / load.seconds, 1),
        "p50_s": round(load.at(0.5), 3),
        "p95_s": round(load.at(0.95), 3),
        "statuses": {status: load.count(status) for status in sorted(load.answers)},
    }


def _model(python: Path) -> Path:
    folder = ENVS / "infinity-model"
    if not (folder / "config.json").exists():
        tokenizer = resolve(DEFAULT_MODEL).folder / "tokenizer.json"
        subprocess.run([str(python), "-c", MAKE_MODEL, str(tokenizer), str(folder)], check=True)
    return folder


class _infinity:  # noqa: N801 - used as a context manager, like a function
    """infinity on a free port of this machine."""

    def __init__(self, python: Path, folder: Path) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        words = [
            str(python.parent / "infinity_emb"), "v2", "--model-id", str(folder), "--engine", "torch",
            "--device", "cpu", "--no-bettertransformer", "--no-compile", "--dtype", "float32",
            "--host", "127.0.0.1", "--port", str(self.port), "--served-model-name", "m",
        ]  # fmt: skip
        env = {
            **os.environ,
            "HF_HUB_OFFLINE": "1",
            "DO_NOT_TRACK": "1",
            "INFINITY_ANONYMOUS_USAGE_STATS": "0",
        }
        self._process = subprocess.Popen(words, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)

    def __enter__(self) -> int:
        end = time.monotonic() + 180
        body = json.dumps({"model": "m", "query": "q", "documents": ["a"]}).encode()
        while True:
            try:
                asked = urllib.request.Request(
                    f"http://127.0.0.1:{self.port}/rerank", body, {"content-type": "application/json"}
                )
                with urllib.request.urlopen(asked, timeout=10):
                    return self.port
            except OSError:
                if self._process.poll() is not None or time.monotonic() > end:
                    told = self._process.stderr.read().decode()[-2000:] if self._process.stderr else ""
                    raise RuntimeError(f"infinity did not start: {told}") from None
                time.sleep(0.5)

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
        if self._process.stderr:
            self._process.stderr.close()
