"""Seals of stored images: proof that this installation stored an image, for one tenant, runtime and state.

A process in an image continues with the rights of its runtime, and others may be able to write to a store. A seal
is an HMAC-SHA256 over what the image is of and the SHA-256 digests of its parts, which several threads compute. On
a platform its key is derived from that of the runtime, which the gateway gives to the process that serves it.
Embedded runtimes of one user have a key in a private file of the user's state folder, never in the store. A jail
gets neither, unless that folder is mounted there.

A store whose files are all replaced by older ones, with their manifests, is an older store: no seal shows that. And
nothing is protected from processes of the same user: they can read the key, and change a file after it was checked.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import secrets
from bisect import bisect_right
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cenote_proto.v1 import checkpoint_pb2
from cenote_security.auth.secret_files import kept_secret
from cenote_security.errors import SecretFileError
from cenote_worker.checkpoints.errors import CheckpointRefusedError
from cenote_worker.checkpoints.image_files import StoredImage, digest_more
from cenote_worker.transport.image_parts import ImageExtent

_KEY_BYTES: Final = 32

_PART: Final = 2**21
"""Bytes of a part, which one thread digests: few enough that an image of 20 MB keeps all threads busy."""

_THREADS: Final = 8
"""Each digests about 1 GB/s. An image of 50 MB takes 7 ms then, where waking its process takes 40."""

_FORM: Final = "cenote image 1"

_UNSEALED: Final = "its image has no seal: an earlier version of Cenote has stored it"
_ANOTHER: Final = (
    "its image is not the one that was stored here for this runtime and state: its seal does not match"
)


NO_IMAGE: Final = StoredImage()


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSubject:
    """What an image is of. number: of its checkpoint. head: the step whose end the state is. state: the same by
    value, with the digests of its parts. image: all that its file says of it.
    """

    number: int
    head: int
    state: checkpoint_pb2.State
    image: StoredImage = NO_IMAGE

    def described(self) -> list[object]:
        """As values of JSON."""
        state = hashlib.sha256(self.state.SerializeToString(deterministic=True)).hexdigest()
        image = self.image
        common = [image.common.hex(), image.common_of]
        return [self.number, self.head, image.key, image.size, image.missing, *common, state]


class ImageSeals:
    """Of one runtime."""

    def __init__(self, tenant: str, runtime: str, key: Callable[[], bytes]) -> None:
        """key: gives the secret. Raises SecretFileError."""
        self._owner = (tenant, runtime)
        self._key = key

    def check_key(self) -> None:
        """Raises SecretFileError where there is no key to seal with."""
        self._key()

    def seal(self, file: int, subject: ImageSubject, base: int = -1) -> bytes:
        """The seal of the image in an open file, and in its base. Raises SecretFileError, OSError."""
        facts, size = [_FORM, *self._owner, *subject.described()], subject.image.size
        mac = hmac.new(self._key(), json.dumps(facts).encode(), hashlib.sha256)
        threads = min(_THREADS, len(os.sched_getaffinity(0)))
        with ThreadPoolExecutor(threads, thread_name_prefix="cenote-seal") as pool:
            starts = range(0, size, _PART)
            extents = subject.image.parts.extents()
            for digest in pool.map(
                lambda at: _digest(file, base, extents, at, min(at + _PART, size)), starts
            ):
                mac.update(digest)
        return mac.digest()

    def check(self, file: int, subject: ImageSubject, base: int = -1) -> None:
        """Raises CheckpointRefusedError unless the image has the seal of that file."""
        if not subject.image.seal:
            raise CheckpointRefusedError(_UNSEALED)
        try:
            expected = self.seal(file, subject, base)
        except (SecretFileError, OSError) as error:
            raise CheckpointRefusedError(f"the seal of its image cannot be checked: {error}") from error
        if not hmac.compare_digest(expected, subject.image.seal):
            raise CheckpointRefusedError(_ANOTHER)


def _digest(file: int, base: int, extents: Sequence[ImageExtent], start: int, end: int) -> bytes:
    """Of the bytes of an image between these offsets."""
    digesting = hashlib.sha256()
    at = bisect_right(extents, start, key=lambda extent: extent.start) - 1
    while start < end:
        extent = extents[at]
        until = min(end, extents[at + 1].start) if at + 1 < len(extents) else end
        offset = extent.offset + start - extent.start
        digest_more(digesting, base if extent.in_base else file, offset, offset + until - start)
        start, at = until, at + 1
    return digesting.digest()


def own_seals(runtime: str) -> ImageSeals:
    """The seals of an embedded runtime, by the name that its checkpoints have: all of a user have one key."""
    return ImageSeals("", runtime, lambda: kept_secret(_key_file(), lambda: secrets.token_bytes(_KEY_BYTES)))


def _key_file() -> Path:
    """By XDG's rules for state, beside the folder of a platform, which is empty before a backup is put there.

    Raises SecretFileError.
    """
    try:
        base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    except RuntimeError:
        raise SecretFileError("~/.local/state", "this user has no home folder; set XDG_STATE_HOME") from None
    return Path(base) / "cenote-embedded" / "image.key"
