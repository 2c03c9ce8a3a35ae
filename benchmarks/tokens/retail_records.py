"""The data of a shop: the records that its tools return, and a full database, equal on every run."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Literal, TypedDict

OrderStatus = Literal[
    "pending", "processed", "delivered", "cancelled", "return requested", "exchange requested"
]


CancelReason = Literal["changed mind", "found cheaper", "wrong item", "arrives too late"]


class Address(TypedDict):
    street: str
    city: str
    state: str
    zip: str


class PaymentMethod(TypedDict):
    id: str
    kind: Literal["credit_card", "gift_card", "paypal"]
    last_four: str | None
    balance: float | None


class Customer(TypedDict):
    id: str
    first_name: str
    last_name: str
    email: str
    address: Address
    payment_methods: list[PaymentMethod]
    orders: list[str]


class OrderItem(TypedDict):
    item_id: str
    product_id: str
    name: str
    options: dict[str, str]
    price: float


class Payment(TypedDict):
    kind: Literal["charge", "refund"]
    amount: float
    method_id: str


class Order(TypedDict):
    id: str
    customer_id: str
    status: OrderStatus
    placed: str
    address: Address
    items: list[OrderItem]
    payments: list[Payment]
    tracking: list[str]
    cancel_reason: CancelReason | None
    return_items: list[str]
    exchange_items: list[str]


class Variant(TypedDict):
    item_id: str
    options: dict[str, str]
    price: float
    available: bool


class Product(TypedDict):
    id: str
    name: str
    variants: list[Variant]


class Tracking(TypedDict):
    carrier: str
    status: str
    last_scan: str
    expected: str


@dataclass
class Shop:
    """The whole database, by id."""

    customers: dict[str, Customer] = field(default_factory=dict)
    orders: dict[str, Order] = field(default_factory=dict)
    products: dict[str, Product] = field(default_factory=dict)


PRODUCTS: dict[str, tuple[float, dict[str, tuple[str, ...]]]] = {
    "Running Shoes": (95.0, {"size": ("8", "9", "10"), "color": ("black", "white")}),
    "Water Bottle": (24.0, {"capacity": ("500ml", "1000ml"), "material": ("steel", "glass", "plastic")}),
    "Mechanical Keyboard": (120.0, {"switch": ("linear", "clicky"), "layout": ("full", "compact")}),
    "Desk Lamp": (48.0, {"color": ("black", "silver"), "power": ("USB", "AC", "battery")}),
    "Backpack": (70.0, {"size": ("small", "large"), "color": ("grey", "green", "navy")}),
    "Wireless Earbuds": (140.0, {"color": ("black", "white"), "noise cancelling": ("yes", "no")}),
    "Yoga Mat": (30.0, {"thickness": ("4mm", "6mm"), "color": ("blue", "pink")}),
    "Espresso Machine": (380.0, {"pressure": ("9 bar", "15 bar"), "grinder": ("yes", "no")}),
    "Office Chair": (260.0, {"material": ("mesh", "leather"), "armrest": ("fixed", "adjustable")}),
    "T-Shirt": (19.0, {"size": ("S", "M", "L"), "color": ("black", "white", "red")}),
    "Electric Kettle": (42.0, {"capacity": ("1l", "1.5l"), "material": ("steel", "glass")}),
    "Smart Watch": (210.0, {"band": ("silicone", "leather"), "display": ("AMOLED", "LCD")}),
    "Hiking Boots": (150.0, {"size": ("8", "9", "10"), "waterproof": ("yes", "no")}),
    "Garden Hose": (33.0, {"length": ("15m", "30m"), "material": ("rubber", "vinyl")}),
    "Board Game": (38.0, {"players": ("2-4", "3-6"), "language": ("English", "German")}),
    "Vacuum Cleaner": (190.0, {"type": ("upright", "robot"), "bag": ("bagless", "bagged")}),
}
FIRST_NAMES = ("Amara", "Bruno", "Chiara", "Dmitri", "Elif", "Farid", "Greta", "Hana", "Ivo", "Jonas")
LAST_NAMES = ("Okafor", "Silva", "Rossi", "Volkov", "Kaya", "Haddad", "Lind", "Sato")
CITIES = (
    ("Austin", "TX", "78701"),
    ("Denver", "CO", "80203"),
    ("Boston", "MA", "02108"),
    ("Seattle", "WA", "98101"),
)
STREETS = ("Oak Street", "Maple Avenue", "River Road", "Hill Lane", "Sunset Drive")
STATUSES: tuple[OrderStatus, ...] = ("pending", "delivered", "processed", "pending", "delivered")


def make_shop() -> Shop:
    """A shop of sixteen products and twenty customers with their orders."""
    dice = random.Random(20_26)
    shop = Shop()
    for number, name in enumerate(PRODUCTS):
        product = _product(name, number, dice)
        shop.products[product["id"]] = product
    for number in range(20):
        customer = _customer(number, dice)
        shop.customers[customer["id"]] = customer
        for _ in range(dice.randrange(2, 6)):
            order = _order(customer, len(shop.orders), list(shop.products.values()), dice)
            shop.orders[order["id"]] = order
            customer["orders"].append(order["id"])
    return shop


def _product(name: str, number: int, dice: random.Random) -> Product:
    price, options = PRODUCTS[name]
    combinations: list[dict[str, str]] = [{}]
    for option, choices in options.items():
        combinations = [{**known, option: choice} for known in combinations for choice in choices]
    variants = [
        Variant(
            item_id=str(4_000_000 + number * 100 + place),
            options=combination,
            price=round(price * dice.uniform(0.85, 1.25), 2),
            available=dice.random() < 0.75,
        )
        for place, combination in enumerate(combinations)
    ]
    return Product(id=str(7100 + number), name=name, variants=variants)


def _customer(number: int, dice: random.Random) -> Customer:
    first, last = FIRST_NAMES[number % len(FIRST_NAMES)], LAST_NAMES[number % len(LAST_NAMES)]
    return Customer(
        id=f"{first.lower()}_{last.lower()}_{1000 + number * 37}",
        first_name=first,
        last_name=last,
        email=f"{first.lower()}.{last.lower()}{number}@example.com",
        address=_address(dice),
        payment_methods=_payment_methods(number, dice),
        orders=[],
    )


def _address(dice: random.Random) -> Address:
    city, state, code = dice.choice(CITIES)
    return Address(
        street=f"{dice.randrange(10, 990)} {dice.choice(STREETS)}", city=city, state=state, zip=code
    )


def _payment_methods(number: int, dice: random.Random) -> list[PaymentMethod]:
    card = PaymentMethod(
        id=f"credit_card_{5100 + number}",
        kind="credit_card",
        last_four=str(dice.randrange(1000, 9999)),
        balance=None,
    )
    gift = PaymentMethod(
        id=f"gift_card_{3200 + number}",
        kind="gift_card",
        last_four=None,
        balance=float(dice.randrange(20, 200)),
    )
    paypal = PaymentMethod(id=f"paypal_{8300 + number}", kind="paypal", last_four=None, balance=None)
    return [card, dice.choice((gift, paypal))]


def _order(customer: Customer, number: int, products: list[Product], dice: random.Random) -> Order:
    status = dice.choice(STATUSES)
    items = [_order_item(product, dice) for product in dice.sample(products, dice.randrange(1, 4))]
    total = round(sum(item["price"] for item in items), 2)
    return Order(
        id=f"#W{210_000 + number * 613}",
        customer_id=customer["id"],
        status=status,
        placed=f"2026-0{dice.randrange(1, 10)}-{dice.randrange(10, 28)}",
        address=customer["address"],
        items=items,
        payments=[Payment(kind="charge", amount=total, method_id=customer["payment_methods"][0]["id"])],
        tracking=[] if status == "pending" else [str(dice.randrange(10**11, 10**12))],
        cancel_reason=None,
        return_items=[],
        exchange_items=[],
    )


def _order_item(product: Product, dice: random.Random) -> OrderItem:
    variant = dice.choice(product["variants"])
    return OrderItem(
        item_id=variant["item_id"],
        product_id=product["id"],
        name=product["name"],
        options=variant["options"],
        price=variant["price"],
    )
