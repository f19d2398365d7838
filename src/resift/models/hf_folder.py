"""Read a model folder in the layout of the Hugging Face hub; any inconsistency raises ModelFileError."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from resift._internal.arrays import Array
from resift.errors import ModelFileError, did_you_mean
from resift.models.architectures import FAMILIES, build_network
from resift.models.architectures.tensors import Config, Tensors
from resift.models.inspection import map_file, parse_json, read_tensors
from resift.models.known_models import decoder_prompts
from resift.models.network import Activation, Dense, Network, Norm, Pooling
from resift.models.packed_weights import to_float32
from resift.models.registry import LockedModel
from resift.types import Languages

CONFIG, MODULES, WEIGHTS = "config.json", "modules.json", "model.safetensors"
SHARD_INDEX = "model.safetensors.index.json"
_OPTIONAL = ("config_sentence_transformers.json", "sentence_bert_config.json", "tokenizer_config.json")
_TORCH_LENGTH = 512  # longer documents are split into windows
_UNLIMITED = 1_000_000  # tokenizer configs use 1e30 for "no limit"
_SHARD = re.compile(r"[\w.-]{1,100}\.safetensors")
_MODULE_PATH = re.compile(r"[\w.-]{0,60}")

_MODULE_ACTIVATIONS: dict[str, Activation | None] = {"Identity": None, "Tanh": "tanh", "GELU": "gelu", "ReLU": "relu"}


Read = Callable[[str], bytes]  # function that returns the bytes of a file in the folder, given its name


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ModelFolder:
    """A model folder: the model without id and pins, and its network or, for a static embedder, its token table.

    `files` are the files that the model needs. At most `positions` tokens fit. `head` lists the steps after pooling.
    """

    description: LockedModel
    files: tuple[str, ...]
    positions: int
    head: tuple[str, ...] = ()
    network: Network | None = None
    table: Array | None = None


def read_model_folder(
    folder: Path, *, read: Read | None = None, only: Collection[str] | None = None, engine: str = "native"
) -> ModelFolder:
    """Read a folder; `read` returns the bytes of small files. If `only` is set, all other files are ignored.

    A model that the native engine does not support is described for PyTorch. engine="torch" does so for any model.
    """
    reader = _FolderReader(folder, read or (lambda name: (folder / name).read_bytes()), only)
    return reader.read_model(native=engine == "native")


@dataclass(slots=True, repr=False)
class _FolderReader:
    folder: Path
    read: Read
    only: Collection[str] | None = None
    files: list[str] = field(default_factory=list)
    weights: list[str] = field(default_factory=list)
    parameters: int = 0
    others: dict[str, dict[str, object]] = field(default_factory=dict)

    def read_model(self, *, native: bool) -> ModelFolder:
        modules = self._read_modules()
        # A static embedder from sentence-transformers has no config.json.
        is_static = any(kind == "StaticEmbedding" for kind, _ in modules)
        config_values = {} if is_static and not self._exists(CONFIG) else self._read_json(CONFIG)
        if not self._exists("tokenizer.json"):
            raise ModelFileError(f"{self.folder} lacks 'tokenizer.json'. Save the model with a fast tokenizer.")
        self.files.append("tokenizer.json")
        self.others = {name: self._read_json(name) for name in _OPTIONAL if self._exists(name)}
        if config_values.get("model_type") == "model2vec" or is_static:
            return self._read_static(config_values, modules)
        path = next((path for kind, path in modules if kind == "Transformer"), "")
        nested = f"{path}/{CONFIG}"
        config = Config(self._read_json(nested) if path and self._exists(nested) else config_values)
        if not native or config.text("model_type") not in FAMILIES:
            return self._read_for_torch(config)
        network = build_network(config, _float_tensors(self._load_tensors(path)))
        if self.others.get("sentence_bert_config.json", {}).get("do_lower_case"):
            tokenizer = parse_json("tokenizer.json", self.read("tokenizer.json"))
            normalizer = str(tokenizer.get("normalizer")) if isinstance(tokenizer, dict) else ""
            if "'lowercase': True" not in normalizer and "'Lowercase'" not in normalizer:
                raise ModelFileError("sentence_bert_config.json has do_lower_case, but the tokenizer keeps upper case.")
        return self._describe(network, config, modules)

    # --- files ---

    def _exists(self, name: str) -> bool:
        return (self.only is None or name in self.only) and (self.folder / name).is_file()

    def _read_json(self, name: str) -> dict[str, object]:
        if not self._exists(name):
            raise ModelFileError(f"{self.folder} lacks {name!r}, so it is not a model folder in the hub's layout.")
        values = parse_json(name, self.read(name))
        if not isinstance(values, dict):
            raise ModelFileError(f"{name!r} is not a JSON object.")
        self.files.append(name)
        return values

    def _read_modules(self) -> list[tuple[str, str]]:
        """Return (type, path) of each sentence-transformers module; [] if there is no modules.json."""
        if not self._exists(MODULES):
            return []
        rows = parse_json(MODULES, self.read(MODULES))
        self.files.append(MODULES)
        if not isinstance(rows, list):
            raise ModelFileError("modules.json is not a list of modules.")
        modules = []
        for row in rows:
            kind, path = (row.get("type"), row.get("path", "")) if isinstance(row, dict) else (None, "")
            if not isinstance(kind, str) or not isinstance(path, str) or not _MODULE_PATH.fullmatch(path):
                raise ModelFileError("modules.json has a module without a type or with an invalid path.")
            modules.append((kind.rpartition(".")[2], "" if path == "." else path))
        return modules

    def _load_tensors(self, path: str) -> dict[str, Array]:
        prefix = f"{path}/" if path else ""
        if self._exists(prefix + WEIGHTS):
            return self._read_weights(prefix + WEIGHTS)
        if not self._exists(prefix + SHARD_INDEX):
            raise ModelFileError(
                f"{self.folder} has no {prefix + WEIGHTS!r}. Only safetensors weights are loaded. Convert "
                "other formats with transformers: model.save_pretrained(folder)."
            )
        index = self._read_json(prefix + SHARD_INDEX).get("weight_map")
        names = sorted(set(index.values())) if isinstance(index, dict) else []
        if not names or not all(isinstance(name, str) and _SHARD.fullmatch(name) for name in names):
            raise ModelFileError(f"{prefix + SHARD_INDEX!r} lists no usable files.")
        merged: dict[str, Array] = {}
        for name in names:
            tensors = self._read_weights(prefix + name)
            if duplicates := sorted(merged.keys() & tensors.keys()):
                raise ModelFileError(f"The tensor {duplicates[0][:60]!r} is in both {name!r} and another model file.")
            merged |= tensors
        return merged

    def _read_weights(self, name: str) -> dict[str, Array]:
        if not self._exists(name):
            raise ModelFileError(f"{self.folder} lacks {name!r}.")
        self.files.append(name)
        self.weights.append(name)
        tensors = read_tensors(name, map_file(self.folder / name))
        self.parameters += sum(array.size for array in tensors.values())
        return tensors

    # --- description ---

    def _describe(self, network: Network, config: Config, modules: Sequence[tuple[str, str]]) -> ModelFolder:
        head = list(network.head)
        pooling: Pooling = network.pooling if head else "mean"
        normalize = False
        for kind, path in modules:
            if kind == "Transformer":
                continue
            if kind == "Pooling":
                pooling = _read_pooling(self._read_json(f"{path}/{CONFIG}"), prompts=any(self._read_prompts().values()))
            elif kind == "Dense":
                head += self._read_dense_module(path)
            elif kind == "LayerNorm":
                width = Config(self._read_json(f"{path}/{CONFIG}")).size("dimension")
                head.append(_float_tensors(self._read_weights(f"{path}/{WEIGHTS}")).norm("norm", width, epsilon=1e-5))
            elif kind == "Normalize":
                normalize = True
            else:
                raise ModelFileError(f"modules.json has a module of type {kind!r}, which is not supported.")
        _check_head(head, network.hidden)
        network = dataclasses.replace(network, head=tuple(head), pooling=pooling)
        outputs = next((step.weight.shape[0] for step in reversed(head) if isinstance(step, Dense)), 0)
        pools = any(kind == "Pooling" for kind, _ in modules)
        return self._contents(
            network.word.shape[0],
            network.positions,
            **_decide_kind(config, outputs, has_head=bool(network.head), pools=pools),
            **self._read_prompts(),
            architecture=config.text("model_type"),
            max_length=self._find_max_length(network.positions),
            head=tuple(_describe_step(step) for step in head),
            pooling=pooling,
            normalize=normalize,
            score_activation=self._score_activation(config, outputs),
            token_types=self._uses_token_types(),
            network=network,
        )

    def _read_for_torch(self, config: Config) -> ModelFolder:
        """Describe a model that runs in PyTorch: a classifier, or a decoder with a known prompt."""
        names, kind = config.value("architectures"), config.text("model_type")
        name = str(names[0]) if isinstance(names, list) and names else ""
        if not name.endswith(("ForSequenceClassification", "ForCausalLM")):
            raise ModelFileError(
                f"The architecture {name or kind!r} has no native implementation, and PyTorch can run only sequence "
                f"classification models and decoders. {did_you_mean(kind, FAMILIES)}"
            )
        prompt = decoder_prompts().get(kind) if name.endswith("ForCausalLM") else None
        if name.endswith("ForCausalLM") and prompt is None:
            known = ", ".join(decoder_prompts())
            raise ModelFileError(f"{self.folder} is a {kind!r} decoder, but prompts are known only for {known}.")
        self._load_tensors("")
        positions = config.size("max_position_embeddings", default=_TORCH_LENGTH, max=10**7)
        table = config.value("id2label")
        outputs = 1 if prompt else len(table) if isinstance(table, dict) else 2
        return self._contents(
            config.size("vocab_size", max=10**7),
            positions,
            **_decide_kind(config, outputs, has_head=True, pools=False),
            architecture=kind,
            engine="torch-decoder" if prompt else "torch",
            max_length=min(self._find_max_length(positions), _TORCH_LENGTH),
            normalize=False,
            score_activation=self._score_activation(config, outputs),
            token_types=self._uses_token_types(),
        )

    def _read_dense_module(self, path: str) -> list[Dense | Norm | Activation]:
        config = self._read_json(f"{path}/{CONFIG}")
        if {config.get("module_input_name"), config.get("module_output_name")} - {None, "sentence_embedding"}:
            raise ModelFileError(f"{path}/{CONFIG} is a layer before pooling, which is not supported.")
        tensors = _float_tensors(self._read_weights(f"{path}/{WEIGHTS}"))
        inputs, outputs = (Config(config).size(f"{side}_features") for side in ("in", "out"))
        dense = tensors.dense("linear", outputs, inputs, bias=bool(config.get("bias", True)))
        name = str(config.get("activation_function", "Tanh")).rpartition(".")[2].removesuffix("()")
        if name not in _MODULE_ACTIVATIONS:
            known = ", ".join(_MODULE_ACTIVATIONS)
            raise ModelFileError(f"{path}/{CONFIG} has the activation {name!r}. Supported: {known}.")
        activation = _MODULE_ACTIVATIONS[name]
        return [dense] if activation is None else [dense, activation]

    def _contents(
        self,
        vocabulary: int,
        positions: int,
        *,
        head: tuple[str, ...] = (),
        network: Network | None = None,
        table: Array | None = None,
        **fields: Any,
    ) -> ModelFolder:
        """Return the folder's contents. The license and the languages come from the model card."""
        header = ""
        if self._exists("README.md"):
            with (self.folder / "README.md").open("rb") as file:
                card = file.read(20_000).decode("utf-8", "replace")
            header = card.partition("---")[2].partition("\n---")[0] if card.startswith("---") else ""
        license = re.search(r"^license:[ \t]*([\w.+-]{1,60})[ \t]*$", header, flags=re.M)
        codes = _card_languages(header)
        # Monolingual vocabularies have 30,000 to 60,000 tokens; multilingual ones have 100,000 or more.
        languages: Languages = codes or (("en",) if vocabulary < 80_000 else "any")
        model = LockedModel(
            id="",
            files=(),
            revision="",
            probed=False,
            weights=tuple(self.weights),
            parameters=self.parameters,
            languages="any" if len(codes) > 20 or "multilingual" in codes else languages,
            license=license.group(1) if license else "unknown",
            **fields,
        )
        files = tuple(dict.fromkeys(self.files))
        return ModelFolder(description=model, files=files, positions=positions, head=head, network=network, table=table)

    def _read_static(self, config: dict[str, object], modules: Sequence[tuple[str, str]]) -> ModelFolder:
        path = next((path for kind, path in modules if kind == "StaticEmbedding"), "")
        table = _build_static_table(self._load_tensors(path))
        return self._contents(
            table.shape[0],
            _UNLIMITED,
            **self._read_prompts(),
            kind="bi-encoder",
            architecture="model2vec" if config.get("model_type") == "model2vec" else "static",
            max_length=Config(config).size("seq_length", default=_UNLIMITED, max=_UNLIMITED),
            pooling="mean",
            normalize=bool(config.get("normalize", True)),
            table=table,
        )

    def _read_prompts(self) -> dict[str, Any]:
        """Return the query prefix and the document prefix."""
        declared = self.others.get("config_sentence_transformers.json", {}).get("prompts")
        prompts = declared if isinstance(declared, dict) else {}
        names = {"query_prefix": ("query", "s2p_query"), "document_prefix": ("document", "passage", "corpus")}
        return {
            prefix: next((prompts[name] for name in keys if isinstance(prompts.get(name), str)), "")
            for prefix, keys in names.items()
        }

    def _score_activation(self, config: Config, outputs: int) -> str:
        """Return the score activation, chosen by the same rule as in sentence-transformers."""
        nested = config.value("sentence_transformers")
        for name in (
            nested.get("activation_fn") if isinstance(nested, dict) else None,
            config.value("sbert_ce_default_activation_function"),
            self.others.get("config_sentence_transformers.json", {}).get("activation_fn"),
        ):
            if isinstance(name, str):
                return "sigmoid" if name.rpartition(".")[2] == "Sigmoid" else "identity"
        return "sigmoid" if outputs == 1 else "identity"

    def _uses_token_types(self) -> bool:
        """Whether transformers passes token types: as declared, otherwise inferred from the tokenizer class."""
        tokenizer_config = self.others.get("tokenizer_config.json", {})
        names = tokenizer_config.get("model_input_names")
        if isinstance(names, list):
            return "token_type_ids" in names
        return tokenizer_config.get("tokenizer_class") != "TokenizersBackend"

    def _find_max_length(self, positions: int) -> int:
        limits = [positions]
        keys = {"sentence_bert_config.json": "max_seq_length", "tokenizer_config.json": "model_max_length"}
        for name, key in keys.items():
            value = self.others.get(name, {}).get(key)
            if isinstance(value, (int, float)) and not isinstance(value, bool) and 1 <= value < _UNLIMITED:
                limits.append(int(value))
        return min(limits)


