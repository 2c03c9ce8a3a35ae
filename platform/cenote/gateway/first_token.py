"""A tenant and a token for the user who starts a platform, so that nothing has to be configured."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from cenote.gateway.audit.events import Subject, token_changed
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
    if former and _is_good(stores, former):
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


def _is_good(stores: Stores, text: bytes) -> bool:
    try:
        stores.tokens.authenticate(text.decode("utf-8", "replace").strip())
    except NotAuthenticatedError:
        return False
    return True


def _default_tenant(stores: Stores) -> Tenant:
    try:
        return stores.tenants.get(DEFAULT_TENANT)
    except UnknownEntryError:
        return stores.tenants.create(DEFAULT_TENANT)
