"""Models that the native engine cannot compute, in PyTorch (extra `torch`).

A model for sequence classification, and decoders that answer "yes" or "no" at the end of a prompt. No code from
the model's folder runs and no pickle is loaded. Nothing else in Resift imports torch.
"""

from __future__ import annotations

import functools
import inspect
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from resift._internal.arrays import Array, np
from resift._internal.forking import ForkSafeLock
from resift.errors import ModelFileError, ModelLoadError, require
from resift.models.registry import ModelFiles


class DecoderPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """Prompt of a decoder reranker: before, query, between, document, after.

    The score is logit(`positive`) − logit(`negative`) at the last token; without `negative`, the first alone.
    White space next to a text belongs to the text, because tokenizers merge it with the text's tokens.
    """

    before: str
    query: str
    between: str
    document: str
    after: str
    positive: str
    negative: str | None = None
    instruction_line: str = ""
    instruction: str = ""

    def fixed_parts(self, instruction: str | None = None) -> tuple[str, str, str]:
        """Return the parts around query and document; the instruction replaces the default one."""
        text = self.instruction if instruction is None else instruction
        line = self.instruction_line.replace("{}", text) if text else ""
        return self.before.replace("{instruction}", line), self.between, self.after


@functools.cache
def decoder_prompts() -> Mapping[str, DecoderPrompt]:
    """Return the prompts by the model type in config.json: Qwen3-Reranker, mxbai-rerank-v2, bge-reranker-v2-gemma."""
    data = Path(__file__).with_name("decoder_prompts.json").read_bytes()
    return msgspec.json.decode(data, type=dict[str, DecoderPrompt])


class TorchSession:
    """A model in PyTorch. One row runs at a time, because PyTorch uses several cores itself.

    `answers` are the ids of a decoder's positive and, if there is one, negative answer.
    """

    def __init__(self, files: ModelFiles, *, answers: tuple[int, ...] = (), device: str = "cpu") -> None:
        self._torch: Any = require("torch", extra="torch")
        transformers: Any = require("transformers", extra="torch")
        self._device = device
        self._lock = ForkSafeLock()
        files.verify()
        auto = transformers.AutoModelForCausalLM if answers else transformers.AutoModelForSequenceClassification
        try:
            # A folder with the pinned files alone: transformers would also read others that it knows.
            with tempfile.TemporaryDirectory() as folder:
                for pinned in files.spec.files:
                    _link(files.folder / pinned.name, Path(folder, pinned.name))
                model, loading = auto.from_pretrained(
                    folder,
                    local_files_only=True,
                    trust_remote_code=False,
                    use_safetensors=True,
                    output_loading_info=True,
                )
            self._model = model.to(device).eval()
        except (OSError, ValueError, RuntimeError, KeyError, ImportError) as exc:
            raise ModelLoadError(f"{files.spec.id!r} does not load with transformers: {exc}") from exc
        # transformers would fill them with random numbers.
        if missing := sorted(loading["missing_keys"]):
            raise ModelFileError(f"The weights of {files.spec.id!r} lack the tensor {missing[0]!r}.")
        self._takes_types = "token_type_ids" in inspect.signature(model.forward).parameters
        self._direction: Any = None
        if answers:
            # The difference of two rows of the output embedding is enough, instead of the whole vocabulary.
            rows = model.get_output_embeddings().weight.detach()
            self._direction = rows[answers[0]] - (rows[answers[1]] if len(answers) > 1 else 0)

    def run(self, ids: list[int], types: list[int], *, first: int | None = None) -> Array:
        """Return the logits of one row; for a decoder, that of its positive answer."""
        tensor = functools.partial(self._torch.tensor, device=self._device)
        with self._lock, self._torch.inference_mode():
            if self._direction is not None:
                states = self._model.base_model(input_ids=tensor([ids]), use_cache=False).last_hidden_state
                logits = (states[0, -1] @ self._direction).reshape(1)
            else:
                inputs = {"token_type_ids": tensor([types])} if self._takes_types else {}
                logits = self._model(input_ids=tensor([ids]), **inputs).logits[0]
            return np.asarray(logits.float().cpu().numpy(), np.float32)


def _link(source: Path, target: Path) -> None:
    target.parent.mkdir(exist_ok=True)
    try:
        target.symlink_to(source)
    except OSError:  # Windows allows links to some users only
        shutil.copyfile(source, target)
