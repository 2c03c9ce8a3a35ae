"""Counts tokens offline, with the tokenizer files that LiteLLM ships, without importing LiteLLM (seconds)."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path
from threading import Lock
from typing import Protocol

from cenote_security.errors import UnavailableError
from cenote_security.extras import MissingExtraError, importing

PER_MESSAGE = 3
"""Tokens around each message of a chat, beside its role and content."""

PER_REPLY = 3
"""Tokens that open the reply."""

PIECE = 50_000
"""Characters encoded at once: tiktoken's regular expression overflows its stack on longer white space."""

_BYTES = 3
"""UTF-8 for a token: code and most languages have as many or more."""

_DEFAULT = "cl100k_base"

_TOKENIZERS = ("a tokenizer", "models")

# File names are what tiktoken looks for: the SHA-1 of the address it would download from.
_FILES = {
    "cl100k_base": (
        "9b5ad71b2ce5302211f9c61530b329a4922fc6a4",
        "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
    ),
    "o200k_base": (
        "fb374d419588a4632f3f557e76b4b70aebbca790",
        "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
    ),
}
_lock = Lock()


Counter = Callable[[str, str | None], int]


class ChatMessage(Protocol):
    """What is counted of a message."""

    @property
    def role(self) -> str: ...
    @property
    def content(self) -> str: ...


class _Encoder(Protocol):
    def encode_ordinary(self, text: str) -> list[int]: ...


def count_tokens(text: str, model_id: str | None = None) -> int:
    """Tokens of `text` for a model such as `gpt-4.1` or `openai/gpt-4.1`.

    Exact for OpenAI's chat models. For all others, whose tokenizers differ or are not public, an estimate with
    LiteLLM's default (cl100k_base). Special tokens count as the text they are.

    Raises UnavailableError where LiteLLM's tokenizer files are missing or damaged; nothing is downloaded.
    """
    encoder = _encoder(encoding_name(model_id))
    return sum(len(encoder.encode_ordinary(piece)) for piece in pieces(text, PIECE))


def count_messages(
    messages: Iterable[ChatMessage], model_id: str | None = None, count: Counter = count_tokens
) -> int:
    """Tokens of a chat request with these messages."""
    return PER_REPLY + sum(
        PER_MESSAGE + count(message.role, model_id) + count(message.content, model_id) for message in messages
    )


def approximate_tokens(text: str, model_id: str | None = None) -> int:
    """As count_tokens where the tokenizers are installed; else a third of the bytes, which is rather too many.

    For budgets, and for when a conversation is made shorter: neither needs the extra `models`.
    """
    if _has_tokenizers():
        return count_tokens(text, model_id)
    return -(-len(text.encode("utf-8", "surrogatepass")) // _BYTES)


def encoding_name(model_id: str | None) -> str:
    """Name of the encoding that fits the model best among the shipped ones."""
    with importing(*_TOKENIZERS):
        from tiktoken.model import encoding_name_for_model

    try:
        name = encoding_name_for_model((model_id or "").rpartition("/")[2])
    except KeyError:
        return _DEFAULT
    name = name.replace("o200k_harmony", "o200k_base")  # differs in special tokens only
    return name if name in _FILES else _DEFAULT


def pieces(text: str, size: int) -> Iterator[str]:
    """`text` in pieces of at most `size` characters, cut before a space where there is one.

    A token begins with its space, so that such a cut changes no count; another may add a token or two.
    """
    start = 0
    while len(text) - start > size:
        cut = text.rfind(" ", start + (size + 1) // 2, start + size)
        cut = start + size if cut < 0 else cut
        yield text[start:cut]
        start = cut
    if start < len(text):
        yield text[start:]


@cache
def _has_tokenizers() -> bool:
    return all(importlib.util.find_spec(name) is not None for name in ("tiktoken", "litellm"))


@cache
def _encoder(name: str) -> _Encoder:
    with importing(*_TOKENIZERS):
        import tiktoken

    folder = _shipped_folder()
    _check(folder, name)
    with _lock:
        # tiktoken finds its files by this variable alone. Other threads may see it meanwhile; what they would
        # find there is as good as their own.
        before = os.environ.get("TIKTOKEN_CACHE_DIR")
        os.environ["TIKTOKEN_CACHE_DIR"] = str(folder)
        try:
            return tiktoken.get_encoding(name)
        finally:
            if before is None:
                del os.environ["TIKTOKEN_CACHE_DIR"]
            else:
                os.environ["TIKTOKEN_CACHE_DIR"] = before


def _shipped_folder() -> Path:
    spec = importlib.util.find_spec("litellm")  # locates the package without importing it
    if spec is None or spec.origin is None:
        raise MissingExtraError(*_TOKENIZERS, "No module named 'litellm'")
    return Path(spec.origin).parent / "litellm_core_utils" / "tokenizers"


def _check(folder: Path, name: str) -> None:
    """Before tiktoken looks: a file that is missing or has another hash it would download."""
    file, sha256 = _FILES[name]
    path = folder / file
    if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
        raise UnavailableError(
            f"tokens cannot be counted: litellm's file for {name} ({path}) is missing or damaged; "
            f"reinstall litellm"
        )
