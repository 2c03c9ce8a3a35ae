"""Five requests in a row and one mistake of the model: the first look-up is still needed for the last request."""

from __future__ import annotations

from benchmarks.tokens.conversation import Cell, Conversation, Exchange, call
from benchmarks.tokens.retail_desk import make_retail_desk

ORDERS = ("#W218582", "#W219195", "#W219808", "#W220421")
SHOES = {"item_ids": ["4000002"], "new_item_ids": ["4000004"], "payment_method_id": "credit_card_5103"}

OVERVIEW = Exchange(
    user="Good morning, dmitri.volkov3@example.com. Can you give me an overview of my open orders, with totals?",
    batches=[
        [call("find_customer_by_email", email="dmitri.volkov3@example.com")],
        [call("get_customer", customer_id="dmitri_volkov_1111")],
        [call("get_order", order_id=order_id) for order_id in ORDERS],
        [call("calculate", expression="162.30 + 333.63 + 46.41")],
    ],
    cells=[
        Cell(
            thought="I'll look up the customer and list the orders that are not delivered yet.",
            code="""\
customer = get_customer(find_customer_by_email("dmitri.volkov3@example.com"))
orders = {order_id: get_order(order_id) for order_id in customer["orders"]}
total = 0.0
for order in orders.values():
    if order["status"] in ("pending", "processed"):
        price = sum(item["price"] for item in order["items"])
        total += price
        print(order["order_id"], order["status"], round(price, 2))
        for item in order["items"]:
            print("  ", item["item_id"], item["name"], item["options"], item["price"])
print("total", round(total, 2))""",
        ),
        Cell(
            thought="The key is `id`.",
            code="""\
total = 0.0
for order in orders.values():
    if order["status"] in ("pending", "processed"):
        price = sum(item["price"] for item in order["items"])
        total += price
        print(order["id"], order["status"], round(price, 2))
        for item in order["items"]:
            print("  ", item["item_id"], item["name"], item["options"], item["price"])
print("total", round(total, 2))""",
        ),
    ],
    answer="""\
Good morning Dmitri! You have three pending orders:
- #W218582: Garden Hose, Board Game and Running Shoes (9, black), 162.30
- #W219195: Running Shoes (9, black) and Office Chair, 333.63
- #W219808: Desk Lamp, 46.41
Altogether 542.34.""",
)

QUESTION = Exchange(
    user="The running shoes in both orders should be size 10 instead, same color. What would that cost me?",
    batches=[
        [call("get_product", product_id="7100")],
        [call("calculate", expression="2 * (110.52 - 84.65)")],
    ],
    cells=[
        Cell(
            code="""\
shoes = next(item for item in orders["#W218582"]["items"] if item["name"] == "Running Shoes")
for variant in get_product(shoes["product_id"])["variants"]:
    if variant["options"] == {"size": "10", "color": "black"}:
        difference = variant["price"] - shoes["price"]
        print(variant, "difference each", round(difference, 2), "both", round(2 * difference, 2))
print(customer["payment_methods"])""",
        )
    ],
    answer="Size 10 in black is available for 110.52, which is 25.87 more per pair, so 51.74 for both orders. "
    "Shall I change "
    "them, and do you want to pay by credit card or PayPal? Items can be changed only once per order.",
)

CHANGE = Exchange(
    user="Okay, do it for both, with the card.",
    batches=[
        [
            call("change_order_items", order_id="#W218582", **SHOES),
            call("change_order_items", order_id="#W219195", **SHOES),
        ]
    ],
    cells=[
        Cell(
            code="""\
failed = []
for order_id in ("#W218582", "#W219195"):
    try:
        change_order_items(order_id, ["4000002"], ["4000004"], "credit_card_5103")
    except Exception as error:
        failed.append(f"{order_id}: {error}")
if failed:
    print(failed)
else:
    reply("Both orders now have the running shoes in size 10, black; 51.74 are charged to your credit card.")""",
            replies=True,
        )
    ],
    answer="Both orders now have the running shoes in size 10, black; 51.74 are charged to your credit card.",
)

PAYMENT = Exchange(
    user="And pay the desk lamp by PayPal instead. Yes, I'm sure.",
    batches=[[call("change_order_payment", order_id="#W219808", payment_method_id="paypal_8303")]],
    cells=[
        Cell(
            code="""\
try:
    change_order_payment("#W219808", "paypal_8303")
    reply("Done: order #W219808 (46.41) is now paid by PayPal and the credit card is refunded.")
except Exception as error:
    print(error)""",
            replies=True,
        )
    ],
    answer="Done: order #W219808 (46.41) is now paid by PayPal and the credit card is refunded.",
)

RETURN = Exchange(
    user="Last thing: the black T-shirt from #W220421 goes back, refund to the card. Confirmed.",
    batches=[
        [
            call(
                "return_items",
                order_id="#W220421",
                item_ids=["4000906"],
                payment_method_id="credit_card_5103",
            )
        ]
    ],
    cells=[
        Cell(
            code="""\
shirt = next(item for item in orders["#W220421"]["items"] if item["name"] == "T-Shirt")
try:
    return_items("#W220421", [shirt["item_id"]], "credit_card_5103")
    reply(f"The return of the T-shirt is requested; {shirt['price']:.2f} go back to your credit card once it "
          "arrives. You will get a label for the parcel by mail.")
except Exception as error:
    print(error)""",
            replies=True,
        )
    ],
    answer="The return of the T-shirt is requested; 16.90 go back to your credit card once it arrives. You will "
    "get a label "
    "for the parcel by mail.",
)

CONVERSATION = Conversation(
    name="five wishes", toolkit=make_retail_desk, exchanges=[OVERVIEW, QUESTION, CHANGE, PAYMENT, RETURN]
)
