"""`cenote token create|ls|rotate|revoke`: tokens of a tenant of the platform of this user."""

from __future__ import annotations

import argparse
import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cenote.cli.arguments import COMMAND, positive_seconds
from cenote.cli.exit_status import ExitStatus
from cenote.cli.platform.connection import note, records
from cenote.runtime.remote.address import token_file
from cenote.terminal.screen import Screen
from cenote_security.auth.secret_files import read_secret_file, replace_file
from cenote_security.auth.tokens import ORDINARY_SCOPES, BearerToken, Scope
from cenote_security.ids import TokenId

if TYPE_CHECKING:
    from cenote.gateway.store.tenants import TokenRecord


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("token", help="tokens of the platform here, for its operator")
    verbs = parser.add_subparsers(title="commands", metavar=COMMAND, required=True)
    creating = _verb(verbs, "create", "make a token and print it, once", create)
    creating.add_argument(
        "--scope",
        action="append",
        choices=[scope.value for scope in Scope],
        help="what it is good for; may be repeated (default: all but admin and machines)",
    )
    creating.add_argument("--lifetime", type=positive_seconds, metavar="SECONDS", help="default: for ever")
    creating.add_argument("--note", default="", help="what it is for")
    listing = _verb(verbs, "ls", "list a tenant's tokens, without their secrets", list_all)
    listing.add_argument("--json", action="store_true", help="print one JSON array")
    rotating = _verb(
        verbs,
        "rotate",
        "make a token in place of another, which works a while longer; also in your own file",
        rotate,
    )
    rotating.add_argument("id", metavar="ID")
    rotating.add_argument(
        "--grace", type=positive_seconds, default=86_400.0, metavar="SECONDS", help="default: a day"
    )
    revoking = _verb(verbs, "revoke", "refuse a token from now on", revoke)
    revoking.add_argument("id", metavar="ID")


def _verb(
    verbs: argparse._SubParsersAction[argparse.ArgumentParser], name: str, text: str, handler: object
) -> argparse.ArgumentParser:
    parser = verbs.add_parser(name, help=text)
    parser.add_argument("tenant", metavar="TENANT", help='such as "default", whom `cenote up` makes')
    parser.set_defaults(handler=handler)
    return parser


def create(arguments: argparse.Namespace) -> int:
    from cenote.gateway.audit.events import Subject, token_changed
    from cenote.gateway.store.tenants import Tenants, Tokens

    with records() as database:
        tenant, scopes = Tenants(database).get(arguments.tenant).id, arguments.scope or ORDINARY_SCOPES
        token = Tokens(database).issue(tenant, scopes, lifetime=arguments.lifetime, note=arguments.note)
        note(database, token_changed(Subject(tenant=tenant), "issued", token.id, scopes))
    Screen().line(token.text)
    return ExitStatus.OK


def list_all(arguments: argparse.Namespace) -> int:
    from cenote.gateway.store.tenants import Tenants, Tokens

    screen = Screen()
    with records() as database:
        found = [_as_data(token) for token in Tokens(database).of(Tenants(database).get(arguments.tenant).id)]
    if arguments.json:
        screen.line(json.dumps(found, indent=2))
        return ExitStatus.OK
    for each in found:
        screen.line(f"{each['id']}  {each['state']}  {' '.join(each['scopes'])}  {each['note']}".rstrip())
    return ExitStatus.OK


def rotate(arguments: argparse.Namespace) -> int:
    from cenote.gateway.audit.events import Subject, token_changed
    from cenote.gateway.store.tenants import Tenants, Tokens

    with records() as database:
        tenant = Tenants(database).get(arguments.tenant).id
        token = Tokens(database).rotate(tenant, TokenId(arguments.id), grace=arguments.grace)
        note(database, token_changed(Subject(tenant=tenant), "rotated", arguments.id))
    screen = Screen()
    if _replaced(arguments.id, token):
        screen.note(f"it is in {token_file()} now, instead of the former one")
    screen.line(token.text)
    return ExitStatus.OK


def _replaced(former: str, token: BearerToken) -> bool:
    """Whether this user's own token was the former one, and is the new one now.

    Else the operator's commands, and health checks among them, would be refused once that is over.
    """
    path = token_file()
    held = BearerToken.parse(read_secret_file(path).decode().strip()) if path.exists() else None
    if held is None or held.id != former:
        return False
    replace_file(path, token.text.encode())
    return True


def revoke(arguments: argparse.Namespace) -> int:
    from cenote.gateway.audit.events import Subject, token_changed
    from cenote.gateway.store.tenants import Tenants, Tokens

    with records() as database:
        tenant = Tenants(database).get(arguments.tenant).id
        Tokens(database).revoke(tenant, TokenId(arguments.id))
        note(database, token_changed(Subject(tenant=tenant), "revoked", arguments.id))
    Screen().line(f"revoked {arguments.id}")
    return ExitStatus.OK


def _as_data(token: TokenRecord) -> dict[str, Any]:
    return {
        "id": token.id,
        "state": _state(token),
        "scopes": sorted(token.scopes),
        "note": token.note,
        "created": _moment(token.created),
        "expires": _moment(token.expires),
        "successor": token.successor,
    }


def _state(token: TokenRecord) -> str:
    if token.revoked is not None:
        return "revoked"
    over = token.expires is not None and token.expires <= datetime.now(UTC).timestamp()
    return "expired" if over else "good"


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
