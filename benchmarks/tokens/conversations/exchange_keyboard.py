"""A delivered item is exchanged for another variant, after checking prices and availability."""

from __future__ import annotations

from benchmarks.tokens.conversation import Cell, Conversation, Exchange, call
from benchmarks.tokens.retail_desk import make_retail_desk

CONVERSATION = Conversation(
    name="exchange keyboard",
    toolkit=make_retail_desk,
    exchanges=[
        Exchange(
            user="My name is Ivo Okafor, zip code 98101. The keyboard I got with #W228390 is too quiet for me. "
            "Can I swap "
            "it for a clicky one with the same layout?",
            batches=[
                [
                    call("find_customer_by_name", first_name="Ivo", last_name="Okafor", zip_code="98101"),
                    call("get_order", order_id="#W228390"),
                ],
                [call("get_product", product_id="7102")],
                [call("calculate", expression="149.04 - 126.65")],
            ],
            cells=[
                Cell(
                    thought="I'll identify the customer and look at the order.",
                    code="""\
customer_id = find_customer_by_name("Ivo", "Okafor", "98101")
order = get_order("#W228390")
print(order["customer_id"] == customer_id)
show(order)""",
                ),
                Cell(
                    thought="Now the keyboard's clicky variants.",
                    code="""\
keyboard = order["items"][0]
for variant in get_product(keyboard["product_id"])["variants"]:
    if variant["options"]["switch"] == "clicky":
        print(variant, "difference", round(variant["price"] - keyboard["price"], 2))""",
                ),
            ],
            answer="Hi Ivo! Yes, the clicky keyboard with the full layout is available for 126.65. That is "
            "22.39 less than "
            "the 149.04 you paid; the difference goes back to your credit card. An exchange is possible only "
            "once per "
            "order: is there anything else in #W228390 to exchange (the water bottle), or shall I go ahead with the "
            "keyboard?",
        ),
        Exchange(
            user="No, just the keyboard. Go ahead.",
            batches=[
                [
                    call(
                        "exchange_items",
                        order_id="#W228390",
                        item_ids=["4000200"],
                        new_item_ids=["4000202"],
                        payment_method_id="credit_card_5108",
                    )
                ]
            ],
            cells=[
                Cell(
                    code="""\
try:
    order = exchange_items("#W228390", ["4000200"], ["4000202"], "credit_card_5108")
    print(order["status"], order["exchange_items"])
    reply("All set: the exchange of your keyboard for the clicky one with full layout is requested, and 22.39 go "
          "back to your credit card.")
except Exception as error:
    print(error)""",
                    replies=True,
                )
            ],
            answer="All set: the exchange of your keyboard for the clicky one with full layout is requested, "
            "and 22.39 go "
            "back to your credit card.",
        ),
    ],
)
