"""Sixteen tools of a shop's service desk, as methods over one database."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeVar

from benchmarks.tokens.retail_records import (
    Address,
    CancelReason,
    Customer,
    Order,
    OrderItem,
    OrderStatus,
    Payment,
    Product,
    Shop,
    Tracking,
    Variant,
)

Record = TypeVar("Record")


class RetailTools:
    """The tools; each refuses what the shop's rules forbid with a ValueError that says why."""

    def __init__(self, shop: Shop) -> None:
        self._shop = shop

    def all(self) -> list[Callable[..., object]]:
        """The sixteen, in the order in which they are offered."""
        return [
            self.find_customer_by_email,
            self.find_customer_by_name,
            self.get_customer,
            self.get_order,
            self.list_products,
            self.get_product,
            self.track_shipment,
            self.calculate,
            self.cancel_order,
            self.change_order_items,
            self.change_order_address,
            self.change_order_payment,
            self.change_customer_address,
            self.return_items,
            self.exchange_items,
            self.hand_to_human,
        ]

    def find_customer_by_email(self, email: str) -> str:
        """Customer id for an email address.

        The quickest way to identify a customer. Fails when nobody is registered with the address.

        Args:
            email: Address the customer registered with, in full.
        """
        return self._find("email", lambda customer: customer["email"] == email)

    def find_customer_by_name(self, first_name: str, last_name: str, zip_code: str) -> str:
        """Customer id for a full name and a zip code.

        For customers who do not remember their email address. Upper and lower case do not matter.

        Args:
            first_name: Given name.
            last_name: Family name.
            zip_code: Zip code of the address in the profile.
        """
        wanted = (first_name.lower(), last_name.lower(), zip_code)
        return self._find(
            "name and zip code",
            lambda c: (c["first_name"].lower(), c["last_name"].lower(), c["address"]["zip"]) == wanted,
        )

    def get_customer(self, customer_id: str) -> Customer:
        """Profile of a customer: address, payment methods, ids of all orders.

        Args:
            customer_id: Id as the two find tools return it.
        """
        return self._known(self._shop.customers, customer_id, "customer")

    def get_order(self, order_id: str) -> Order:
        """An order with status, items, payments and tracking numbers.

        Args:
            order_id: Number of the order with its leading #, e.g. #W210000.
        """
        return self._known(self._shop.orders, order_id, "order")

    def list_products(self) -> dict[str, str]:
        """Names of everything the shop sells, each with its product id."""
        return {product["name"]: product["id"] for product in self._shop.products.values()}

    def get_product(self, product_id: str) -> Product:
        """A product with all variants: item ids, options, prices, availability.

        Args:
            product_id: Id of the product, not of one of its variants.
        """
        return self._known(self._shop.products, product_id, "product")

    def track_shipment(self, tracking_number: str) -> Tracking:
        """Where a parcel is and when it is expected.

        Args:
            tracking_number: One of the tracking numbers of an order.
        """
        places = ("Memphis, TN", "Reno, NV", "Columbus, OH", "Louisville, KY")
        place = places[int(tracking_number) % len(places)]
        return Tracking(carrier="Northwind", status="in transit", last_scan=place, expected="2026-11-24")

    def calculate(self, expression: str) -> float:
        """Value of an arithmetic expression, to the cent.

        Use it for every sum that is told to a customer.

        Args:
            expression: Digits, points, brackets and the four basic operators.
        """
        if not set(expression) <= set("0123456789+-*/(). "):
            raise ValueError("invalid characters in expression")
        return round(float(eval(expression)), 2)

    def cancel_order(self, order_id: str, reason: CancelReason) -> Order:
        """Cancel a pending order and refund its payment.

        Orders that were handed to the warehouse cannot be cancelled any more. The customer must have agreed
        to exactly this cancellation before.

        Args:
            order_id: Number of the order with its leading #.
            reason: Why the customer cancels.
        """
        order = self._in_status(order_id, "pending")
        order["status"] = "cancelled"
        order["cancel_reason"] = reason
        order["payments"] += [
            Payment(kind="refund", amount=paid["amount"], method_id=paid["method_id"])
            for paid in order["payments"]
        ]
        return order

    def change_order_items(
        self, order_id: str, item_ids: list[str], new_item_ids: list[str], payment_method_id: str
    ) -> Order:
        """Swap items of a pending order for other variants of the same products.

        Collect all wishes first, an order should be changed in one go. The customer must have agreed to the
        new items and to the difference in price.

        Args:
            order_id: Number of the order with its leading #.
            item_ids: Items that go, an item that occurs twice is named twice.
            new_item_ids: Items that come, in the order of those that go.
            payment_method_id: Method from the profile for the difference in price.
        """
        order = self._in_status(order_id, "pending")
        self._own_method(order, payment_method_id)
        difference = 0.0
        for old, new in zip(item_ids, new_item_ids, strict=True):
            difference += self._replace(order, old, new)
        self._settle(order, difference, payment_method_id)
        return order

    def change_order_address(self, order_id: str, street: str, city: str, state: str, zip_code: str) -> Order:
        """Send a pending order to another address.

        The customer must have agreed to the full new address.

        Args:
            order_id: Number of the order with its leading #.
            street: House number and street.
            city: Name of the city.
            state: State, two letters.
            zip_code: Zip code, five digits.
        """
        order = self._in_status(order_id, "pending")
        order["address"] = Address(street=street, city=city, state=state, zip=zip_code)
        return order

    def change_order_payment(self, order_id: str, payment_method_id: str) -> Order:
        """Let a pending order be paid by another method of the customer.

        What was charged before is refunded. The customer must have agreed.

        Args:
            order_id: Number of the order with its leading #.
            payment_method_id: Method from the customer's profile.
        """
        order = self._in_status(order_id, "pending")
        self._own_method(order, payment_method_id)
        paid = order["payments"][-1]
        order["payments"] += [
            Payment(kind="charge", amount=paid["amount"], method_id=payment_method_id),
            Payment(kind="refund", amount=paid["amount"], method_id=paid["method_id"]),
        ]
        return order

    def change_customer_address(
        self, customer_id: str, street: str, city: str, state: str, zip_code: str
    ) -> Customer:
        """Change the address in a customer's profile.

        Orders that exist already keep their own. The customer must have agreed to the full new address.

        Args:
            customer_id: Id of the customer.
            street: House number and street.
            city: Name of the city.
            state: State, two letters.
            zip_code: Zip code, five digits.
        """
        customer = self.get_customer(customer_id)
        customer["address"] = Address(street=street, city=city, state=state, zip=zip_code)
        return customer

    def return_items(self, order_id: str, item_ids: list[str], payment_method_id: str) -> Order:
        """Take back items of a delivered order.

        A label for the parcel goes out by mail. Money goes to the method that paid or to a gift card. The
        customer must have agreed to the list of items.

        Args:
            order_id: Number of the order with its leading #.
            item_ids: Items that come back, an item that occurs twice is named twice.
            payment_method_id: Method that gets the refund.
        """
        order = self._in_status(order_id, "delivered")
        self._own_method(order, payment_method_id)
        for item_id in item_ids:
            self._item(order, item_id)
        order["status"] = "return requested"
        order["return_items"] = sorted(item_ids)
        return order

    def exchange_items(
        self, order_id: str, item_ids: list[str], new_item_ids: list[str], payment_method_id: str
    ) -> Order:
        """Exchange items of a delivered order for other variants of the same products.

        Once per order. The customer must have agreed to the new items and to the difference in price.

        Args:
            order_id: Number of the order with its leading #.
            item_ids: Items that come back, an item that occurs twice is named twice.
            new_item_ids: Items that go out, in the order of those that come back.
            payment_method_id: Method from the profile for the difference in price.
        """
        order = self._in_status(order_id, "delivered")
        self._own_method(order, payment_method_id)
        for old, new in zip(item_ids, new_item_ids, strict=True):
            self._variant(self._item(order, old)["product_id"], new)
        order["status"] = "exchange requested"
        order["exchange_items"] = sorted(item_ids)
        return order

    def hand_to_human(self, summary: str) -> str:
        """Pass the conversation on to a person.

        For wishes that no tool can meet, and for customers who insist on it.

        Args:
            summary: What the person must know: who, which order, what was tried.
        """
        return f"a colleague takes over ({len(summary.split())} words of summary)"

    # -- the shop's rules -------------------------------------------------------------------------------------

    def _find(self, what: str, matches: Callable[[Customer], bool]) -> str:
        for customer in self._shop.customers.values():
            if matches(customer):
                return customer["id"]
        raise ValueError(f"no customer with this {what}")

    @staticmethod
    def _known(table: dict[str, Record], key: str, what: str) -> Record:
        if key not in table:
            raise ValueError(f"{what} {key!r} not found")
        return table[key]

    def _in_status(self, order_id: str, status: OrderStatus) -> Order:
        order = self.get_order(order_id)
        if order["status"] != status:
            raise ValueError(f"order {order_id} is {order['status']}, not {status}")
        return order

    def _own_method(self, order: Order, payment_method_id: str) -> None:
        owned = {method["id"] for method in self._shop.customers[order["customer_id"]]["payment_methods"]}
        if payment_method_id not in owned:
            raise ValueError(f"{payment_method_id!r} is not a payment method of {order['customer_id']}")

    @staticmethod
    def _item(order: Order, item_id: str) -> OrderItem:
        for item in order["items"]:
            if item["item_id"] == item_id:
                return item
        raise ValueError(f"item {item_id} is not in order {order['id']}")

    def _variant(self, product_id: str, item_id: str) -> Variant:
        for variant in self._shop.products[product_id]["variants"]:
            if variant["item_id"] == item_id and variant["available"]:
                return variant
        raise ValueError(f"item {item_id} is not an available variant of product {product_id}")

    def _replace(self, order: Order, old: str, new: str) -> float:
        item = self._item(order, old)
        variant = self._variant(item["product_id"], new)
        difference = variant["price"] - item["price"]
        item["item_id"], item["options"], item["price"] = (
            variant["item_id"],
            variant["options"],
            variant["price"],
        )
        return difference

    @staticmethod
    def _settle(order: Order, difference: float, payment_method_id: str) -> None:
        kind: Literal["charge", "refund"] = "charge" if difference > 0 else "refund"
        order["payments"].append(
            Payment(kind=kind, amount=round(abs(difference), 2), method_id=payment_method_id)
        )
