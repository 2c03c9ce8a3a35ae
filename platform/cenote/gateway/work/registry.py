"""What the registries of teams and of jobs have in common: the audit log, the token of each work, what is left of it.

Works that could not be cleared completely are retried by the sweeps of the gateway, since no client sees them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final, Generic, TypeVar, cast

from cenote.gateway.api.runtime_registry import subject_of
from cenote.gateway.audit.events import Subject, access_decided, token_changed
from cenote.gateway.store.stores import Stores
from cenote.gateway.values.principal import Principal
from cenote.gateway.work.settings import WorkSecrets
from cenote_security.auth.tokens import BearerToken, Scope
from cenote_security.errors import NotAuthenticatedError, SecretFileError
from cenote_security.ids import JobId, TeamId, TenantId

W = TypeVar("W", TeamId, JobId)

WORK_SCOPES: Final = (Scope.RUNTIMES_READ, Scope.RUNTIMES_WRITE, Scope.REFERENCES)
"""Scopes of the token with which a team or a job makes its runtimes."""

END_PATIENCE: Final = 15.0
"""Seconds for the process of a work to end, before it is ended."""


class WorkRegistry(ABC, Generic[W]):
    """folder: with one for the secrets of each work, by its id."""

    def __init__(self, stores: Stores, folder: Path) -> None:
        self._stores = stores
        self._folder = folder
        self._remains: dict[W, TenantId] = {}
        """Removed works that could not be cleared completely."""

    @abstractmethod
    def _clear(self, tenant: TenantId, work: W) -> None:
        """Removes all of a work."""

    def _keys(self, work: W) -> WorkSecrets:
        return WorkSecrets(self._folder / work)

    def _record(self, principal: Principal, action: str) -> None:
        self._stores.recorder.record(access_decided(subject_of(principal), action)).result()

    def _issued(self, principal: Principal, note: str) -> str:
        """Issues a token for a work and returns its text."""
        token = self._stores.tokens.issue(principal.tenant, WORK_SCOPES, note=note)
        event = token_changed(subject_of(principal), "issued", token.id, WORK_SCOPES)
        self._stores.recorder.record(event).result()
        return token.text

    def _forget_token(self, tenant: TenantId, keys: WorkSecrets) -> None:
        try:
            token = BearerToken.parse(keys.token())
        except SecretFileError:  # it no longer has one, or has none yet
            return
        if token is not None:
            self._stores.recorder.record(token_changed(Subject(tenant=tenant), "ended", token.id)).result()
            self._stores.tokens.forget(tenant, token.id)
        keys.drop_token()

    def _clear_orphans(self, known: Callable[[], Iterable[W]]) -> None:
        """Clears works that were being made or deleted when a gateway was killed, of which none is known."""
        if not self._folder.exists():
            return
        # The order matters: the row of a work is written before its folder is made.
        folders = {cast("W", folder.name) for folder in self._folder.iterdir()}
        for work in sorted(folders.difference(known())):
            keys = self._keys(work)
            try:
                holder = self._stores.tokens.authenticate(keys.token())
            except (NotAuthenticatedError, SecretFileError):  # an earlier attempt has removed it
                keys.remove()
            else:
                self._clear(holder.tenant, work)
