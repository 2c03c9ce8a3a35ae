"""The form in which a state goes from one jail to another: an image of its process, or by value.

This is the one place that decides which, and says why it is not an image. An image has everything that the process
has; but only a jail of the same environment can become it, and some processes cannot be written. By value a state
lacks what a pickle lacks, and fits any jail. So whatever has to outlive the environment is stored by value, and an
image is put beside it.

Beside a checkpoint it is written in a thread of its own, at a low priority, since it takes several times as long as
what is stored by value. The jail makes the copy for it while its state is stored by value, and the copy waits until
that is done: no call waits for either.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, suppress
from dataclasses import dataclass, replace
from typing import Final

from cenote_proto.v1 import jail_pb2
from cenote_security.errors import CenoteError, SecretFileError, UnavailableError
from cenote_security.printable import printable
from cenote_worker.checkpoints.errors import CheckpointError, CheckpointRefusedError
from cenote_worker.checkpoints.fidelity import missing_of
from cenote_worker.checkpoints.folder import Folder
from cenote_worker.checkpoints.image_files import (
    LATEST,
    CommonMemory,
    FileIdentity,
    ImageBase,
    ImageFiles,
    OpenedImage,
    StoredImage,
    digest_of,
    digests_of,
)
from cenote_worker.checkpoints.manifest import Manifest
from cenote_worker.checkpoints.restoring import Piece
from cenote_worker.checkpoints.state_receiver import ReceivedImage
from cenote_worker.checkpoints.store import failures, whole_manifest
from cenote_worker.execution.results import Carried
from cenote_worker.runtime.injection import offers_of
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.runtime.state.image_seals import ImageSeals, ImageSubject
from cenote_worker.runtime.state.state_source import FreshJailNeededError
from cenote_worker.runtime.state.transfer import OTHER_ENVIRONMENT, ImageRequest, become, put
from cenote_worker.supervisor.supervisor import Supervisor
from cenote_worker.transport.content import Content
from cenote_worker.transport.image_parts import WHOLE, shared_parts
from cenote_worker.zygote.image_key import difference, difference_here

Room = Callable[[int], AbstractContextManager[None]]
"""Room for this many bytes, which are stored inside. Raises QuotaExceededError."""

_NO_LEVEL: Final = "its jail cannot take an image"
_NO_FOLDER: Final = "images are stored on this machine's disks only"
_MOVED_ON: Final = "its state changed while it was stored"
_NO_KEY: Final = "it is not known what its image depends on"
_GIVEN_OTHERWISE: Final = "other functions or values are given than the process had"
_SUPERSEDED: Final = "a later state was stored before its image was"
_NONE: Final = "no image of its process was stored with that state"
_GONE: Final = "its image is gone, or is not whole"
_NO_DISK: Final = "its image would have taken most of what is free on the disk"
_COMMON_GONE: Final = "the memory of its zygote is gone from the store, or is not what was written"
_NO_COMMON: Final = "the memory of its zygote is not known"


def image_of(
    runtime: HostedRuntime,
    supervisor: Supervisor,
    patience: float | None = None,
    *,
    partial: bool,
) -> tuple[ReceivedImage, int]:
    """See ImageRequest. Raises CheckpointRefusedError where the state has to go by value."""
    if supervisor.isolation != "strict":
        raise CheckpointRefusedError(_NO_LEVEL)
    received, head = ImageRequest(runtime, supervisor, patience).received(partial=partial)
    try:
        common = _common_of(supervisor, received)
    except (CheckpointRefusedError, OSError):  # jails of the same zygote have it anyway
        return received, head
    return replace(received, key=supervisor.image_key, zygote=common), head


PATIENCE: Final = 10.0
"""Seconds for a process to be stored before its jail ends with the runtime: it waits for cells of other authors."""

_THREAD: Final = "cenote-image"

_LASTING: Final = 8
"""Images of checkpoints with a label, besides that of the newest one: a label says that it is come back to."""

_PRIORITY: Final = 10
"""Of the thread that writes: calls of this and other runtimes go first."""

_LONGEST_REASON: Final = 500
"""Characters: it comes from a file that others may be able to write."""


class StoredImages:
    """The images beside the checkpoints of one runtime, as others may have written them."""

    def __init__(self, folder: Folder, seals: ImageSeals) -> None:
        self.files = folder.images
        self._seals = seals
        self._refused: dict[int, str] = {}
        """Images that no jail may or can become, by number, with the reasons."""
        self._written: tuple[tuple[FileIdentity, ...], ImageSubject] | None = None
        """What this object has stored last. Reading it again takes longer than waking a process."""

    def foretold(self, manifest: Manifest) -> tuple[str, tuple[str, ...]]:
        """Why no jail of this machine could become the process that was stored with a checkpoint, empty if one could;
        and what that lacks. Whether a jail has the environment shows only when there is one.
        """
        try:
            with closing(self._opened(manifest)) as image:
                if clause := difference_here(image.stored.key):
                    raise CheckpointRefusedError(OTHER_ENVIRONMENT + clause)
                self._check_seal(manifest, image)
        except CheckpointRefusedError as refused:
            return refused.reason, ()
        return "", image.stored.missing

    def _opened(self, manifest: Manifest) -> OpenedImage:
        """The image, for the caller to close. Raises CheckpointRefusedError."""
        number = manifest.number
        if reason := self._refused.get(number, "" if self.files is not None else _NO_FOLDER):
            raise CheckpointRefusedError(reason)
        assert self.files is not None  # without it there is a reason
        found = self.files.open(number)
        if found is not None:
            return found
        described = self.files.described(number)
        if described is not None and described.reason:
            raise CheckpointRefusedError(printable(described.reason[:_LONGEST_REASON]))
        raise CheckpointRefusedError(_GONE if number in self.files.numbers() else _NONE)

    def _check_seal(self, manifest: Manifest, image: OpenedImage) -> None:
        """Raises CheckpointRefusedError unless this is the image of that state."""
        subject = _subject(manifest, image.stored)
        if self._written != (image.identities, subject):
            own, *base = image.files
            self._seals.check(own, subject, *base)


@dataclass(frozen=True, slots=True)
class _Writing:
    thread: threading.Thread
    asked: ImageRequest
    lasts: bool
    """Whether it is to stay when the next state is stored."""


class ProcessCopy:
    """A frozen copy of a jail's process, which waits to be written. It is made by the first call."""

    def __init__(self, runtime: HostedRuntime, supervisor: Supervisor, seals: ImageSeals | None) -> None:
        """seals: None where there are no images."""
        self.supervisor = supervisor
        self._runtime = runtime
        self._seals = seals
        self._asked: ImageRequest | None = None
        self._refused: CheckpointRefusedError | None = None

    def ask(self) -> None:
        """Has the jail make it, before what it is asked next. What prevents that costs the image only."""
        if self._seals is None or self._asked is not None or self._refused is not None:
            return
        form = jail_pb2.MakeCheckpoint.IMAGE_ALONE
        try:
            self._check(self._seals)
            self._asked = ImageRequest(self._runtime, self.supervisor, form=form)
        except CheckpointRefusedError as refused:
            self._refused = refused
        except OSError as error:  # there is no further descriptor
            self._refused = CheckpointRefusedError(f"its image could not be had: {error.strerror or error}")

    def take(self) -> ImageRequest:
        """The request, for the caller to receive. Raises CheckpointRefusedError where there can be no image."""
        self.ask()
        asked, self._asked = self._asked, None
        if self._refused is not None:
            raise self._refused
        assert asked is not None  # it is taken once, and where there are images
        return asked

    def close(self) -> None:
        """Ends it, unless it was taken."""
        if self._asked is not None:
            self._asked.abandon()

    def _check(self, seals: ImageSeals) -> None:
        if not self.supervisor.image_key:
            raise CheckpointRefusedError(_NO_LEVEL if self.supervisor.isolation != "strict" else _NO_KEY)
        try:
            seals.check_key()
        except SecretFileError as error:
            raise CheckpointRefusedError(f"images need a private key, and there is none: {error}") from error


