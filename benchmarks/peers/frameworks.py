"""The rerankers that LangChain, LlamaIndex and Haystack bring themselves, on the weights that Resift uses.

They run PyTorch, so the int8 weights of the ONNX file are written as a model of 32-bit floats first: the same
numbers, computed with in floats. Each function returns a ranker as in peers/same_order.py.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

Rank = Callable[[str, Sequence[str]], list[tuple[int, float]]]


def weights(folder: Path) -> dict[str, Any]:
    """Return every weight of the ONNX file as floats, under the names that PyTorch's BERT has."""
    import numpy as np

    from resift.models.onnx_bert import HEAD_SHAPES, LAYER_SHAPES, OnnxBert
    from resift.models.onnx_reader import read_graph

    file = OnnxBert(read_graph((folder / "model.onnx").read_bytes()))
    found: dict[str, Any] = {}
    rows = {"word": file.sizes.words, "token_type": file.sizes.token_types, "position": file.sizes.positions}
    for kind, count in rows.items():
        levels, scale, zero = file.embedding(f"{kind}_embeddings", count)
        found[f"bert.embeddings.{kind}_embeddings.weight"] = (levels.astype(np.float32) - zero) * scale
    norms = ["embeddings.LayerNorm"]
    modules = {f"{name}": (name if name == "classifier" else f"bert.{name}", HEAD_SHAPES[name]) for name in HEAD_SHAPES}
    for layer in range(file.sizes.layers):
        start = f"encoder.layer.{layer}."
        norms += [start + "attention.output.LayerNorm", start + "output.LayerNorm"]
        modules |= {start + name: (f"bert.{start}{name}", shape) for name, shape in LAYER_SHAPES.items()}
    for module, (name, shape) in modules.items():
        levels, scale, bias = file.linear(module, shape)
        found[f"{name}.weight"] = np.ascontiguousarray((levels * scale).T.astype(np.float32))
        found[f"{name}.bias"] = bias
    for norm in norms:
        found[f"bert.{norm}.weight"], found[f"bert.{norm}.bias"] = file.norm(norm)
    return found


@cache
def torch_folder(folder: Path) -> str:
    """Write model and tokenizer as Hugging Face lays them out; return the new folder."""
    import torch
    from transformers import BertConfig, BertForSequenceClassification, PreTrainedTokenizerFast

    shape = BertConfig(
        hidden_size=384, num_hidden_layers=12, num_attention_heads=12, intermediate_size=1536, num_labels=1
    )
    model = BertForSequenceClassification(shape)
    state = {name: torch.from_numpy(value.copy()) for name, value in weights(folder).items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    if unexpected or [name for name in missing if not name.endswith("position_ids")]:
        raise RuntimeError(f"weights do not fit: {missing} {unexpected}")
    target = tempfile.mkdtemp()
    model.save_pretrained(target)
    tokens = {name: f"[{name[:3].upper()}]" for name in ("pad_token", "cls_token", "sep_token", "unk_token")}
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), model_max_length=512, **tokens)
    tokenizer._tokenizer.no_padding()
    tokenizer.save_pretrained(target)
    return target


def langchain(folder: Path) -> Rank:
    from langchain_classic.retrievers.document_compressors import CrossEncoderReranker
    from langchain_community.cross_encoders import HuggingFaceCrossEncoder
    from langchain_core.documents import Document

    model = HuggingFaceCrossEncoder(model_name=torch_folder(folder), model_kwargs={"device": "cpu"})

    def rank(query, passages):
        documents = [Document(text, metadata={"at": at}) for at, text in enumerate(passages)]
        found = CrossEncoderReranker(model=model, top_n=len(passages)).compress_documents(documents, query)
        # LangChain keeps no score: for one passage at a time it is asked from the model itself.
        scores = model.score([(query, one.page_content) for one in found])
        return [(one.metadata["at"], float(score)) for one, score in zip(found, scores, strict=True)]

    return rank


def llama_index(folder: Path) -> Rank:
    from llama_index.core.postprocessor import SentenceTransformerRerank
    from llama_index.core.schema import NodeWithScore, TextNode

    reranker = SentenceTransformerRerank(model=torch_folder(folder), top_n=1000, device="cpu")

    def rank(query, passages):
        nodes = [NodeWithScore(node=TextNode(id_=str(at), text=text)) for at, text in enumerate(passages)]
        found = reranker.postprocess_nodes(nodes, query_str=query)
        return [(int(one.node.node_id), float(one.score)) for one in found]

    return rank


def haystack(folder: Path) -> Rank:
    from haystack import Document
    from haystack.utils import ComponentDevice
    from haystack_integrations.components.rankers.sentence_transformers import SentenceTransformersSimilarityRanker

    ranker = SentenceTransformersSimilarityRanker(
        model=torch_folder(folder), top_k=1000, device=ComponentDevice.from_str("cpu"), scale_score=False
    )
    ranker.warm_up()

    def rank(query, passages):
        documents = [Document(id=str(at), content=text) for at, text in enumerate(passages)]
        found = ranker.run(query=query, documents=documents)["documents"]
        return [(int(one.id), float(one.score)) for one in found]

    return rank


FRAMEWORKS = {
    "langchain CrossEncoderReranker": langchain,
    "llama-index SentenceTransformerRerank": llama_index,
    "haystack SentenceTransformersSimilarityRanker": haystack,
}
