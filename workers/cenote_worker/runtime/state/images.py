"""The form in which a state goes from one jail to another: an image of its process, or by value.

This is the one place that decides which, and says why it is not an image. An image has everything that the process
has; but only a jail of the same environment can become it, and some processes cannot be written. By value a state
lacks what a pickle lacks, and fits any jail. So whatever has to outlive the environment is stored by value, and an
image is put beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from typing import Final

from cenote_proto.v1 import jail_pb2
from cenote_security.errors import QuotaExceededError, SecretFileError, UnavailableError
from cenote_worker.checkpoints.errors import CheckpointError, CheckpointRefusedError
from cenote_worker.checkpoints.fidelity import missing_of
from cenote_worker.checkpoints.folder import Folder
from cenote_worker.checkpoints.image_files import CommonMemory, FileIdentity, ImageFiles, identity
from cenote_worker.checkpoints.manifest import Manifest, StoredImage
from cenote_worker.checkpoints.restoring import Piece
from cenote_worker.checkpoints.state import State
from cenote_worker.checkpoints.state_receiver import ReceivedImage
from cenote_worker.runtime.injection import offers_of
from cenote_worker.runtime.runtime import HostedRuntime
from cenote_worker.runtime.state.image_seals import ImageSeals, ImageSubject
from cenote_worker.runtime.state.state_source import FreshJailNeededError
from cenote_worker.runtime.state.transfer import become, imaged, put
from cenote_worker.supervisor.supervisor import Supervisor
from cenote_worker.transport.content import Content
from cenote_worker.zygote.image_key import difference

Room = Callable[[int], AbstractContextManager[None]]
"""Room for this many bytes, which are stored inside. Raises QuotaExceededError."""

_NO_LEVEL: Final = "its jail cannot take an image"
_NO_FOLDER: Final = "images are stored on this machine's disks only"
_MOVED_ON: Final = "its state changed while it was stored"
_NO_KEY: Final = "it is not known what its image depends on"
_ENVIRONMENT: Final = "its image is of another environment: "
_GIVEN_OTHERWISE: Final = "other functions or values are given than the process had"
_GONE: Final = "its image is gone, or is not as large as it was"
_COMMON_GONE: Final = "the memory of its zygote is gone from the store, or is not what was written"
_NO_COMMON: Final = "the memory of its zygote is not known"


def image_of(
    runtime: HostedRuntime,
    supervisor: Supervisor,
    patience: float | None = None,
    *,
    partial: bool,
    form: jail_pb2.MakeCheckpoint.Form.ValueType = jail_pb2.MakeCheckpoint.IMAGE,
) -> tuple[ReceivedImage, int]:
    """See `imaged`. Raises CheckpointRefusedError where the state has to go by value."""
    if supervisor.isolation != "strict":
        raise CheckpointRefusedError(_NO_LEVEL)
    return imaged(runtime, supervisor, patience, partial=partial, form=form)


class SleepingProcesses:
    """The images beside the checkpoints of one runtime: its process, while the runtime sleeps."""

    def __init__(self, runtime: HostedRuntime, folder: Folder, room: Room, seals: ImageSeals) -> None:
        self._runtime = runtime
        self._seals = seals
        self.files = folder.images
        self.room = room
        self._refused: dict[int, str] = {}
        """Images that no jail may or can become, by number, with the reasons."""
        self._written: tuple[FileIdentity, ImageSubject] | None = None
        """What this object has stored last. Reading it again takes longer than waking a process."""

    def keep(
        self, number: int, supervisor: Supervisor, state: State, head: int, *, partial: bool
    ) -> StoredImage:
        """Stores the process for the checkpoint of this number, whose state is that after step `head`.

        state: the same by value. partial: it may lack connections and the like. Where there can be no image, the
        result says why.
        """
        self._refused.pop(number, None)
        try:
            if self.files is None:
                raise CheckpointRefusedError(_NO_FOLDER)
            if not supervisor.image_key:
                raise CheckpointRefusedError(_NO_LEVEL if supervisor.isolation != "strict" else _NO_KEY)
            self._seals.check_key()
            form = jail_pb2.MakeCheckpoint.IMAGE_ALONE
            received, its_head = image_of(self._runtime, supervisor, partial=partial, form=form)
            try:
                if its_head != head:
                    raise CheckpointRefusedError(_MOVED_ON)
                subject = ImageSubject(number=number, head=head, state=state.message)
                return self._stored(self.files, supervisor, received, subject)
            finally:
                received.close()
        except CheckpointRefusedError as refused:
            return StoredImage(reason=refused.reason)
        except QuotaExceededError as error:
            return StoredImage(reason=str(error))
        except SecretFileError as error:
            return StoredImage(reason=f"images need a private key, and there is none: {error}")
        except OSError as error:
            if self.files is not None:
                self.files.delete(number)  # one of its files may be complete
            return StoredImage(reason=f"its image could not be written: {error.strerror or error}")

    def _stored(
        self, files: ImageFiles, supervisor: Supervisor, received: ReceivedImage, subject: ImageSubject
    ) -> StoredImage:
        """Writes the files, and makes the seal meanwhile, which may take as long. subject: without the image."""
        number = subject.number
        memory = received.image.memory
        assert memory is not None  # see StateReceiver.receive_image
        with ExitStack() as held:
            common = _common_of(supervisor, received, held)
            fresh = common.file.size if common is not None and not files.has_common(common) else 0
            held.enter_context(self.room(memory.size + fresh))
            stored = StoredImage(
                key=supervisor.image_key,
                size=memory.size,
                missing=missing_of(received.state),
                common=files.write_common(number, common) if common is not None else b"",
                common_of=common.zygote if common is not None else "",
            )
            subject = replace(subject, image=stored)
            sealer = held.enter_context(ThreadPoolExecutor(1, thread_name_prefix="cenote-seal"))
            sealing = sealer.submit(self._seals.seal, memory.fileno(), subject)
            written = files.write(number, memory)
            sealed = replace(stored, seal=sealing.result())
        self._written = written, replace(subject, image=sealed)
        return sealed

    def wake(
        self,
        manifest: Manifest,
        supervisor: Supervisor,
        inject: Callable[[], None],
        files: Callable[[], Iterable[Piece]],
        added: Iterable[str],
    ) -> str:
        """Makes a fresh jail the process that was stored with a checkpoint. Returns why that cannot be; empty if it
        is done.

        inject: see StateSource.fill. files: the pieces with the files of the checkpoint. added: names that are
        injected besides those of the checkpoint. Raises FreshJailNeededError when the jail has failed to become it,
        and what `inject` raises.
        """
        number, stored = manifest.number, manifest.image
        if reason := stored.reason or self._refused.get(number, ""):
            return reason
        if clause := difference(stored.key, supervisor.image_key):
            return _ENVIRONMENT + clause
        given = offers_of(self._runtime.noted.all())
        if given != manifest.dealings.offers or not set(manifest.state.message.names).issuperset(added):
            return _GIVEN_OTHERWISE
        image = self.files.open(number, stored.size) if self.files is not None else None
        if self.files is None or image is None:
            return _GONE
        common = None
        try:
            if reason := self._is_another(image, manifest):
                self._refused[number] = reason
                return reason
            if stored.common and stored.common_of != _zygote_of(supervisor):
                common = self.files.open_common(number, stored)
                if common is None:
                    return _COMMON_GONE
            inject()
            for piece in files():
                try:
                    put(supervisor, piece, self._runtime.name, number)
                finally:
                    piece.content.close()
            become(supervisor, image, common, draw_anew=False)
        except (CheckpointError, UnavailableError) as error:
            self._refused[number] = error.reason if isinstance(error, CheckpointRefusedError) else str(error)
            raise FreshJailNeededError(self._refused[number]) from error
        finally:
            image.close()
            if common is not None:
                common.close()
        return ""

    def _is_another(self, image: Content, manifest: Manifest) -> str:
        """Why this is not the image of that state; empty if it is."""
        memory, stored = image.memory, manifest.image
        assert memory is not None  # see ImageFiles.open
        state = manifest.state.message
        subject = ImageSubject(number=manifest.number, head=manifest.dealings.head, state=state, image=stored)
        if self._written == (identity(memory.fileno()), subject):
            return ""
        try:
            self._seals.check(memory.fileno(), subject)
        except CheckpointRefusedError as refused:
            return refused.reason
        return ""

    def keep_only(self, number: int) -> None:
        """Deletes all images but that of one checkpoint."""
        if self.files is not None:
            self.files.keep_only((number,))


def _common_of(supervisor: Supervisor, received: ReceivedImage, held: ExitStack) -> CommonMemory | None:
    """The memory of its zygote that an image lacks, if any; open while `held` is. Raises CheckpointRefusedError."""
    if not received.common:
        return None
    if supervisor.common < 0:
        raise CheckpointRefusedError(_NO_COMMON)
    common = CommonMemory.of(supervisor.common)
    held.callback(common.file.close)
    if common.inode != received.common:
        raise CheckpointRefusedError(_NO_COMMON)
    return common


def _zygote_of(supervisor: Supervisor) -> str:
    """Empty where it is not known."""
    if supervisor.common < 0:
        return ""
    try:
        common = CommonMemory.of(supervisor.common)
    except OSError:  # the jail has ended, as the next request to it says
        return ""
    common.file.close()
    return common.zygote
