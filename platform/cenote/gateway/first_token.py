"""A tenant and a token for the user who starts a platform, so that nothing has to be configured.

The token is good for everything that a token can be good for. One that an earlier version left gets what has come
since; one that somebody made with other scopes in mind, and put in its place, stays as it is.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cenote.gateway.audit.events import Subject, token_changed
from cenote.gateway.principal import Principal
from cenote.gateway.stores import Stores
from cenote.gateway.tenants import Tenant
from cenote_security.errors import NotAuthenticatedError, UnknownEntryError
from cenote_security.scopes import Scope
from cenote_security.secret_files import create_secret_file, read_secret_file, replace_file

DEFAULT_TENANT: Final = "default"
_NOTE: Final = "of whoever started the platform"


def leave_token(stores: Stores, path: Path) -> None:
    """Sees to it that the file holds a good token of this platform.

    One that is not, such as another platform's, is kept beside it, with `.old` behind its name.
    Raises SecretFileError.
    """
    former = read_secret_file(path) if path.exists() else b""
    holder = _holder(stores, former) if former else None
    if holder is not None:
        _bring_up_to_date(stores, holder)
        return
    tenant = _default_tenant(stores)
    token = stores.tokens.issue(tenant.id, Scope, note=_NOTE)
    subject = Subject(tenant=tenant.id)
    stores.recorder.record(token_changed(subject, "issued", token.id, Scope)).result()
    if former:
        replace_file(path.with_name(f"{path.name}.old"), former)
        replace_file(path, token.text.encode())
    else:
        create_secret_file(path, token.text.encode())


def _holder(stores: Stores, text: bytes) -> Principal | None:
    try:
        return stores.tokens.authenticate(text.decode("utf-8", "replace").strip())
    except NotAuthenticatedError:
        return None


def _bring_up_to_date(stores: Stores, holder: Principal) -> None:
    """Gives a token that this module made the scopes that there were not yet then."""
    lacking = frozenset(Scope) - holder.scopes
    if not lacking or stores.tokens.get(holder.tenant, holder.token).note != _NOTE:
        return
    stores.recorder.record(
        token_changed(Subject(tenant=holder.tenant), "extended", holder.token, lacking)
    ).result()
    stores.tokens.extend(holder.tenant, holder.token, lacking)


def _default_tenant(stores: Stores) -> Tenant:
    try:
        return stores.tenants.get(DEFAULT_TENANT)
    except UnknownEntryError:
        return stores.tenants.create(DEFAULT_TENANT)
