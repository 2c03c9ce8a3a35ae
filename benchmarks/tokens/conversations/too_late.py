"""Nothing can be done; the customer is handed to a person."""

from __future__ import annotations

from benchmarks.tokens.conversation import Cell, Conversation, Exchange, call
from benchmarks.tokens.retail_desk import make_retail_desk

ORDERS = ("#W213065", "#W213678", "#W214291", "#W214904", "#W215517")
SUMMARY = (
    "Bruno Silva (bruno_silva_1037) wants orders #W213065, #W213678 and #W214291 cancelled because he changed his "
    "mind. All three are processed, so they cannot be cancelled by the desk. He asked for a human."
)

CONVERSATION = Conversation(
    name="too late",
    toolkit=make_retail_desk,
    exchanges=[
        Exchange(
            user="Bruno Silva, bruno.silva1@example.com. Cancel all my orders that haven't been delivered yet, "
            "I changed my "
            "mind. Don't ask, just do it.",
            batches=[
                [call("find_customer_by_email", email="bruno.silva1@example.com")],
                [call("get_customer", customer_id="bruno_silva_1037")],
                [call("get_order", order_id=order_id) for order_id in ORDERS],
            ],
            cells=[
                Cell(
                    thought="I'll check which of the orders can still be cancelled.",
                    code="""\
customer = get_customer(find_customer_by_email("bruno.silva1@example.com"))
print(customer["id"])
for order_id in customer["orders"]:
    order = get_order(order_id)
    print(order_id, order["status"], [item["name"] for item in order["items"]])""",
                )
            ],
            answer="Hi Bruno, I'm sorry: #W213065, #W213678 and #W214291 are processed already, and processed "
            "orders cannot "
            "be cancelled. Once they are delivered, I can take the items back and refund them. Would that help?",
        ),
        Exchange(
            user="That's ridiculous. I want to speak to a human.",
            batches=[[call("hand_to_human", summary=SUMMARY)]],
            cells=[
                Cell(
                    code=f"""\
hand_to_human({SUMMARY!r})
reply("I understand. A colleague takes over and will be with you shortly.")""",
                    replies=True,
                )
            ],
            answer="I understand. A colleague takes over and will be with you shortly.",
        ),
    ],
)
