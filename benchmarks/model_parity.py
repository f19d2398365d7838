"""Compare the native engine with transformers and sentence-transformers on random models of real shapes.

    python -m benchmarks.model_parity                      # all shapes; needs torch and sentence-transformers
    python -m benchmarks.model_parity --only MiniLM-L-12   # some shapes; keeps the other results
    python -m benchmarks.model_parity --only real-weights  # nDCG@10 of int8 and fp32, with folders of weights
    python -m benchmarks.model_parity --others             # tau of bfloat16 and of other int8 engines, too

For each shape: the largest difference of fp32 scores from the reference, relative to their spread, and
Kendall's tau between int8 and fp32 on random pairs. Weights have the initialization of transformers, the
vocabulary is reduced to 1,000 words, and lengths are spread evenly on a logarithmic scale. The score of an
embedder is the cosine with the vector of a fixed text.
"""

from __future__ import annotations

import itertools
import json
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import option_parser, read_results, report
from resift.models.hf_folder import read_model_folder
from resift.models.packed_weights import pack_network
from resift.models.session import StaticSession, TransformerSession
from resift.native.library import native_kernel

WORDS, PAIRS, REFERENCES = 1000, 200, 24
STATIC = "embedder potion-base-8M (static)"
DENSE_LENGTHS = (1, 2, 7, 64, 100, 112, 113, 257)


@dataclass(frozen=True)
class Shape:
    """One network: how it is built, its longest text, and how it becomes a score or a vector.

    `modules` are those of sentence-transformers: an Ettin head, or the pooling of an embedder.
    """

    build: Callable[[], Any]
    longest: int = 512
    modules: str = ""
    flash_names: bool = False
    pairs: int = PAIRS
    pair_length: int = 128


def shapes() -> dict[str, Shape]:
    """Return the shapes by name, the quick ones first."""
    import transformers as t

    def bert(hidden: int, layers: int, heads: int = 12, *, head: bool = True, ffn: int = 0) -> Any:
        kind = t.BertForSequenceClassification if head else t.BertModel
        return kind(
            t.BertConfig(vocab_size=WORDS, hidden_size=hidden, num_hidden_layers=layers, num_labels=1,
                         num_attention_heads=heads, intermediate_size=ffn or 4 * hidden)
        )  # fmt: skip

    def electra(hidden: int, embedding: int, layers: int, heads: int, *, head: bool = True) -> Any:
        kind = t.ElectraForSequenceClassification if head else t.ElectraModel
        return kind(
            t.ElectraConfig(vocab_size=WORDS, embedding_size=embedding, hidden_size=hidden, num_labels=1,
                            num_hidden_layers=layers, num_attention_heads=heads, intermediate_size=4 * hidden)
        )  # fmt: skip

    def distilbert(*, head: bool = True) -> Any:
        kind = t.DistilBertForSequenceClassification if head else t.DistilBertModel
        return kind(t.DistilBertConfig(vocab_size=WORDS, num_labels=1))

    def xlm(hidden: int, layers: int, positions: int = 514, *, head: bool = True) -> Any:
        kind = t.XLMRobertaForSequenceClassification if head else t.XLMRobertaModel
        return kind(
            t.XLMRobertaConfig(vocab_size=WORDS, hidden_size=hidden, num_hidden_layers=layers, num_labels=1,
                               num_attention_heads=hidden // 64 if hidden > 384 else 12,
                               intermediate_size=4 * hidden, max_position_embeddings=positions,
                               type_vocab_size=1, layer_norm_eps=1e-5, pad_token_id=1)
        )  # fmt: skip

    def modern(hidden: int, layers: int, ffn: int, pooling: str | None) -> Any:
        kind = t.ModernBertModel if pooling is None else t.ModernBertForSequenceClassification
        config = t.ModernBertConfig(
            vocab_size=WORDS, hidden_size=hidden, num_hidden_layers=layers, num_labels=1, pad_token_id=0,
            num_attention_heads=hidden // 64, intermediate_size=ffn, classifier_pooling=pooling or "cls",
            attn_implementation="sdpa", max_position_embeddings=8192, cls_token_id=1, sep_token_id=2,
            bos_token_id=1, eos_token_id=2,
        )  # fmt: skip
        return kind(config)

    return {
        "TinyBERT-L-2": Shape(lambda: bert(128, 2, 2)),
        "TinyBERT-L-4": Shape(lambda: bert(312, 4, ffn=1200)),
        "MiniLM-L-6": Shape(lambda: bert(384, 6)),
        "MiniLM-L-12": Shape(lambda: bert(384, 12)),
        "mmarco-mMiniLM": Shape(lambda: xlm(384, 12)),
        "ettin-17m": Shape(lambda: modern(256, 7, 384, None), modules="ettin"),
        "ettin-32m": Shape(lambda: modern(384, 10, 576, None), modules="ettin"),
        "electra-small": Shape(lambda: electra(256, 128, 12, 4)),
        "embedder all-MiniLM-L6 (mean)": Shape(lambda: bert(384, 6, head=False), modules="mean"),
        "embedder bge-small (cls)": Shape(lambda: bert(384, 12, head=False), modules="cls"),
        "embedder e5-small (mean)": Shape(lambda: bert(384, 12, head=False), modules="mean"),
        "embedder arctic-embed-xs (cls)": Shape(lambda: bert(384, 6, head=False), modules="cls"),
        "embedder multilingual-e5-small (mean)": Shape(lambda: xlm(384, 12, head=False), modules="mean"),
        "embedder electra-small (mean)": Shape(lambda: electra(256, 128, 12, 4, head=False), modules="mean"),
        "DistilBERT": Shape(distilbert),
        "embedder DistilBERT (mean)": Shape(lambda: distilbert(head=False), modules="mean"),
        "electra-base": Shape(lambda: electra(768, 768, 12, 12), pair_length=128),
        "bge-reranker-base": Shape(lambda: xlm(768, 12), pair_length=128),
        "jina-reranker-v2 names": Shape(lambda: xlm(768, 12), pair_length=128, flash_names=True),
        "ModernBERT base (cls)": Shape(lambda: modern(768, 22, 1152, "cls"), pair_length=128),
        "gte-reranker-modernbert (mean)": Shape(lambda: modern(768, 22, 1152, "mean"), pair_length=128),
        "embedder gte-modernbert (cls)": Shape(lambda: modern(768, 22, 1152, None), modules="cls", pair_length=128),
        "ModernBERT, 6 layers, 8,000 tokens": Shape(lambda: modern(768, 6, 1152, "mean"), 8000, pairs=0),
        "XLM-R 8k, 3 layers, 8,000 tokens": Shape(lambda: xlm(1024, 3, 8194), 8000, pairs=0),
        "bge-reranker-v2-m3": Shape(lambda: xlm(1024, 24, 8194), 512),
        "bge-reranker-v2-m3, 8 layers": Shape(lambda: xlm(1024, 8, 8194), 512),
        "embedder bge-m3, 8 layers (cls)": Shape(lambda: xlm(1024, 8, 8194, head=False), modules="cls"),
    }


