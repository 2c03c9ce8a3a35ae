"""Sixteen tools of a shop's support desk, with their types: a tool set of ordinary size."""

from __future__ import annotations

from enum import Enum
from typing import Literal

from pydantic import BaseModel, Field
from typing_extensions import TypedDict  # pydantic accepts that of typing only from Python 3.12 on


class OrderStatus(Enum):
    PENDING = "pending"
    PROCESSED = "processed"
    DELIVERED = "delivered"
    CANCELLED = "cancelled"


class Address(BaseModel):
    """A postal address"""

    street: str
    street2: str = ""
    city: str
    state: str = Field(description="two letters")
    country: str = "USA"
    zip: str


class PaymentMethod(BaseModel):
    id: str
    kind: Literal["credit_card", "gift_card", "paypal"]
    balance: float | None = None


class Customer(BaseModel):
    id: str
    name: str
    email: str
    address: Address
    payment_methods: list[PaymentMethod]
    orders: list[str]


class Item(BaseModel):
    item_id: str
    product_id: str
    name: str
    price: float
    options: dict[str, str]


class Order(BaseModel):
    id: str
    customer_id: str
    status: OrderStatus
    items: list[Item]
    address: Address
    total: float


class Variant(TypedDict):
    item_id: str
    options: dict[str, str]
    available: bool
    price: float


class Product(BaseModel):
    product_id: str
    name: str
    variants: dict[str, Variant]


class RetailDesk:
    """Sixteen bound methods of one object, as a program would have them."""

    def __init__(self) -> None:
        self.calls = 0

    def find_customer_by_email(self, email: str) -> str:
        """Customer id for an email address."""
        raise NotImplementedError

    def find_customer_by_name_zip(self, first_name: str, last_name: str, zip: str) -> str:
        """Customer id for a name and postal code, if the email is not known."""
        raise NotImplementedError

    def get_customer(self, customer_id: str) -> Customer:
        """Profile of a customer with address, payment methods and order ids."""
        raise NotImplementedError

    def get_order(self, order_id: str) -> Order:
        """Status and details of an order; ids begin with '#'."""
        raise NotImplementedError

    def get_product(self, product_id: str) -> Product:
        """All variants of a product with availability and price."""
        raise NotImplementedError

    def list_products(self) -> dict[str, str]:
        """Product ids by name."""
        raise NotImplementedError

    def search_orders(
        self, customer_id: str, status: OrderStatus | None = None, since: str | None = None, limit: int = 20
    ) -> list[Order]:
        """Orders of a customer, newest first."""
        raise NotImplementedError

    def cancel_order(self, order_id: str, reason: Literal["no longer needed", "ordered by mistake"]) -> Order:
        """Cancel a pending order; refunds go to the original payment method."""
        raise NotImplementedError

    def change_items(
        self, order_id: str, item_ids: list[str], new_item_ids: list[str], payment_id: str
    ) -> Order:
        """Change items of a pending order to other variants of the same products, once."""
        raise NotImplementedError

    def change_address(self, order_id: str, address: Address) -> Order:
        """Change the shipping address of a pending order."""
        raise NotImplementedError

    def change_payment(self, order_id: str, payment_id: str) -> Order:
        """Change the payment method of a pending order."""
        raise NotImplementedError

    def exchange_items(
        self, order_id: str, item_ids: list[str], new_item_ids: list[str], payment_id: str
    ) -> Order:
        """Exchange items of a delivered order for other variants of the same products."""
        raise NotImplementedError

    def return_items(self, order_id: str, item_ids: list[str], payment_id: str) -> Order:
        """Return items of a delivered order; the refund goes to the given payment method."""
        raise NotImplementedError

    def change_customer_address(self, customer_id: str, address: Address) -> Customer:
        """Change the default address of a customer."""
        raise NotImplementedError

    def calculate(self, expression: str) -> float:
        """Value of an arithmetic expression."""
        raise NotImplementedError

    def transfer_to_human(self, summary: str) -> None:
        """Hand the customer over to a person, only if the tools can't help."""
        raise NotImplementedError

    @property
    def tools(self) -> list[object]:
        names = [name for name in vars(type(self)) if not name.startswith("_") and name != "tools"]
        return [getattr(self, name) for name in names]
