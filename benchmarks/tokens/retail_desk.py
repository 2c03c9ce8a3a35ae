"""The service desk of the shop: its tools, and the rules that an agent gets."""

from __future__ import annotations

from benchmarks.tokens.conversation import Toolkit
from benchmarks.tokens.retail_records import (
    Address,
    Customer,
    Order,
    OrderItem,
    Payment,
    PaymentMethod,
    Product,
    Tracking,
    Variant,
    make_shop,
)
from benchmarks.tokens.retail_tools import RetailTools

RULES = """\
You work at the service desk of an online shop. Today is 2026-11-21. All prices are US dollars.

Who you talk to: identify the customer at the beginning, by email address, or by name and zip code, even \
when an order number is given. Help with that customer's own data only; refuse requests about other people's.

What you can do: give information on profile, orders, products and parcels; cancel or change pending orders \
(items, address, payment); change the address in the profile; return or exchange items of delivered orders.

Before anything is changed, tell the customer exactly what will happen, amounts included, and wait for a \
clear yes. Questions need no consent. A change of items or an exchange happens once per order, so ask whether \
there is more to change first. Items can be swapped only for available variants of the same product. A price \
difference is paid by or refunded to a method from the profile; a gift card must hold enough. Refunds of \
returns go to the method that paid or to a gift card.

Orders in status processed cannot be changed, returned or cancelled. If a wish cannot be met, say so plainly \
and offer what is possible; hand over to a human only if the customer insists or the tools cannot help.

Be brief and friendly. Never invent ids, prices or rules."""


def make_retail_desk() -> Toolkit:
    return Toolkit(
        instructions=RULES,
        tools=RetailTools(make_shop()).all(),
        types=(Address, PaymentMethod, Customer, OrderItem, Payment, Order, Variant, Product, Tracking),
        arithmetic=frozenset({"calculate"}),
    )
