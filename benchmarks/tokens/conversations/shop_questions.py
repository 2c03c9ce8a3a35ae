"""Customers who ask questions: about all their purchases, the shop's stock, what a gift card pays."""

from __future__ import annotations

from benchmarks.tokens.conversation import Cell, Conversation, Exchange, call
from benchmarks.tokens.retail_desk import make_retail_desk

ORDERS = ("#W210000", "#W210613", "#W211226", "#W211839", "#W212452")
OUTDOORS = ("7100", "7112", "7104", "7101")

HISTORY = Conversation(
    name="order history",
    toolkit=make_retail_desk,
    exchanges=[
        Exchange(
            user="Hello, amara.okafor0@example.com. Could you list everything I ordered this year, with dates, "
            "prices and what became of it?",
            batches=[
                [call("find_customer_by_email", email="amara.okafor0@example.com")],
                [call("get_customer", customer_id="amara_okafor_1000")],
                [call("get_order", order_id=order_id) for order_id in ORDERS],
            ],
            cells=[
                Cell(
                    thought="I'll fetch all orders of the customer.",
                    code="""\
customer = get_customer(find_customer_by_email("amara.okafor0@example.com"))
orders = [get_order(order_id) for order_id in customer["orders"]]
show(orders)""",
                )
            ],
            answer="""\
Hello Amara! You have placed five orders in 2026:
- #W210000, 2026-03-14, processed: Vacuum Cleaner (robot), 188.36
- #W210613, 2026-09-22, delivered: Electric Kettle (glass), 43.75, and Espresso Machine (9 bar), 405.94
- #W211226, 2026-04-25, delivered: Water Bottle (1000ml, steel), 24.72
- #W211839, 2026-03-15, pending: Yoga Mat (4mm, pink), 36.13
- #W212452, 2026-07-19, pending: Garden Hose (30m, vinyl), 34.71, and Office Chair (mesh), 266.04""",
        ),
        Exchange(
            user="Where is the vacuum cleaner? And which of the two pending orders would give me more back if I "
            "cancelled it?",
            batches=[[call("track_shipment", tracking_number="673770100602")]],
            cells=[
                Cell(
                    code="""\
show(track_shipment(orders[0]["tracking"][0]))
for order in orders:
    if order["status"] == "pending":
        print(order["id"], order["payments"])""",
                )
            ],
            answer="The vacuum cleaner is in transit with Northwind, was last scanned in Columbus, OH and is "
            "expected on 2026-11-24. Cancelling #W212452 would give you 300.75 back, #W211839 only 36.13. Shall I "
            "cancel one of them, and if so, why?",
        ),
        Exchange(
            user="Yes, cancel the bigger one. I changed my mind.",
            batches=[[call("cancel_order", order_id="#W212452", reason="changed mind")]],
            cells=[
                Cell(
                    code="""\
try:
    order = cancel_order("#W212452", "changed mind")
    print(order["status"], order["payments"][-1])
    reply("Order #W212452 is cancelled; 300.75 go back to your credit card.")
except Exception as error:
    print(error)""",
                    replies=True,
                )
            ],
            answer="Order #W212452 is cancelled; 300.75 go back to your credit card.",
        ),
    ],
)

CATALOGUE = Conversation(
    name="catalogue",
    toolkit=make_retail_desk,
    exchanges=[
        Exchange(
            user="Hi, hana.silva17@example.com. I'm planning a hike. Which running shoes, hiking boots, backpacks "
            "and water bottles do you have, and what do they cost?",
            batches=[
                [call("find_customer_by_email", email="hana.silva17@example.com"), call("list_products")],
                [call("get_product", product_id=product_id) for product_id in OUTDOORS],
            ],
            cells=[
                Cell(
                    thought="I'll identify the customer and see what there is.",
                    code="""\
customer_id = find_customer_by_email("hana.silva17@example.com")
ids = list_products()
print(list(ids))""",
                ),
                Cell(
                    code="""\
products = [get_product(ids[name]) for name in ("Running Shoes", "Hiking Boots", "Backpack", "Water Bottle")]
show(products)""",
                ),
            ],
            answer="""\
Hi Hana! Available now:
- Running Shoes: size 8 black 85.28, 9 black 84.65, 9 white 103.59, 10 black 110.52
- Hiking Boots: size 8 waterproof 142.37, 9 waterproof 167.61, 9 not waterproof 136.79, 10 not waterproof 184.50
- Backpack: small grey 62.76 or green 80.50; large grey 66.74, green 85.43 or navy 74.00
- Water Bottle: 500ml steel 27.61 or glass 22.70; 1000ml glass 26.98 or plastic 22.42""",
        ),
        Exchange(
            user="What would boots in size 8, the cheapest large backpack and the cheapest big bottle cost together?",
            batches=[[call("calculate", expression="142.37 + 66.74 + 22.42")]],
            cells=[
                Cell(
                    code="""\
def cheapest(product, **options):
    fit = [v for v in product["variants"] if v["available"] and options.items() <= v["options"].items()]
    return min(fit, key=lambda v: v["price"])

_, boots, backpack, bottle = products
chosen = [cheapest(boots, size="8"), cheapest(backpack, size="large"), cheapest(bottle, capacity="1000ml")]
show(chosen)
print("total", round(sum(v["price"] for v in chosen), 2))""",
                )
            ],
            answer="The waterproof boots in size 8 (142.37), the large grey backpack (66.74) and the 1000ml plastic "
            "bottle (22.42) come to 231.53. I cannot place orders here, but you find all three in the shop.",
        ),
    ],
)

GIFT_CARD = Conversation(
    name="gift card",
    toolkit=make_retail_desk,
    exchanges=[
        Exchange(
            user="Hey, it's Farid Sato, 02108. How much is left on my gift card, and could it pay for the hose that "
            "I ordered?",
            batches=[
                [call("find_customer_by_name", first_name="Farid", last_name="Sato", zip_code="02108")],
                [call("get_customer", customer_id="farid_sato_1555")],
                [call("get_order", order_id=order_id) for order_id in ("#W243715", "#W244328", "#W244941")],
                [call("calculate", expression="49.0 - 37.56")],
            ],
            cells=[
                Cell(
                    thought="I'll look at the payment methods and find the order with the hose.",
                    code="""\
customer = get_customer(find_customer_by_name("Farid", "Sato", "02108"))
show(customer["payment_methods"])
for order_id in customer["orders"]:
    order = get_order(order_id)
    if any("Hose" in item["name"] for item in order["items"]):
        show(order)
        print("left:", [round(m["balance"] - order["payments"][-1]["amount"], 2)
                        for m in customer["payment_methods"] if m["balance"]])""",
                )
            ],
            answer="Hi Farid! Your gift card holds 49.00. The garden hose in order #W243715 costs 37.56 and the "
            "order is still pending, so the card can pay for it; 11.44 would be left, and your credit card gets its "
            "money back. Shall I change that?",
        ),
        Exchange(
            user="Yes, do it.",
            batches=[[call("change_order_payment", order_id="#W243715", payment_method_id="gift_card_3215")]],
            cells=[
                Cell(
                    code="""\
try:
    order = change_order_payment("#W243715", "gift_card_3215")
    show(order["payments"])
    reply("Done: order #W243715 is paid by your gift card, and 37.56 go back to your credit card.")
except Exception as error:
    print(error)""",
                    replies=True,
                )
            ],
            answer="Done: order #W243715 is paid by your gift card, and 37.56 go back to your credit card.",
        ),
    ],
)

CONVERSATIONS = (HISTORY, CATALOGUE, GIFT_CARD)