_FLASH_NAMES = (
    (r"embeddings\.LayerNorm", "emb_ln"),
    (r"encoder\.layer\.(\d+)\.attention\.output\.dense", r"encoder.layers.\1.mixer.out_proj"),
    (r"encoder\.layer\.(\d+)\.attention\.output\.LayerNorm", r"encoder.layers.\1.norm1"),
    (r"encoder\.layer\.(\d+)\.intermediate\.dense", r"encoder.layers.\1.mlp.fc1"),
    (r"encoder\.layer\.(\d+)\.output\.dense", r"encoder.layers.\1.mlp.fc2"),
    (r"encoder\.layer\.(\d+)\.output\.LayerNorm", r"encoder.layers.\1.norm2"),
)


def rename_to_flash(tensors: dict[str, Any]) -> dict[str, Any]:
    """Return the tensors of an XLM-R under the names of jina-reranker-v2."""
    import torch

    renamed: dict[str, Any] = {}
    stacked = re.compile(r"(.*encoder\.)layer\.(\d+)\.attention\.self\.(query|key|value)\.(weight|bias)")
    for name, value in tensors.items():
        if match := stacked.fullmatch(name):
            if match[3] == "query":
                parts = [tensors[name.replace(".query.", f".{part}.")] for part in ("query", "key", "value")]
                renamed[f"{match[1]}layers.{match[2]}.mixer.Wqkv.{match[4]}"] = torch.cat(parts)
            continue
        flash_name = name
        for pattern, replacement in _FLASH_NAMES:
            flash_name = re.sub(pattern, replacement, flash_name)
        renamed[flash_name] = value
    return renamed