def _float_tensors(tensors: dict[str, Array]) -> Tensors:
    """Return the float tensors, without integer buffers such as position_ids."""
    return Tensors({name: array for name, array in tensors.items() if array.dtype.str in ("<f4", "<f2", "<u2")})


def _build_static_table(tensors: dict[str, Array]) -> Array:
    """Return a table with one row per token. model2vec may store shared rows and a weight per token."""
    unknown = sorted(tensors.keys() - {"embeddings", "embedding.weight", "mapping", "weights"})
    table = tensors.get("embeddings", tensors.get("embedding.weight"))
    if table is None or table.ndim != 2 or table.dtype.kind == "i" or unknown:
        problem = f"the tensor {unknown[0][:60]!r}" if unknown else "no table 'embeddings' of tokens"
        raise ModelFileError(f"The weights of a static embedder have {problem}; only one row per token is supported.")
    table = to_float32(table)
    mapping, weights = tensors.get("mapping"), tensors.get("weights")
    if mapping is not None:
        if mapping.ndim != 1 or mapping.dtype.kind != "i" or not mapping.size:
            raise ModelFileError("The static embedder's 'mapping' is not a list of integers.")
        if mapping.min() < 0 or mapping.max() >= len(table):
            raise ModelFileError("The static embedder's 'mapping' refers to rows that its table does not have.")
        table = table[mapping]
    if weights is not None:
        if weights.shape != table.shape[:1]:
            raise ModelFileError("The static embedder's 'weights' do not match its table.")
        table = table * to_float32(weights)[:, None]
    return table


