"""Sums over orders and a search through variants, then one change."""

from __future__ import annotations

from benchmarks.tokens.conversation import Cell, Conversation, Exchange, call
from benchmarks.tokens.retail_desk import make_retail_desk

ORDERS = ("#W222260", "#W222873", "#W223486")

CONVERSATION = Conversation(
    name="cheaper variants",
    toolkit=make_retail_desk,
    exchanges=[
        Exchange(
            user="Hi, farid.haddad5@example.com here. How much money is in my pending orders altogether? And in "
            "#W223486, "
            "is there a cheaper desk lamp or keyboard that I could take instead of the ones I ordered?",
            batches=[
                [call("find_customer_by_email", email="farid.haddad5@example.com")],
                [call("get_customer", customer_id="farid_haddad_1185")],
                [call("get_order", order_id=order_id) for order_id in ORDERS],
                [
                    call("get_product", product_id="7103"),
                    call("get_product", product_id="7102"),
                    call("calculate", expression="424.80 + 192.87"),
                ],
                [call("calculate", expression="57.63 - 46.41")],
            ],
            cells=[
                Cell(
                    thought="I'll look up the customer and the pending orders.",
                    code="""\
customer = get_customer(find_customer_by_email("farid.haddad5@example.com"))
orders = {order_id: get_order(order_id) for order_id in customer["orders"]}
pending = [order for order in orders.values() if order["status"] == "pending"]
print("pending:", [order["id"] for order in pending],
      round(sum(item["price"] for order in pending for item in order["items"]), 2))
show(orders["#W223486"])
show(customer["payment_methods"])""",
                ),
                Cell(
                    thought="Now I'll compare the lamp and the keyboard with their available variants.",
                    code="""\
for item in orders["#W223486"]["items"]:
    if item["name"] in ("Desk Lamp", "Mechanical Keyboard"):
        print(item["name"], item["item_id"], item["options"], item["price"])
        for v in get_product(item["product_id"])["variants"]:
            if v["available"] and v["price"] < item["price"]:
                print(v["item_id"], v["options"], v["price"], "saves", round(item["price"] - v["price"], 2))""",
                ),
            ],
            answer="Hi Farid! Your two pending orders, #W222260 and #W223486, come to 617.67. The cheapest desk "
            "lamp is the "
            "black one with USB power for 46.41, 11.22 less than yours (57.63). Your keyboard at 118.34 is "
            "already the "
            "cheapest available one. Shall I swap the lamp? Items can be changed only once per order, and the 11.22 "
            "would go to your credit card or gift card.",
        ),
        Exchange(
            user="Yes, swap just the lamp for that one, the difference to the card please.",
            batches=[
                [
                    call(
                        "change_order_items",
                        order_id="#W223486",
                        item_ids=["4000301"],
                        new_item_ids=["4000300"],
                        payment_method_id="credit_card_5105",
                    )
                ]
            ],
            cells=[
                Cell(
                    code="""\
try:
    order = change_order_items("#W223486", ["4000301"], ["4000300"], "credit_card_5105")
    print(order["payments"][-1])
    reply("Done: #W223486 now has the black USB desk lamp, and 11.22 are refunded to your credit card.")
except Exception as error:
    print(error)""",
                    replies=True,
                )
            ],
            answer="Done: #W223486 now has the black USB desk lamp, and 11.22 are refunded to your credit card.",
        ),
    ],
)
