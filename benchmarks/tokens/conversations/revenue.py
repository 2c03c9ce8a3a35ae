"""Questions about sales with tables as answers. SQL does the work in every style, and most rows are reported."""

from __future__ import annotations

from benchmarks.tokens.conversation import Cell, Conversation, Exchange, call
from benchmarks.tokens.conversations.contacts import LOOK, LOOKS
from benchmarks.tokens.sales_desk import make_sales_desk

MATRIX = (
    "SELECT region, product, ROUND(SUM(units * price)) AS revenue FROM sales GROUP BY region, product "
    "ORDER BY region, product"
)
PRICES = (
    "SELECT substr(day, 1, 7) AS month, region, ROUND(AVG(price), 2) AS price FROM sales WHERE product = 'flange' "
    "GROUP BY month, region ORDER BY month, region"
)
QUARTERS = (
    "SELECT (CAST(substr(day, 6, 2) AS INTEGER) + 2) / 3 AS quarter, region, ROUND(SUM(units * price)) AS revenue "
    "FROM sales GROUP BY quarter, region ORDER BY quarter, region"
)
NORTH = (
    "SELECT product, ROUND(SUM(units * price)) AS revenue FROM sales WHERE region = 'north' AND day BETWEEN "
    "'2026-04-01' AND '2026-06-30' GROUP BY product ORDER BY product"
)
LARGEST = (
    "SELECT day, region, product, units, price, ROUND(units * price, 2) AS revenue FROM sales "
    "ORDER BY units * price DESC LIMIT 15"
)
LARGEST_OTHERS = (
    "SELECT day, region, product, units, ROUND(units * price, 2) AS revenue FROM sales WHERE product <> 'flange' "
    "ORDER BY units * price DESC LIMIT 3"
)

REGIONS_AND_PRODUCTS = Conversation(
    name="matrix",
    toolkit=make_sales_desk,
    exchanges=[
        Exchange(
            user="I need revenue by region and product as a table for a slide.",
            batches=[*LOOKS, [call("query", sql=MATRIX)]],
            cells=[LOOK, Cell(code=f'show(query("{MATRIX}"))')],
            answer="""\
Revenue in USD, 2026-01 to 2026-09:
| | anchor bolt | ball valve | check valve | drain pipe | elbow joint | flange |
|---|---|---|---|---|---|---|
| east | 11,066 | 20,855 | 22,339 | 31,179 | 39,554 | 57,637 |
| north | 11,416 | 12,781 | 24,361 | 32,194 | 51,581 | 46,551 |
| south | 9,936 | 20,717 | 22,025 | 35,137 | 40,809 | 44,717 |
| west | 10,051 | 19,201 | 18,905 | 28,590 | 41,829 | 45,073 |""",
        ),
        Exchange(
            user="Which cell of it is the largest, and which the smallest?",
            answer="The largest is flanges in the east with 57,637 USD, the smallest anchor bolts in the south with "
            "9,936 USD.",
        ),
    ],
)

FLANGE_PRICES = Conversation(
    name="flange prices",
    toolkit=make_sales_desk,
    exchanges=[
        Exchange(
            user="Did the price of flanges move this year, and does it differ between regions?",
            batches=[*LOOKS, [call("query", sql=PRICES)]],
            cells=[LOOK, Cell(code=f'prices = query("{PRICES}")\nshow(prices)')],
            answer="Hardly. From 2026-01 to 2026-09 monthly averages lie between 19.83 (east, May) and 21.35 USD "
            "(east, June), without a direction: the south began with 21.17 and ended with 21.12, the west went from "
            "20.01 to 20.65, the north from 20.96 to 19.84, the east from 20.23 to 20.27.",
        ),
        Exchange(
            user="And the months in which the east was below 20?",
            answer="February with 19.98 and May with 19.83 USD.",
        ),
    ],
)

QUARTERLY = Conversation(
    name="quarters",
    toolkit=make_sales_desk,
    exchanges=[
        Exchange(
            user="Revenue by quarter and region, please. Which region had the worst quarter?",
            batches=[*LOOKS, [call("query", sql=QUARTERS)]],
            cells=[
                LOOK,
                Cell(
                    code=f"""\
quarters = query("{QUARTERS}")
regions = sorted({{row["region"] for row in quarters}})
for region in regions:
    print(region, [row["total"] for row in quarters if row["region"] == region])"""
                ),
                Cell(
                    thought="The column is `revenue`.",
                    code="""\
for region in regions:
    print(region, [row["revenue"] for row in quarters if row["region"] == region])""",
                ),
            ],
            answer="""\
Revenue of 2026 in USD:
| | Q1 | Q2 | Q3 |
|---|---|---|---|
| north | 67,282 | 47,635 | 63,967 |
| south | 49,303 | 58,961 | 65,077 |
| east | 55,613 | 63,287 | 63,730 |
| west | 54,738 | 54,221 | 54,691 |
The worst was the second quarter in the north, with 47,635.""",
        ),
        Exchange(
            user="What did the north sell in that quarter?",
            batches=[[call("query", sql=NORTH)]],
            cells=[Cell(code=f'show(query("{NORTH}"))')],
            answer="In the second quarter the north sold elbow joints for 13,321 USD, drain pipes for 10,039, "
            "flanges for 9,622, check valves for 6,000, ball valves for 4,889 and anchor bolts for 3,764.",
        ),
    ],
)

LARGEST_SALES = Conversation(
    name="largest sales",
    toolkit=make_sales_desk,
    exchanges=[
        Exchange(
            user="List our fifteen largest single sales.",
            batches=[*LOOKS, [call("query", sql=LARGEST)]],
            cells=[LOOK, Cell(code=f'largest = query("{LARGEST}")\nshow(largest)')],
            answer="""\
All fifteen are flanges; units at unit price make revenue in USD:
1. 2026-04-10 east, 79 at 22.13: 1,748.27
2. 2026-07-18 north, 77 at 21.88: 1,684.76
3. 2026-07-23 east, 77 at 21.80: 1,678.60
4. 2026-05-13 south, 76 at 21.99: 1,671.24
5. 2026-03-15 north, 77 at 21.66: 1,667.82
6. 2026-09-11 east, 79 at 21.09: 1,666.11
7. 2026-05-01 south, 77 at 21.36: 1,644.72
8. 2026-01-21 south, 78 at 20.99: 1,637.22
9. 2026-09-12 south, 78 at 20.97: 1,635.66
10. 2026-05-06 east, 79 at 20.50: 1,619.50
11. 2026-02-22 west, 74 at 21.85: 1,616.90
12. 2026-08-27 north, 79 at 20.13: 1,590.27
13. 2026-08-26 west, 78 at 20.26: 1,580.28
14. 2026-04-18 west, 75 at 20.98: 1,573.50
15. 2026-01-20 west, 79 at 19.69: 1,555.51""",
        ),
        Exchange(
            user="And the three largest of something else?",
            batches=[[call("query", sql=LARGEST_OTHERS)]],
            cells=[Cell(code=f'show(query("{LARGEST_OTHERS}"))')],
            answer="All three are elbow joints: 78 to the north on 2026-02-18 for 1,453.14 USD, 79 to the north on "
            "2026-05-17 for 1,451.23 and 75 to the west on 2026-04-05 for 1,413.75.",
        ),
    ],
)

CONVERSATIONS = (REGIONS_AND_PRODUCTS, FLANGE_PRICES, QUARTERLY, LARGEST_SALES)