def _read_pooling(config: dict[str, object], *, prompts: bool) -> Pooling:
    """Return the pooling mode of a module, in either of the two formats of sentence-transformers."""
    if prompts and config.get("include_prompt") is False:
        raise ModelFileError("Pooling that excludes the prompt's tokens is not supported.")
    names: dict[str, Pooling] = {"cls": "first", "mean": "mean", "lasttoken": "last"}
    mode = config.get("pooling_mode")
    if isinstance(mode, str):
        active = [mode]
    else:
        active = [
            key.removeprefix("pooling_mode_").removesuffix("_tokens").removesuffix("_token")
            for key, value in config.items()
            if key.startswith("pooling_mode_") and value is True
        ]
    if len(active) != 1 or active[0] not in names:
        raise ModelFileError(f"The pooling is {' and '.join(active) or 'not declared'}; use one of {', '.join(names)}.")
    return names[active[0]]


def _check_head(head: Sequence[Dense | Norm | Activation], width: int) -> None:
    """Reject steps whose widths do not match, because the engine reads as many values as a step declares."""
    for step in head:
        if not isinstance(step, (Dense, Norm)):
            continue
        inputs = step.weight.shape[-1]
        if inputs != width:
            raise ModelFileError(
                f"The head step {_describe_step(step)} expects {inputs} inputs, but the previous step produces {width}."
            )
        width = step.weight.shape[0]


