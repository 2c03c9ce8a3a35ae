"""Returns: two items of an order for money, two of another for other sizes."""

from __future__ import annotations

from benchmarks.tokens.conversation import Cell, Conversation, Exchange, call
from benchmarks.tokens.retail_desk import make_retail_desk

RETURN = {
    "order_id": "#W233294",
    "item_ids": ["4001002", "4001300"],
    "payment_method_id": "gift_card_3209",
}
EXCHANGE = {
    "order_id": "#W236359",
    "item_ids": ["4001204", "4000400"],
    "new_item_ids": ["4001202", "4000403"],
    "payment_method_id": "paypal_8311",
}

RETURN_TO_GIFT_CARD = Conversation(
    name="return",
    toolkit=make_retail_desk,
    exchanges=[
        Exchange(
            user="Hi, Jonas Silva here, jonas.silva9@example.com. The kettle and the garden hose of order #W233294 "
            "are not what I expected. I'd like to send both back.",
            batches=[
                [
                    call("find_customer_by_email", email="jonas.silva9@example.com"),
                    call("get_order", order_id="#W233294"),
                ],
                [
                    call("get_customer", customer_id="jonas_silva_1333"),
                    call("calculate", expression="40.18 + 37.56"),
                ],
            ],
            cells=[
                Cell(
                    thought="I'll look up the customer and the order.",
                    code="""\
customer = get_customer(find_customer_by_email("jonas.silva9@example.com"))
order = get_order("#W233294")
print(order["customer_id"] == customer["id"])
show(order)
show(customer["payment_methods"])
back = [item for item in order["items"] if "Kettle" in item["name"] or "Hose" in item["name"]]
print("both:", round(sum(item["price"] for item in back), 2))""",
                )
            ],
            answer="Hi Jonas! #W233294 is delivered, so you can return the electric kettle (40.18) and the garden "
            "hose (37.56). The 77.74 can go back to the credit card that paid (credit_card_5109) or to your gift "
            "card. Where would you like it, and shall I request the return?",
        ),
        Exchange(
            user="To the gift card, please. Go ahead.",
            batches=[[call("return_items", **RETURN)]],
            cells=[
                Cell(
                    code="""\
try:
    order = return_items("#W233294", ["4001002", "4001300"], "gift_card_3209")
    print(order["status"], order["return_items"])
    reply("The return of the electric kettle and the garden hose is requested. A label for the parcel comes by mail, "
          "and 77.74 go to your gift card once they arrive.")
except Exception as error:
    print(error)""",
                    replies=True,
                )
            ],
            answer="The return of the electric kettle and the garden hose is requested. A label for the parcel comes "
            "by mail, and 77.74 go to your gift card once they arrive.",
        ),
    ],
)

OTHER_SIZES = Conversation(
    name="other sizes",
    toolkit=make_retail_desk,
    exchanges=[
        Exchange(
            user="Bruno Volkov, zip 80203. The hiking boots from #W236359 are too big, I need size 9. What is there?",
            batches=[
                [
                    call("find_customer_by_name", first_name="Bruno", last_name="Volkov", zip_code="80203"),
                    call("get_order", order_id="#W236359"),
                ],
                [call("get_product", product_id="7112")],
                [
                    call("calculate", expression="167.61 - 162.48"),
                    call("calculate", expression="162.48 - 136.79"),
                ],
            ],
            cells=[
                Cell(
                    thought="I'll identify the customer, then look at the order and the boots.",
                    code="""\
customer_id = find_customer_by_name("Bruno", "Volkov", "80203")
order = get_order("#W236359")
print(order["customer_id"] == customer_id, order["status"])
show(order["items"])
boots = next(item for item in order["items"] if item["name"] == "Hiking Boots")
for variant in get_product(boots["product_id"])["variants"]:
    print(variant, "difference", round(variant["price"] - boots["price"], 2))""",
                )
            ],
            answer="Hi Bruno! Your boots are the waterproof ones in size 10 for 162.48. In size 9 there are "
            "waterproof ones for 167.61 (5.13 more) and ones that are not waterproof for 136.79 (25.69 less). Which "
            "would you like? An exchange is possible once per order, so tell me if anything else should be "
            "exchanged, too.",
        ),
        Exchange(
            user="The waterproof ones. And is the backpack there in large, same color?",
            batches=[
                [call("get_product", product_id="7104")],
                [call("calculate", expression="66.74 - 62.76")],
                [
                    call("calculate", expression="5.13 + 3.98"),
                    call("get_customer", customer_id="bruno_volkov_1407"),
                ],
            ],
            cells=[
                Cell(
                    code="""\
backpack = next(item for item in order["items"] if item["name"] == "Backpack")
for variant in get_product(backpack["product_id"])["variants"]:
    if variant["options"] == {**backpack["options"], "size": "large"}:
        difference = variant["price"] - backpack["price"]
        print(variant, "difference", round(difference, 2), "with the boots", round(difference + 5.13, 2))
show(get_customer(customer_id)["payment_methods"])""",
                )
            ],
            answer="Yes, the large grey backpack is available for 66.74, which is 3.98 more. Together with the boots "
            "that makes 9.11. Shall I request the exchange of both, and will you pay the difference by credit card "
            "or by PayPal?",
        ),
        Exchange(
            user="PayPal. Yes, both please.",
            batches=[[call("exchange_items", **EXCHANGE)]],
            cells=[
                Cell(
                    code="""\
try:
    exchange_items("#W236359", ["4001204", "4000400"], ["4001202", "4000403"], "paypal_8311")
    reply("The exchange is requested: waterproof hiking boots in size 9 and the large grey backpack. 9.11 are "
          "charged to PayPal.")
except Exception as error:
    print(error)""",
                    replies=True,
                )
            ],
            answer="The exchange is requested: waterproof hiking boots in size 9 and the large grey backpack. 9.11 "
            "are charged to PayPal.",
        ),
    ],
)

CONVERSATIONS = (RETURN_TO_GIFT_CARD, OTHER_SIZES)
