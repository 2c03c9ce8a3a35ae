# %% Imports
import polars as pl
from datetime import date, timedelta
import random
# %% Synthetic orders
rng = random.Random(17)
N = 400
regions = ["north", "south", "east", "west"]
orders = pl.DataFrame({
    "order_id": list(range(1, N + 1)),
    "customer": [rng.randint(1, 40) for _ in range(N)],
    "product": [rng.choice(["tea", "coffee", "cocoa", "mate"]) for _ in range(N)],
    "quantity": [rng.randint(1, 9) for _ in range(N)],
    "day": [date(2025, 1, 1) + timedelta(days=rng.randint(0, 180)) for _ in range(N)],
})
orders.head()
# %% Customers
customers = pl.DataFrame({
    "customer": list(range(1, 41)),
    "region": [regions[i % 4] for i in range(40)],
    "since": [2015 + i % 9 for i in range(40)],
})
# %% Prices
prices = pl.DataFrame({"product": ["tea", "coffee", "cocoa", "mate"], "price": [3.2, 5.5, 4.1, 6.0]})
# %% Discount settings
DISCOUNT_FROM = 6
DISCOUNT = 0.1
# %% Revenue
def revenue(frame):
    gross = pl.col("quantity") * pl.col("price")
    return frame.with_columns(
        pl.when(pl.col("quantity") >= DISCOUNT_FROM).then(gross * (1 - DISCOUNT)).otherwise(gross).alias("revenue")
    )
# %% Join
full = orders.join(prices, on="product").join(customers, on="customer").pipe(revenue)
full.shape
# %% Revenue per region
per_region = full.group_by("region").agg(pl.col("revenue").sum().round(2), pl.len().alias("orders")).sort("region")
per_region
# %% Revenue per product
per_product = full.group_by("product").agg(pl.col("revenue").mean().round(3)).sort("product")
print(per_product)
# %% Monthly
monthly = (
    full.lazy()
    .with_columns(pl.col("day").dt.month().alias("month"))
    .group_by("month")
    .agg(pl.col("quantity").sum())
    .sort("month")
)
# %% Collect it
monthly_frame = monthly.collect()
print(monthly_frame.rows())
# %% Best month
best_month = monthly_frame.sort("quantity", descending=True).row(0)
print("best", best_month)
# %% Pivot
pivot = per = full.pivot("product", index="region", values="quantity", aggregate_function="sum").sort("region")
print(pivot.select(sorted(pivot.columns)))
# %% An expression of its own
is_loyal = pl.col("since") < 2018
# %% Loyal customers
loyal = full.filter(is_loyal).select(pl.col("revenue").sum()).item()
share = round(loyal / full["revenue"].sum(), 4)
print(share)
# %% Quantities as a series
quantities = orders["quantity"]
histogram = quantities.value_counts().sort("quantity")
# %% Rows
for quantity, count in histogram.iter_rows():
    print(quantity, "#" * (count // 5))
# %% Running totals
running = orders.sort("day", "order_id").with_columns(pl.col("quantity").cum_sum().alias("total")).tail(3)
print(running)
# %% SQL
ctx = pl.SQLContext(orders=orders, customers=customers)
sql = ctx.execute("SELECT region, COUNT(*) AS n FROM orders JOIN customers USING (customer) GROUP BY region ORDER BY region").collect()
print(sql)
# %% Write
per_region.write_csv("per_region.csv")
# %% Read back
back = pl.read_csv("per_region.csv")
print(back.equals(per_region), back.height)
# %% Summary
summary = {"regions": per_region.height, "share": share, "best": best_month[0]}
print(summary)