def _describe_step(step: Dense | Norm | Activation) -> str:
    if isinstance(step, Dense):
        return f"dense({step.weight.shape[1]}→{step.weight.shape[0]})"
    return "norm" if isinstance(step, Norm) else step


def _decide_kind(config: Config, outputs: int, *, has_head: bool, pools: bool) -> dict[str, Any]:
    """Return the kind of model, with the index of the entailment label if it has one."""
    if outputs == 1:
        return {"kind": "cross-encoder"}
    if pools or not has_head:
        return {"kind": "bi-encoder"}
    table = config.value("id2label")
    labels = table if isinstance(table, dict) and len(table) == outputs else {}
    for i in range(len(labels)):
        if str(labels.get(str(i), "")).lower().startswith("entail"):
            return {"kind": "nli", "entailment_index": i}
    raise ModelFileError(
        f"The model has {outputs} labels. A reranker has one; a zero-shot model has a label that begins with 'entail'."
    )


def _card_languages(front_matter: str) -> tuple[str, ...]:
    """Return the language codes in the front matter of a model card."""
    match = re.search(r"^language:[ \t]*(.*)$((?:\n[ \t]*-[^\n]*)*)", front_matter, flags=re.M)
    if match is None:
        return ()
    words = re.findall(r"[A-Za-z]{2,12}", match.group(1) + match.group(2))
    codes = [word.lower() for word in words if len(word) in (2, 3) or word.lower() == "multilingual"]
    return tuple(dict.fromkeys(codes))


def needed_files(names: Sequence[str]) -> list[str]:
    """Return the names of files that a model may need: configs, tokenizer and safetensors."""
    names_needed = {CONFIG, MODULES, WEIGHTS, SHARD_INDEX, "tokenizer.json", "README.md", *_OPTIONAL}
    module = rf"\d+_[^/]+/({re.escape(CONFIG)}|{re.escape(WEIGHTS)})"
    pattern = re.compile(rf"{module}|model-\d+-of-\d+\.safetensors")
    return [name for name in names if name in names_needed or pattern.fullmatch(name)]
