"""Text as token ids, tokenised once with a tokenizer of transformers."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

MAX_LENGTH = 128  # tokens of a text; the rest is cut off
_CHUNK = 1024  # texts tokenised at a time


@dataclass(frozen=True)
class TokenizerOptions:
    """How text becomes token ids.

    Attributes:
        network: The network, ``hf:NAME_OR_FOLDER`` or custom code; the former has a tokenizer.
        tokenizer: Name or folder of another tokenizer.
        max_length: Most tokens of a text.
    """

    network: str = "auto"
    tokenizer: str | None = None
    max_length: int = MAX_LENGTH

    @property
    def name(self) -> str:
        """The folder or name of the tokenizer; ``ValueError`` if the network cannot read text, or has no tokenizer."""
        kind, _, name = self.network.partition(":")
        if not name or (kind != "hf" and self.tokenizer is None):
            raise ValueError(
                f"network is {self.network!r}, but text needs a network with a tokenizer: use --network hf:FOLDER, a "
                "folder of transformers with tokenizer.json, or custom code with --tokenizer FOLDER"
            )
        return self.tokenizer or name


def tokenize(texts: Sequence[str], options: TokenizerOptions) -> tuple[np.ndarray, dict[str, Any]]:
    """Tokenise texts.

    Args:
        texts: The texts.
        options: Which tokenizer, and the longest text.

    Returns:
        Token ids, int32 ``[N, L]`` padded at the end, L the length of the longest text; and ``name`` (or folder),
        ``max_length`` and ``pad_id`` of the tokenizer.
    """
    name = options.name
    ids, pad = _token_ids(texts, name, options.max_length)
    return ids, {"name": name, "max_length": options.max_length, "pad_id": pad}


def tokenize_like(texts: Sequence[str], tokenizer: dict[str, Any], length: int) -> np.ndarray:
    """Tokenise texts for a trained network.

    Args:
        texts: The texts.
        tokenizer: As :func:`tokenize` returned it for the training texts.
        length: Their L; longer texts are cut off.

    Returns:
        Token ids, int32 ``[N, L]``.
    """
    ids, pad = _token_ids(texts, tokenizer["name"], length)
    if pad != tokenizer["pad_id"]:
        raise ValueError(
            f"tokenizer {tokenizer['name']} pads with {pad}, but the training texts were padded with "
            f"{tokenizer['pad_id']}: it has changed; restore its files"
        )
    return np.pad(ids, ((0, 0), (0, length - ids.shape[1])), constant_values=pad)


def _token_ids(texts: Sequence[str], name: str, max_length: int) -> tuple[np.ndarray, int]:
    read = load_tokenizer(name)
    pad = read.pad_token_id if read.pad_token_id is not None else read.eos_token_id or 0
    rows: list[list[int]] = []
    for start in range(0, len(texts), _CHUNK):
        part = list(texts[start : start + _CHUNK])
        rows += read(part, truncation=True, max_length=max_length, padding=False)["input_ids"]
    ids = np.full((len(rows), max([1, *map(len, rows)])), pad, dtype=np.int32)
    for row, tokens in enumerate(rows):
        ids[row, : len(tokens)] = tokens
    return ids, int(pad)


def load_tokenizer(name: str) -> Any:
    """Load a tokenizer from a folder, the local cache or the hub, in this order; no code of it is executed."""
    try:
        from transformers import AutoTokenizer
    except ImportError as error:
        raise ImportError("text data need transformers: `pip install 'vista-distill[huggingface]'`") from error
    folder = Path(name).expanduser()
    place = str(folder) if folder.is_dir() else name
    failure: Exception | None = None
    for local in (True,) if folder.is_dir() else (True, False):
        try:
            return AutoTokenizer.from_pretrained(place, trust_remote_code=False, local_files_only=local)
        except (OSError, ValueError, ImportError) as error:
            failure = error
    assert failure is not None
    raise ValueError(
        f"{name} has no readable tokenizer ({str(failure).splitlines()[0]}): place tokenizer.json and "
        "tokenizer_config.json in its folder, or name another one with --tokenizer"
    ) from failure
