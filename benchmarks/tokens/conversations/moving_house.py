"""One address is entered into several orders and the profile."""

from __future__ import annotations

from benchmarks.tokens.conversation import Cell, Conversation, Exchange, call
from benchmarks.tokens.retail_desk import make_retail_desk

ORDERS = ("#W240650", "#W241263", "#W241876", "#W242489", "#W243102")
PENDING = ("#W240650", "#W241263", "#W243102")
ADDRESS = {"street": "77 Harbor Way", "city": "Denver", "state": "CO", "zip_code": "80205"}

CONVERSATION = Conversation(
    name="moving house",
    toolkit=make_retail_desk,
    exchanges=[
        Exchange(
            user="I'm moving next week to 77 Harbor Way, Denver, CO 80205. Can you send everything that hasn't "
            "shipped "
            "there, and update my profile too? Elif Lind, elif.lind14@example.com.",
            batches=[
                [call("find_customer_by_email", email="elif.lind14@example.com")],
                [call("get_customer", customer_id="elif_lind_1518")],
                [call("get_order", order_id=order_id) for order_id in ORDERS],
            ],
            cells=[
                Cell(
                    thought="I'll look up the customer and see which orders are still pending.",
                    code="""\
customer_id = find_customer_by_email("elif.lind14@example.com")
customer = get_customer(customer_id)
orders = [get_order(order_id) for order_id in customer["orders"]]
for order in orders:
    print(order["id"], order["status"], [item["name"] for item in order["items"]])
print(customer["address"])""",
                )
            ],
            answer="Hi Elif! Three of your orders are still pending: #W240650 (Desk Lamp), #W241263 (Yoga Mat) "
            "and #W243102 "
            "(Yoga Mat). I would send these to 77 Harbor Way, Denver, CO 80205 and put the same address into your "
            "profile. The other two are delivered already. Shall I do that?",
        ),
        Exchange(
            user="Yes please, all of it.",
            batches=[
                [
                    *(call("change_order_address", order_id=order_id, **ADDRESS) for order_id in PENDING),
                    call("change_customer_address", customer_id="elif_lind_1518", **ADDRESS),
                ]
            ],
            cells=[
                Cell(
                    code="""\
address = {"street": "77 Harbor Way", "city": "Denver", "state": "CO", "zip_code": "80205"}
failed = []
for order in orders:
    if order["status"] == "pending":
        try:
            change_order_address(order["id"], **address)
        except Exception as error:
            failed.append(f"{order['id']}: {error}")
try:
    change_customer_address(customer_id, **address)
except Exception as error:
    failed.append(f"profile: {error}")
if failed:
    print(failed)
else:
    reply("Done! Orders #W240650, #W241263 and #W243102 will go to 77 Harbor Way, Denver, CO 80205, and your profile "
          "has the new address.")""",
                    replies=True,
                )
            ],
            answer="Done! Orders #W240650, #W241263 and #W243102 will go to 77 Harbor Way, Denver, CO 80205, "
            "and your "
            "profile has the new address.",
        ),
    ],
)
