"""Tokens are counted offline, fast, and for any text."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from cenote import tokens
from cenote.models.messages import Message
from cenote_security.errors import UnavailableError


@pytest.mark.parametrize(
    ("text", "count"),
    [("", 0), ("hello world", 2), ("tiktoken is great!", 6), ("<|endoftext|>", 7), ("a\udcffb", 3)],
)
def test_known_counts(text: str, count: int) -> None:
    """Special tokens count as their text; text without a UTF-8 form counts, too."""
    assert count == tokens.count_tokens(text)


@pytest.mark.parametrize(
    ("model_id", "encoding"),
    [
        (None, "cl100k_base"),
        ("gpt-4", "cl100k_base"),
        ("gpt-4o", "o200k_base"),
        ("openai/gpt-4.1-mini", "o200k_base"),
        ("openrouter/openai/gpt-5", "o200k_base"),
        ("gpt-oss-120b", "o200k_base"),
        ("anthropic/claude-sonnet-4-5", "cl100k_base"),
        ("text-davinci-003", "cl100k_base"),
        ("", "cl100k_base"),
    ],
)
def test_the_encoding_fits_the_model(model_id: str | None, encoding: str) -> None:
    """OpenAI's models have their own; for an encoding that is not shipped the default counts."""
    assert encoding == tokens.encoding_name(model_id)


@pytest.mark.slow
def test_encodings_differ() -> None:
    """The model decides: newer encodings need fewer tokens for other scripts."""
    text = "Съешь же ещё этих мягких французских булок"
    assert tokens.count_tokens(text, "gpt-4o") < tokens.count_tokens(text, "gpt-4")


def test_messages_cost_more_than_their_texts() -> None:
    """Three tokens around each message, three to open the reply."""
    messages = [Message.system("Be brief."), Message.user("hello world")]
    assert 3 + (3 + 1 + 3) + (3 + 1 + 2) == tokens.count_messages(messages)
    assert 3 == tokens.count_messages([])


@given(text=st.text(), size=st.integers(1, 10))
@example(text="   ", size=1)
@example(text="a b c", size=2)
@settings(deadline=None)
def test_pieces_join_to_the_text(text: str, size: int) -> None:
    """Nothing is lost, and no piece is longer than requested."""
    parts = list(islice(tokens.pieces(text, size), len(text) + 1))  # a cut that moves nothing never ends
    assert text == "".join(parts)
    assert all(0 < len(part) <= size for part in parts)


def test_a_cut_before_a_space_changes_no_count() -> None:
    """So long texts count exactly like short ones."""
    text = "The quick brown fox jumps over the lazy dog. " * 100
    whole = tokens.count_tokens(text)
    assert whole == sum(tokens.count_tokens(part) for part in tokens.pieces(text, 70))


@pytest.mark.sweep
@pytest.mark.parametrize("text", [" ", "\n", "a", "^", "\t ", "é"])
def test_long_runs_count(text: str) -> None:
    """A million spaces, as broken programs print them, overflow the tokenizer's stack when taken at once."""
    started = time.process_time()
    assert tokens.count_tokens(text * 1_000_000) > 1_000
    assert 30 > time.process_time() - started


def run(code: str, **environment: str) -> subprocess.CompletedProcess[str]:
    roots = [str(Path(__file__).resolve().parents[3] / root) for root in ("platform", "workers", "security")]
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(roots)} | environment,
    )


OFFLINE = """
import sys

def forbid(event, args):
    if event in ("socket.connect", "socket.getaddrinfo", "socket.gethostbyname", "socket.sendto"):
        raise SystemExit(f"network: {event} {args}")
sys.addaudithook(forbid)

import os
from cenote import tokens

before = dict(os.environ)
print(tokens.count_tokens("hello world"), tokens.count_tokens("hello world", "gpt-4o"))
assert before == dict(os.environ)
assert not {"litellm", "requests", "httpx"} & sys.modules.keys()
"""


@pytest.mark.slow
@pytest.mark.parametrize("folder", [None, ""])
def test_nothing_is_downloaded_and_litellm_is_not_imported(tmp_path: Path, folder: str | None) -> None:
    """For any environment settings of the tokenizer's own cache, which is unchanged."""
    cache = str(tmp_path) if folder is None else folder
    done = run(OFFLINE, TIKTOKEN_CACHE_DIR=cache, DATA_GYM_CACHE_DIR=cache)
    assert ("2 2\n", "") == (done.stdout, done.stderr)
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [None, b"", b"damaged"])
def test_a_damaged_file_is_an_error_and_no_download(tmp_path: Path, content: bytes | None) -> None:
    """The tokenizer's library would delete it and fetch another."""
    folder = tmp_path / "litellm" / "litellm_core_utils" / "tokenizers"
    folder.mkdir(parents=True)
    (tmp_path / "litellm" / "__init__.py").touch()
    name = "9b5ad71b2ce5302211f9c61530b329a4922fc6a4"
    if content is not None:
        (folder / name).write_bytes(content)
    done = run(f"import sys; sys.path.insert(0, {str(tmp_path)!r})\n{OFFLINE}")
    assert f"{UnavailableError.__name__}: tokens cannot be counted" in done.stderr
    assert "network" not in done.stderr
    assert (content is not None) is (folder / name).exists()
