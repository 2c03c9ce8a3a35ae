"""The order has to be found among five before it is cancelled."""

from __future__ import annotations

from benchmarks.tokens.conversation import Cell, Conversation, Exchange, call
from benchmarks.tokens.retail_desk import make_retail_desk

ORDERS = ("#W245554", "#W246167", "#W246780", "#W247393", "#W248006")

CONVERSATION = Conversation(
    name="cancel order",
    toolkit=make_retail_desk,
    exchanges=[
        Exchange(
            user="Hello, I'd like to cancel the order with the smart watch, I found it cheaper elsewhere. "
            "My email is greta.okafor16@example.com.",
            batches=[
                [call("find_customer_by_email", email="greta.okafor16@example.com")],
                [call("get_customer", customer_id="greta_okafor_1592")],
                [call("get_order", order_id=order_id) for order_id in ORDERS],
            ],
            cells=[
                Cell(
                    thought="I'll find the customer's orders that contain a smart watch.",
                    code="""\
customer = get_customer(find_customer_by_email("greta.okafor16@example.com"))
orders = {order_id: get_order(order_id) for order_id in customer["orders"]}
for order in orders.values():
    if any(item["name"] == "Smart Watch" for item in order["items"]):
        show(order)""",
                )
            ],
            answer="Hi Greta, I found it: order #W248006 is still pending and contains a Desk Lamp (51.89), the "
            "Smart "
            "Watch (179.68) and a Garden Hose (40.70). I can cancel the whole order because you found it cheaper; "
            "272.27 would go back to your credit card. Shall I cancel it?",
        ),
        Exchange(
            user="Yes, please cancel all of it.",
            batches=[[call("cancel_order", order_id="#W248006", reason="found cheaper")]],
            cells=[
                Cell(
                    code="""\
try:
    order = cancel_order("#W248006", "found cheaper")
    refund = order["payments"][-1]
    print(order["status"], refund)
    reply(f"Done: order #W248006 is cancelled and {refund['amount']:.2f} will be refunded to your credit card.")
except Exception as error:
    print(error)""",
                    replies=True,
                )
            ],
            answer="Done: order #W248006 is cancelled and 272.27 will be refunded to your credit card.",
        ),
    ],
)
