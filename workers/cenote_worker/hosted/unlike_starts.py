"""What keeps a fresh jail from beginning in the state that a history does. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from cenote_worker.history.history import History
from cenote_worker.history.step import START
from cenote_worker.hosted.injection import Injection


def otherwise(history: History, noted: Iterable[Injection], begun: Collection[Injection]) -> str:
    """Of the values in it: what a client has put in since, or has not put in again. Empty for nothing.

    noted: what the jail will have. begun: what the last one had that began with nothing else.
    """
    noted = list(noted)
    later = [each for each in noted if each.step != START and each not in begun]
    if later:
        return f"a client has put in {_spoken(name for each in later for name in each.qualified_names)} since"
    given = {name for each in noted for name in each.qualified_names}
    missing = [name for name in history.begun if name not in given]
    return f"{_spoken(missing)}, put in before the first step, is not here any more" if missing else ""


def unkept_files(history: History) -> str:
    """Of the files in it, as `otherwise`."""
    unkept = [path for path, digest in history.begun_files.items() if not digest]
    return f"the content of {_spoken(unkept)}, written before the first step, is not kept" if unkept else ""


def _spoken(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" if name else "further files" for name in names)