def save(folder: Path, model: Any, shape: Shape) -> Callable[[list[int]], np.ndarray]:
    """Write the model as a folder of the hub and return a function that computes its output with torch."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True)
    model.eval()
    tensors = dict(model.state_dict())
    if shape.flash_names:
        tensors = rename_to_flash(tensors)
    save_file({key: value.contiguous() for key, value in tensors.items()}, folder / "model.safetensors")
    (folder / "config.json").write_text(model.config.to_json_string())
    (folder / "tokenizer.json").write_text("{}")
    steps: list[Any] = []
    if shape.modules:
        from sentence_transformers.models import Dense, LayerNorm, Pooling

        width = model.config.hidden_size
        pooling = "mean" if shape.modules == "mean" else "cls"
        if shape.modules == "ettin":
            first = Dense(width, width, bias=False, activation_function=torch.nn.GELU())
            steps = [first, LayerNorm(width), Dense(width, 1, activation_function=torch.nn.Identity())]
        rows = [{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}]
        for i, module in enumerate([Pooling(width, pooling_mode=pooling), *steps], start=1):
            kind = type(module).__name__
            path = folder / f"{i}_{kind}"
            path.mkdir()
            module.eval().save(str(path), safe_serialization=True)
            rows.append({"idx": i, "name": str(i), "path": path.name, "type": f"sentence_transformers.models.{kind}"})
        (folder / "modules.json").write_text(json.dumps(rows))

    types_used = getattr(model.config, "type_vocab_size", 1) > 1

    @torch.no_grad()
    def run(ids: list[int]) -> np.ndarray:
        tokens = torch.tensor([ids])
        types = {"token_type_ids": torch.tensor([token_types(ids)])} if types_used else {}
        output = model(input_ids=tokens, attention_mask=torch.ones_like(tokens), **types)
        if not shape.modules:
            return output.logits[0].numpy()
        states = output.last_hidden_state
        features = {"sentence_embedding": states.mean(1) if shape.modules == "mean" else states[:, 0]}
        for module in steps:
            features = module(features)
        return features["sentence_embedding"][0].numpy()

    return run


def token_types(ids: Sequence[int]) -> list[int]:
    """Return token types as in a pair: the first third is the query."""
    query = len(ids) // 3
    return [0] * query + [1] * (len(ids) - query)


def measure_static() -> dict[str, Any]:
    """Return the difference of a static embedder with the table of potion-base-8M: 29,528 rows of 256."""
    import torch
    from safetensors.torch import save_file

    torch.manual_seed(7)
    rng = np.random.default_rng(5)
    table = torch.randn(29_528, 256)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        save_file({"embeddings": table}, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps({"model_type": "model2vec", "normalize": True}))
        (folder / "tokenizer.json").write_text("{}")
        static = read_model_folder(folder).table
        assert static is not None
        session = StaticSession(np.array(static))
    bag = torch.nn.EmbeddingBag.from_pretrained(table, mode="mean")
    texts = [rng.integers(0, len(table), int(size)).tolist() for size in np.geomspace(1, 8000, PAIRS).round()]
    exact = np.array([bag(torch.tensor([ids]))[0].numpy() for ids in texts])
    ours = np.array([session.run(ids, []) for ids in texts])
    exact, ours = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in (exact, ours))
    expected, cosines = exact[1:] @ exact[0], ours[1:] @ ours[0]
    difference = float(np.abs(expected - cosines).max() / np.std(expected))
    return {"lengths": [1, 8000], "texts": len(texts), "fp32_difference": float(f"{difference:.1e}")}


def other_taus(model: Any, pairs: Sequence[list[int]], exact: Sequence[float], folder: Path) -> dict[str, float]:
    """Return Kendall's tau of the same cross-encoder in bfloat16 and in the int8 of torch and ONNX Runtime."""
    import copy

    import torch

    from benchmarks.model_speed import export_onnx, onnx_int8

    types_used = getattr(model.config, "type_vocab_size", 1) > 1

    @torch.inference_mode()
    def run(variant: Any) -> list[float]:
        found = []
        for ids in pairs:
            tokens = torch.tensor([ids])
            types = {"token_type_ids": torch.tensor([token_types(ids)])} if types_used else {}
            logits = variant(input_ids=tokens, attention_mask=torch.ones_like(tokens), **types).logits
            found.append(float(logits[0, 0]))
        return found

    linear = {torch.nn.Linear}
    found = {
        "torch fp32": run(model),
        "torch bfloat16": run(copy.deepcopy(model).to(torch.bfloat16)),
        "torch dynamic int8": run(torch.ao.quantization.quantize_dynamic(model, linear, dtype=torch.qint8)),
    }
    if not types_used:
        graph = folder / "model.onnx"
        export_onnx(model, np.array([[7] * 20]), graph)
        session = onnx_int8(graph, 1)
        rows = [np.array([ids]) for ids in pairs]
        inputs = [{"input_ids": row, "attention_mask": np.ones_like(row)} for row in rows]
        found["onnxruntime dynamic int8"] = [session.run(None, values)[0].item() for values in inputs]
    return {engine: round(kendall_tau(exact, values), 4) for engine, values in found.items()}


