"""`cenote tenant create|ls|limit|close`: tenants of the platform of this user. No token reaches this."""

from __future__ import annotations

import argparse
import json
from typing import Any

from cenote.cli.arguments import COMMAND, value_of
from cenote.cli.exit_status import ExitStatus
from cenote.cli.platform.connection import note, records
from cenote.gateway.values.quota import TenantLimits
from cenote.terminal.screen import Screen
from cenote_security.options import definition, definitions


def add_to(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = commands.add_parser("tenant", help="tenants of the platform here, for its operator")
    verbs = parser.add_subparsers(title="commands", metavar=COMMAND, required=True)
    creating = verbs.add_parser("create", help="make a tenant")
    creating.add_argument("name", metavar="NAME")
    creating.add_argument(
        "--weight", type=float, default=1.0, help="its share of a full machine (default %(default)s)"
    )
    creating.set_defaults(handler=create)
    listing = verbs.add_parser("ls", help="list the tenants, with what they have and may have")
    listing.add_argument("--json", action="store_true", help="print one JSON array")
    listing.set_defaults(handler=list_all)
    limiting = verbs.add_parser("limit", help="set what a tenant may have at once")
    limiting.add_argument("name", metavar="NAME")
    known = definitions(TenantLimits)
    limiting.add_argument("quota", choices=[each.name for each in known])
    limiting.add_argument(
        "limit",
        metavar="LIMIT",
        help='such as 10, "8GiB" (of memory, and of what is stored) or 2.5 (CPUs), or "none"; of '
        + "; ".join(f"{each.name}: {each.option.help}" for each in known),
    )
    limiting.set_defaults(handler=limit)
    closing = verbs.add_parser("close", help="refuse all tokens of a tenant from now on")
    closing.add_argument("name", metavar="NAME")
    closing.set_defaults(handler=close)


def create(arguments: argparse.Namespace) -> int:
    from cenote.gateway.audit.events import Subject, tenant_changed
    from cenote.gateway.store.tenants import Tenants

    with records() as database:
        tenant = Tenants(database).create(arguments.name, weight=arguments.weight)
        note(database, tenant_changed(Subject(tenant=tenant.id), "created", tenant.name))
    Screen().line(f"{tenant.name}  {tenant.id}")
    return ExitStatus.OK


def list_all(arguments: argparse.Namespace) -> int:
    from cenote.gateway.store.quotas import QuotaBook
    from cenote.gateway.store.tenants import Tenants
    from cenote.gateway.values.quota import Quota, shown

    screen = Screen()
    with records() as database:
        quotas = QuotaBook(database)
        found: list[dict[str, Any]] = [
            {
                "name": tenant.name,
                "id": tenant.id,
                "weight": tenant.weight,
                "open": tenant.closed is None,
                "used": dict(quotas.used(tenant.id)),
                "limits": dict(quotas.limits(tenant.id)),
            }
            for tenant in Tenants(database).all()
        ]
    if arguments.json:
        screen.line(json.dumps(found, indent=2))
        return ExitStatus.OK
    for each in found:
        bounds = each["limits"].items()
        limits = (
            ", ".join(f"{quota} <= {shown(Quota(quota), bound)}" for quota, bound in bounds) or "no limits"
        )
        screen.line(f"{each['name']}  {each['id']}  {'open' if each['open'] else 'closed'}  {limits}")
    return ExitStatus.OK


def limit(arguments: argparse.Namespace) -> int:
    from cenote.gateway.audit.events import Subject, tenant_changed
    from cenote.gateway.store.quotas import QuotaBook
    from cenote.gateway.store.tenants import Tenants
    from cenote.gateway.values.quota import Quota, shown

    quota = Quota(arguments.quota)
    given = None if arguments.limit == "none" else value_of(definition(TenantLimits, quota), arguments.limit)
    bound = TenantLimits(**{quota.value: given}).amounts().get(quota)
    with records() as database:
        tenant = Tenants(database).get(arguments.name)
        QuotaBook(database).set_limit(tenant.id, quota, bound)
        change = (
            f"{quota.value} <= {shown(quota, bound)}" if bound is not None else f"{quota.value} not limited"
        )
        note(database, tenant_changed(Subject(tenant=tenant.id), change, tenant.name))
    Screen().line(f"{arguments.name}: {change}")
    return ExitStatus.OK


def close(arguments: argparse.Namespace) -> int:
    from cenote.gateway.audit.events import Subject, tenant_changed
    from cenote.gateway.store.tenants import Tenants

    with records() as database:
        tenants = Tenants(database)
        tenants.close(arguments.name)
        subject = Subject(tenant=tenants.get(arguments.name).id)
        note(database, tenant_changed(subject, "closed", arguments.name))
    Screen().line(f"closed {arguments.name}")
    return ExitStatus.OK
