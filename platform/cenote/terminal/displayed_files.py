"""What a cell displayed, as files: a figure has no place in a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cenote.terminal.screen import Screen
from cenote_security.errors import UsageError
from cenote_worker.results import MimeBundle

SUFFIXES = {"image/png": ".png", "image/jpeg": ".jpg", "image/svg+xml": ".svg"}


def save_displayed(outputs: Sequence[MimeBundle], folder: Path | None, screen: Screen) -> list[Path]:
    """Writes the images among `outputs` into `folder` as `figure-1.png` and so on, and says where they are.

    Without a folder it says what could be saved. Raises UsageError when the folder cannot be written.
    """
    images = [(mime, bundle[mime]) for bundle in outputs for mime in SUFFIXES if mime in bundle]
    if folder is None:
        for mime, data in images:
            screen.note(f"[{mime}, {len(data):,} bytes; --save DIR keeps it]")
        return []
    paths = [folder / f"figure-{number}{SUFFIXES[mime]}" for number, (mime, _) in enumerate(images, 1)]
    for path, (_, data) in zip(paths, images, strict=True):
        _write(path, data)
        screen.note(f"[saved {path}]")
    return paths


def _write(path: Path, data: str | bytes) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
    except OSError as error:
        raise UsageError(f"cannot write {path}: {error.strerror}") from None