def measure(name: str, shape: Shape, *, others: bool = False) -> dict[str, Any]:
    """Return the differences of one shape."""
    import torch

    torch.manual_seed(7)
    torch.set_num_threads(1)
    kernel, rng = native_kernel(), np.random.default_rng(5)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "model"
        model = shape.build()
        reference = save(folder, model, shape)
        network = read_model_folder(folder).network
        assert network is not None
        fp32, int8 = (
            TransformerSession(pack_network(network, kernel, precision), kernel) for precision in ("fp32", "int8")
        )

    def text(size: int) -> list[int]:
        return rng.integers(5, WORDS, size).tolist()

    def run(session: TransformerSession, ids: list[int]) -> np.ndarray:
        return session.run(ids, token_types(ids))

    anchor = text(20)

    def scores(outputs: Sequence[np.ndarray], base: np.ndarray) -> np.ndarray:
        if outputs[0].size == 1:
            return np.array([float(output[0]) for output in outputs])
        return np.array([float(output @ base / np.linalg.norm(output) / np.linalg.norm(base)) for output in outputs])

    sizes = np.unique(np.geomspace(1, min(shape.longest, 512), REFERENCES).round().astype(int))
    lengths = [1, 100, 1000, shape.longest] if shape.longest > 512 else sorted({*sizes, *DENSE_LENGTHS})
    texts = [text(int(size)) for size in lengths]
    base = reference(anchor)
    exact = scores([reference(ids) for ids in texts], base)
    ours = scores([run(fp32, ids) for ids in texts], run(fp32, anchor))
    row: dict[str, Any] = {"lengths": [1, shape.longest], "texts": len(texts)}
    spread = float(np.std(exact))
    if shape.pairs:
        pairs = [text(int(size)) for size in np.geomspace(1, shape.pair_length, shape.pairs).round()]
        wide, narrow = (scores([run(session, ids) for ids in pairs], run(session, anchor)) for session in (fp32, int8))
        spread = float(np.std(wide))
        row |= {
            "pairs": shape.pairs,
            "pair_lengths": [1, shape.pair_length],
            "int8_tau": round(kendall_tau(wide, narrow), 4),
        }
        if others and not shape.modules:
            with tempfile.TemporaryDirectory() as temporary:
                row["other_tau"] = other_taus(model, pairs, wide.tolist(), Path(temporary))
    row["fp32_difference"] = float(f"{np.abs(exact - ours).max() / spread:.1e}")
    return row


