"""Questions to a database, each following from the previous answer. SQL does the work in every style."""

from __future__ import annotations

from benchmarks.tokens.conversation import Cell, Conversation, Exchange, call
from benchmarks.tokens.sales_desk import make_sales_desk

BY_REGION = (
    "SELECT region, ROUND(SUM(units * price)) AS revenue FROM sales GROUP BY region ORDER BY revenue DESC"
)
BY_PRODUCT = (
    "SELECT product, ROUND(SUM(units * price)) AS revenue, SUM(units) AS units FROM sales GROUP BY product "
    "ORDER BY revenue DESC"
)
PERIOD = "SELECT MIN(day) AS first, MAX(day) AS last FROM sales"
BY_MONTH = (
    "SELECT substr(day, 1, 7) AS month, ROUND(SUM(units * price)) AS revenue FROM sales WHERE region = 'east' "
    "GROUP BY month ORDER BY month"
)
BEST_MONTH = (
    "SELECT product, ROUND(SUM(units * price)) AS revenue FROM sales WHERE region = 'east' AND day LIKE '{month}%' "
    "GROUP BY product ORDER BY revenue DESC"
)

OVERVIEW = Exchange(
    user="Which region and which product brought in the most revenue this year so far?",
    batches=[
        [call("list_tables")],
        [call("describe_table", table="sales"), call("describe_table", table="contacts")],
        [call("query", sql=BY_REGION), call("query", sql=BY_PRODUCT), call("query", sql=PERIOD)],
    ],
    cells=[
        Cell(
            thought="I'll see what the database holds first.",
            code="""\
for table in list_tables():
    print(table, describe_table(table))""",
        ),
        Cell(
            code=f'''\
by_region = query("{BY_REGION}")
by_product = query("{BY_PRODUCT}")
show(by_region)
show(by_product)
show(query("{PERIOD}"))''',
        ),
    ],
    answer="From 2026-01-01 to 2026-09-28 the east region leads with 182,629 USD (north 178,884, south 173,342, west "
    "163,649). Flanges are the strongest product with 193,978 USD from 9,449 units, ahead of elbow joints with "
    "173,771 USD.",
)

MONTHS = Exchange(
    user="How did the leading region develop month by month?",
    batches=[[call("query", sql=BY_MONTH)]],
    cells=[Cell(code=f'months = query("{BY_MONTH}")\nshow(months)')],
    answer="""\
Revenue of the east region in 2026, in USD:
Jan 21,191 | Feb 14,892 | Mar 19,529 | Apr 20,214 | May 18,086 | Jun 24,987 | Jul 25,088 | Aug 18,959 | Sep 19,683
June and July were the best months, February was the weakest.""",
)

BEST = Exchange(
    user="What was behind the best month, compared with the weakest?",
    batches=[
        [
            call("query", sql=BEST_MONTH.format(month="2026-07")),
            call("query", sql=BEST_MONTH.format(month="2026-02")),
        ]
    ],
    cells=[
        Cell(
            code=f'''\
best, weakest = max(months, key=lambda m: m["revenue"]), min(months, key=lambda m: m["revenue"])
for month in (best["month"], weakest["month"]):
    print(month)
    show(query(f"{BEST_MONTH}"))''',
        )
    ],
    answer="In July 2026 the east region sold flanges for 7,698 USD and drain pipes for 7,451 USD, against "
    "3,953 and 2,164 USD "
    "in February: these two products make up 9,032 of the 10,196 USD between the months.",
)

CONVERSATION = Conversation(
    name="sales overview", toolkit=make_sales_desk, exchanges=[OVERVIEW, MONTHS, BEST]
)
