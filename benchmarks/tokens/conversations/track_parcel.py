"""One question and three look-ups: the shortest task."""

from __future__ import annotations

from benchmarks.tokens.conversation import Cell, Conversation, Exchange, call
from benchmarks.tokens.retail_desk import make_retail_desk

CONVERSATION = Conversation(
    name="track parcel",
    toolkit=make_retail_desk,
    exchanges=[
        Exchange(
            user="Hi, this is Hana Sato, hana.sato7@example.com. Where is my order #W226551? It should be here "
            "by now.",
            batches=[
                [
                    call("find_customer_by_email", email="hana.sato7@example.com"),
                    call("get_order", order_id="#W226551"),
                ],
                [call("track_shipment", tracking_number="337523067908")],
            ],
            cells=[
                Cell(
                    thought="I'll identify the customer and look up the order with its parcels.",
                    code="""\
customer_id = find_customer_by_email("hana.sato7@example.com")
order = get_order("#W226551")
print(order["customer_id"] == customer_id, order["status"], [item["name"] for item in order["items"]])
for number in order["tracking"]:
    show(track_shipment(number))""",
                )
            ],
            answer="Hi Hana! Your order #W226551 (backpack, mechanical keyboard and running shoes) is in "
            "transit with "
            "Northwind. It was last scanned in Memphis, TN and is expected on 2026-11-24.",
        )
    ],
)