def kendall_tau(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the share of ordered pairs in agreement minus that in disagreement."""
    a, b = (np.sign(np.subtract.outer(values, values)) for values in (first, second))
    pairs = np.triu_indices(len(first), k=1)
    return float(np.mean((a * b)[pairs]))


# --- real weights ---


def load_dataset(folder: Path, limit: int, best: int = 30) -> Iterator[tuple[str, dict[str, str], dict[str, int]]]:
    """Yield (query, candidates by id, grades) of a test collection: the best candidates of BM25 of each query."""
    import resift

    documents = {}
    for line in (folder / "corpus.jsonl").open(encoding="utf-8"):
        row = json.loads(line)
        documents[str(row["_id"])] = f"{row.get('title', '')}. {row['text']}".strip(". ")
    grades: dict[str, dict[str, int]] = {}
    for line in (folder / "qrels/test.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        query_id, document_id, grade = line.split("\t")
        grades.setdefault(query_id, {})[document_id] = int(grade)
    queries = {}
    for line in (folder / "queries.jsonl").open(encoding="utf-8"):
        row = json.loads(line)
        if str(row["_id"]) in grades:
            queries[str(row["_id"])] = row["text"]
    with tempfile.TemporaryDirectory() as temporary:
        index = resift.Index(Path(temporary) / "index.db", text_only=True, rerank=False)
        index.add([{"id": id, "text": text} for id, text in documents.items() if text])
        for query_id in sorted(queries)[:: max(1, len(queries) // limit)][:limit]:
            # A document is in the index as one or more passages.
            ids = dict.fromkeys(hit.id.partition("#")[0] for hit in index.search(queries[query_id], k=60))
            candidates = {id: documents[id] for id in list(ids)[:best] if id in documents}
            yield queries[query_id], candidates, grades[query_id]


def ndcg(ranked: Sequence[str], grades: dict[str, int], k: int = 10) -> float:
    """Return nDCG@k with exponential gains."""
    gains = [(2 ** max(0, grades.get(id, 0)) - 1) / np.log2(i + 2) for i, id in enumerate(ranked[:k])]
    ideal = sorted((2 ** max(0, grade) - 1 for grade in grades.values()), reverse=True)[:k]
    best = sum(gain / np.log2(i + 2) for i, gain in enumerate(ideal))
    return float(sum(gains) / best) if best else 0.0


def compare_precisions(
    folder: Path, queries: Iterable[tuple[str, dict[str, str], dict[str, int]]], max_length: int
) -> dict[str, list[float]]:
    """Return nDCG@10 of each query and precision of a real model on the candidates of BM25."""
    from resift.models.tokenizer import TextTokenizer

    model, kernel = read_model_folder(folder), native_kernel()
    tokenizer = TextTokenizer((folder / "tokenizer.json").read_bytes())
    template = tokenizer.template
    assert model.network is not None
    sessions = {
        precision: TransformerSession(pack_network(model.network, kernel, precision), kernel)
        for precision in ("fp32", "int8")
    }
    totals: dict[str, list[float]] = {"fp32": [], "int8": []}
    for query, candidates, grades in queries:
        ids = tokenizer.ids(query) or []
        for precision, session in sessions.items():
            if model.description.kind == "cross-encoder":
                room = max_length - template.size - len(ids)
                scored = {
                    id: float(session.run(*template.pair(ids, (tokenizer.ids(text) or [])[:room]))[0])
                    for id, text in candidates.items()
                }
            else:
                base = session.run(*template.single(ids[: max_length - 2]))
                vectors = {
                    id: session.run(*template.single((tokenizer.ids(text) or [])[: max_length - 2]))
                    for id, text in candidates.items()
                }
                scored = {id: float(v @ base / np.linalg.norm(v)) for id, v in vectors.items()}
            ranked = sorted(scored, key=lambda id: (-scored[id], id))
            totals[precision].append(ndcg(ranked, grades))
    return totals


def summarize(totals: dict[str, list[float]], candidates: int, max_length: int) -> dict[str, Any]:
    """Return the means and their difference."""
    means = {precision: round(float(np.mean(values)), 4) for precision, values in totals.items()}
    return {
        "queries": len(totals["fp32"]),
        "candidates": candidates,
        "max_length": max_length,
        **{f"ndcg10_{precision}": value for precision, value in means.items()},
        "difference": round(means["int8"] - means["fp32"], 4),
    }


def main(argv: Sequence[str] | None = None) -> int:
    """Measure shapes one by one; each result is written at once."""
    parser = option_parser("model_parity", __doc__)
    parser.add_argument("--only", nargs="+", metavar="SHAPE", help="some shapes, or real-weights")
    parser.add_argument("--others", action="store_true", help="also tau of bfloat16, torch int8 and ONNX Runtime int8")
    parser.add_argument("--weights", nargs="+", metavar="NAME=FOLDER", default=[], help="for real-weights")
    parser.add_argument("--data", nargs="+", type=Path, default=[], help="test collections for real-weights")
    parser.add_argument("--queries", type=int, default=50, help="queries of each test collection")
    parser.add_argument("--candidates", type=int, default=30, help="candidates of each query")
    parser.add_argument("--max-length", type=int, default=128, help="tokens of each pair or text")
    args = parser.parse_args(argv)
    names = ["TinyBERT-L-2"] if args.quick else args.only or [*shapes(), STATIC]
    if names == ["real-weights"]:
        for entry, data in itertools.product(args.weights, args.data):
            name, _, folder = entry.partition("=")
            queries = load_dataset(data, args.queries, args.candidates)
            totals = compare_precisions(Path(folder), queries, args.max_length)
            row = summarize(totals, args.candidates, args.max_length)
            real = read_results(args.results).get("real_weights", {})
            report(args, {"real_weights": {**real, f"{name} on {data.name}": row}}, keep=True)
        return 0
    for name in names:
        started = time.perf_counter()
        row = measure_static() if name == STATIC else measure(name, shapes()[name], others=args.others)
        print(f"{name}: {row} in {time.perf_counter() - started:.0f} s", file=sys.stderr, flush=True)
        earlier = read_results(args.results).get("shapes", {})
        report(
            args,
            {"kernel": native_kernel().name, "shapes": {**earlier, name: row}},
            packages=("torch", "transformers", "sentence-transformers"),
            keep=True,
        )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
