"""Run models that the native engine does not support in PyTorch (extra `torch`), which nothing else imports.

Supported are classifiers, and decoders that answer "yes" or "no". No code from the folder and no pickle is loaded.
"""

from __future__ import annotations

import functools
import inspect
import shutil
import tempfile
from pathlib import Path
from typing import Any

from resift._internal.arrays import Array, np
from resift._internal.forking import ForkSafeLock
from resift.errors import ModelFileError, ModelLoadError, require
from resift.models.registry import ModelFiles


class TorchSession:
    """A model in PyTorch, one row at a time; `answers` are the token ids of a decoder's answers."""

    def __init__(self, files: ModelFiles, *, answers: tuple[int, ...] = (), device: str = "cpu") -> None:
        self._torch: Any = require("torch", extra="torch")
        transformers: Any = require("transformers", extra="torch")
        self._device = device
        self._lock = ForkSafeLock()
        files.verify()
        auto = transformers.AutoModelForCausalLM if answers else transformers.AutoModelForSequenceClassification
        try:
            # The temporary folder contains only pinned files, because transformers would also read other known files.
            with tempfile.TemporaryDirectory() as folder:
                for pinned in files.spec.files:
                    target = Path(folder, pinned.name)
                    target.parent.mkdir(exist_ok=True)
                    try:
                        target.symlink_to(files.folder / pinned.name)
                    except OSError:  # on Windows, only some users may create links
                        shutil.copyfile(files.folder / pinned.name, target)
                safe = {"local_files_only": True, "trust_remote_code": False, "use_safetensors": True}
                model, loading = auto.from_pretrained(folder, output_loading_info=True, **safe)
            self._model = model.to(device).eval()
        except (OSError, ValueError, RuntimeError, KeyError, ImportError) as exc:
            raise ModelLoadError(f"{files.spec.id!r} cannot be loaded with transformers: {exc}") from exc
        # transformers would initialize missing tensors with random numbers.
        if missing := sorted(loading["missing_keys"]):
            raise ModelFileError(f"The weights of {files.spec.id!r} lack the tensor {missing[0]!r}.")
        self._takes_types = "token_type_ids" in inspect.signature(model.forward).parameters
        self._direction: Any = None
        if answers:
            # Two rows of the output embedding are enough; logits of the whole vocabulary are not needed.
            rows = model.get_output_embeddings().weight.detach()
            self._direction = rows[answers[0]] - (rows[answers[1]] if len(answers) > 1 else 0)

    def run(self, ids: list[int], types: list[int], *, first: int | None = None) -> Array:
        """Return the logits of one row; for a decoder, the logit of its positive answer."""
        tensor = functools.partial(self._torch.tensor, device=self._device)
        with self._lock, self._torch.inference_mode():
            if self._direction is not None:
                states = self._model.base_model(input_ids=tensor([ids]), use_cache=False).last_hidden_state
                logits = (states[0, -1] @ self._direction).reshape(1)
            else:
                inputs = {"token_type_ids": tensor([types])} if self._takes_types else {}
                logits = self._model(input_ids=tensor([ids]), **inputs).logits[0]
            return np.asarray(logits.float().cpu().numpy(), np.float32)