class ProcessImages(StoredImages):
    """The same, written by this process, one at a time."""

    def __init__(self, runtime: HostedRuntime, folder: Folder, room: Room, seals: ImageSeals) -> None:
        super().__init__(folder, seals)
        self._runtime = runtime
        self._folder = folder
        self.room = room
        self.seconds = 0.0
        """What the last one took."""
        self._writing: _Writing | None = None
        self._base: ImageBase | None = None
        """The latest whole image that this object has stored: the next one has only what that lacks."""
        self._labelled: list[int] | None = None
        """Numbers of checkpoints with a label that may have an image, oldest first; read when it is first needed."""

    # -- writing --

    def copy_of(self, supervisor: Supervisor) -> ProcessCopy:
        """A copy of that jail's process, for `begin`."""
        return ProcessCopy(self._runtime, supervisor, self._seals if self.files is not None else None)

    def begin(self, manifest: Manifest, copy: ProcessCopy, *, partial: bool) -> None:
        """Has the process stored beside the checkpoint with its state; `finish` waits for it.

        Where there can be no image, `wake` says why. partial: it may lack connections and the like.
        """
        self.finish()
        number, files = manifest.number, self.files
        self._refused.pop(number, None)
        if files is None:
            return
        try:
            asked = copy.take()
        except CheckpointRefusedError as refused:
            self._refuse(number, refused.reason)
            return
        arguments = (files, manifest, copy.supervisor, asked, partial)
        thread = threading.Thread(target=self._keep, args=arguments, name=_THREAD)
        try:
            thread.start()
        except RuntimeError:  # no thread can be had
            self._keep(*arguments)
        else:
            self._writing = _Writing(thread, asked, lasts=bool(manifest.label))

    @property
    def busy(self) -> bool:
        """Whether one is being written."""
        writing = self._writing
        return writing is not None and writing.thread.is_alive()

    def supersede(self) -> None:
        """Gives up one that is being written, unless its checkpoint has a label: another state is about to be stored,
        and then it would be deleted. Does not wait.
        """
        if (writing := self._writing) is not None and not writing.lasts:
            writing.asked.give_up(_SUPERSEDED)
            self._writing = None

    def finish(self, patience: float | None = None) -> None:
        """Waits until what was begun is stored, or is not going to be. patience: seconds; by default the time that a
        call may take, after the cells that come before.
        """
        if (writing := self._writing) is not None:
            writing.thread.join(patience)

    def _keep(
        self,
        files: ImageFiles,
        manifest: Manifest,
        supervisor: Supervisor,
        asked: ImageRequest,
        partial: bool,
    ) -> None:
        began, number = time.monotonic(), manifest.number
        if threading.current_thread().name == _THREAD:
            with suppress(OSError):  # of this thread alone, and of those that it starts
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _PRIORITY)
        try:
            received, head = asked.received(partial=partial)
            with closing(received):
                if head != manifest.dealings.head:
                    raise CheckpointRefusedError(_MOVED_ON)
                self._store(files, manifest, supervisor, received, asked.check)
        except CheckpointRefusedError as refused:
            self._refuse(number, refused.reason)
        except OSError as error:
            self._refuse(number, f"its image could not be written: {error.strerror or error}")
        except CenoteError as error:  # the jail has ended, or there is no quota or key
            self._refuse(number, str(error))
        finally:
            self.seconds = time.monotonic() - began

    def _store(
        self,
        files: ImageFiles,
        manifest: Manifest,
        supervisor: Supervisor,
        received: ReceivedImage,
        check: Callable[[], None],
    ) -> None:
        """Writes the file, and makes the seal meanwhile, which may take as long. check: raises to end that."""
        number, memory = manifest.number, received.image.memory
        assert memory is not None  # see StateReceiver.receive_image
        with ExitStack() as held:
            common = _common_of(supervisor, received)
            if common is not None:
                held.callback(common.file.close)
            stored = StoredImage(
                key=supervisor.image_key,
                size=memory.size,
                missing=missing_of(received.state),
                common=digest_of(common) if common is not None else b"",
                common_of=common.zygote if common is not None else "",
            )
            digests, base = digests_of(memory, check), self._base
            has_base = base is not None and files.is_there(base)
            parts = shared_parts(digests, base.chunks) if base is not None and has_base else WHOLE
            fresh = common.file.size if common is not None and not files.has_common(common) else 0
            fresh += parts.own_bytes(memory.size)
            with self.room(fresh):
                pass  # nothing is written that has no room
            if files.free() < 2 * fresh:
                raise CheckpointRefusedError(_NO_DISK)
            draft = files.draft(number)
            held.callback(draft.discard)
            subject = _subject(manifest, stored)
            sealer = held.enter_context(ThreadPoolExecutor(1, thread_name_prefix="cenote-seal"))
            sealing = sealer.submit(self._seals.seal, memory.fileno(), subject)
            draft.write(memory, check, parts)
            sealed = replace(stored, seal=sealing.result(), parts=parts)
            with self.room(fresh):  # short: all that is stored of a tenant waits for it
                if common is not None:
                    files.write_common(number, common)
                if base is not None and parts != WHOLE:
                    files.link_base(number, base)
                draft.publish(sealed)
                if parts == WHOLE:
                    chunks = {digest: at for at, digest in enumerate(digests)}
                    self._base = files.keep_as_base(number, chunks)
        if (image := files.open(number)) is not None:
            with closing(image):
                self._written = image.identities, _subject(manifest, sealed)

    def _refuse(self, number: int, reason: str) -> None:
        """Notes why there is no image, for other processes as well where that can be written."""
        self._refused[number] = reason
        if self.files is not None:
            with suppress(OSError):
                self.files.delete(number)  # one of its files may be complete
                if reason != _SUPERSEDED:  # then what there was of it goes
                    self.files.draft(number).publish(StoredImage(reason=reason))

    # -- keeping --

    def keep_only(self, newest: Manifest, *beside: int) -> None:
        """Deletes all images but those of these checkpoints, and of the latest ones that have a label."""
        if self.files is not None:
            if newest.label:
                self._lasting().append(newest.number)
            self.files.keep_only({LATEST, newest.number, *beside, *self._lasting()[-_LASTING:]})

    def give_way(self) -> bool:
        """Deletes all images, for states by value that there is no room for. Returns whether there were any."""
        self.finish()
        there = self.files is not None and (self._base is not None or bool(self.files.numbers()))
        if self.files is not None:
            self._base = None
            self.files.keep_only(())
        return there

    def close(self) -> None:
        """Ends what is begun. The base of the next image goes, unless an image needs it."""
        self.finish()
        if self.files is not None and self._base is not None:
            with suppress(OSError):
                self.files.delete(LATEST)

    def _lasting(self) -> list[int]:
        if self._labelled is None:
            there = self.files.numbers() if self.files is not None else []
            found = (whole_manifest(self._folder, number) for number in there)
            with failures(self._folder.place):
                self._labelled = [each.number for each in found if each is not None and each.label]
        return self._labelled

    # -- waking --

    def lacking(self, manifest: Manifest) -> tuple[str, ...] | None:
        """What the image of a checkpoint lacks, as far as its file can be believed; None where there is none."""
        self.finish()
        found = self.files.described(manifest.number) if self.files is not None else None
        return found.missing if found is not None and found.size else None

    def wake(
        self,
        manifest: Manifest,
        supervisor: Supervisor,
        inject: Callable[[], None],
        files: Callable[[], Iterable[Piece]],
        added: Iterable[str],
    ) -> Carried:
        """Makes a fresh jail the process that was stored with a checkpoint, which is `exact` then. Otherwise nothing
        was done, and the reason says why.

        inject: see StateSource.fill. files: the pieces with the files of the checkpoint. added: names that are
        injected besides those of the checkpoint. Raises FreshJailNeededError when the jail has failed to become it,
        and what `inject` raises.
        """
        self.finish()
        number = manifest.number
        with ExitStack() as held:
            try:
                image = held.enter_context(closing(self._opened(manifest)))
                stored = image.stored
                self._check(manifest, image, supervisor, added)
                common = self._common(number, stored, supervisor)
                if common is not None:
                    held.callback(common.close)
            except CheckpointRefusedError as refused:
                return Carried(how="rebuilt", reason=refused.reason)
            try:
                inject()
                for piece in files():
                    with closing(piece.content):
                        put(supervisor, piece, self._runtime.name, number)
                lent = image.base
                base = None if lent is None else Content(size=lent.size, count=0, memory=lent)
                become(supervisor, image.content, common, base, draw_anew=False, parts=stored.parts)
            except (CheckpointError, UnavailableError) as error:
                reason = error.reason if isinstance(error, CheckpointRefusedError) else str(error)
                self._refused[number] = reason
                raise FreshJailNeededError(reason) from error
        return Carried(how="exact", missing=stored.missing)

    def _check(
        self,
        manifest: Manifest,
        image: OpenedImage,
        supervisor: Supervisor,
        added: Iterable[str],
    ) -> None:
        """Raises CheckpointRefusedError where that jail must not become it."""
        if clause := difference(image.stored.key, supervisor.image_key):
            raise CheckpointRefusedError(OTHER_ENVIRONMENT + clause)
        given = offers_of(self._runtime.noted.all())
        if given != manifest.dealings.offers or not set(manifest.state.message.names).issuperset(added):
            raise CheckpointRefusedError(_GIVEN_OTHERWISE)
        try:
            self._check_seal(manifest, image)
        except CheckpointRefusedError as refused:
            self._refused[manifest.number] = refused.reason
            raise

    def _common(self, number: int, stored: StoredImage, supervisor: Supervisor) -> Content | None:
        """The memory that the image lacks: the jail's own, or as it was stored. Raises CheckpointRefusedError."""
        if not stored.common:
            return None
        if supervisor.common >= 0:
            with suppress(OSError):  # the jail has ended, as the next request to it says
                here = CommonMemory.of(supervisor.common)
                if stored.common_of == here.zygote:
                    return Content(size=here.file.size, count=0, memory=here.file)
                here.file.close()
        common = self.files.open_common(number, stored) if self.files is not None else None
        if common is None:
            raise CheckpointRefusedError(_COMMON_GONE)
        return common


def _subject(manifest: Manifest, stored: StoredImage) -> ImageSubject:
    state, head = manifest.state.message, manifest.dealings.head
    return ImageSubject(number=manifest.number, head=head, state=state, image=stored)


def _common_of(supervisor: Supervisor, received: ReceivedImage) -> CommonMemory | None:
    """The memory of its zygote that an image lacks, if any, for the caller to close.

    Raises CheckpointRefusedError; OSError when the jail has ended.
    """
    if not received.common:
        return None
    if supervisor.common < 0:
        raise CheckpointRefusedError(_NO_COMMON)
    common = CommonMemory.of(supervisor.common)
    if common.inode != received.common:
        common.file.close()
        raise CheckpointRefusedError(_NO_COMMON)
    return common
