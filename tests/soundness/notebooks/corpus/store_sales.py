# %% imports
import numpy as np
import pandas as pd
import matplotlib
matplotlib.use("Agg")
import matplotlib.pyplot as plt
pd.set_option("display.max_columns", 20)
pd.set_option("display.width", 120)
# %% make data
rng = np.random.default_rng(42)
n = 2000
dates = pd.date_range("2023-01-01", periods=365)
sales = pd.DataFrame({
    "date": rng.choice(dates, n),
    "store": rng.choice(["north", "south", "east", "west"], n),
    "product": rng.choice(["apple", "banana", "cherry", "date"], n, p=[.4, .3, .2, .1]),
    "units": rng.poisson(6, n),
    "price": np.round(rng.gamma(2.0, 2.5, n), 2),
})
sales.head()
# %% second table
stores = pd.DataFrame({"store": ["north", "south", "east", "west"], "manager": ["Ann", "Bob", "Cy", "Di"], "area": [120, 80, 95, 150]})
# %% describe
sales.describe()
# %% Next
sales.info()
# %% missing
sales.loc[sales.sample(frac=0.03, random_state=1).index, "price"] = np.nan
sales.isna().sum()
# %% fill
sales["price"] = sales.groupby("product")["price"].transform(lambda s: s.fillna(s.median()))
# %% revenue
sales["revenue"] = sales["units"] * sales["price"]
sales["month"] = sales["date"].dt.to_period("M")
# %% totals by store
by_store = sales.groupby("store")["revenue"].agg(["sum", "mean", "count"]).round(2)
by_store
# %% merge
merged = sales.merge(stores, on="store", how="left")
merged["revenue_per_m2"] = merged["revenue"] / merged["area"]
# %% pivot
pivot = pd.pivot_table(sales, values="revenue", index="month", columns="product", aggfunc="sum", fill_value=0)
print(pivot.round(1))
# %% plot by store
fig, ax = plt.subplots(figsize=(6, 3))
by_store["sum"].plot(kind="bar", ax=ax, title="Revenue by store")
ax.set_ylabel("revenue")
plt.tight_layout()
plt.savefig("by_store.png")
plt.close(fig)
# %% plot monthly
fig, ax = plt.subplots(figsize=(7, 3))
pivot.plot(ax=ax)
ax.set_title("Monthly revenue")
ax.legend(loc="upper left")
plt.savefig("monthly.png")
plt.close()
# %% helper
def top(frame, column, k=3):
    """The k largest groups."""
    return frame.groupby(column)["revenue"].sum().nlargest(k)
# %% tops
print(top(merged, "manager"))
# %% Next
print(top(merged, "product", 2))
# %% outliers
q1, q3 = sales["revenue"].quantile([0.25, 0.75])
iqr = q3 - q1
outliers = sales[(sales["revenue"] > q3 + 1.5 * iqr)]
len(outliers)
# %% categories
sales["size"] = pd.cut(sales["revenue"], bins=[-1, 10, 50, 100, np.inf], labels=["s", "m", "l", "xl"])
sales["size"].value_counts()
# %% crosstab
ct = pd.crosstab(sales["store"], sales["size"], normalize="index").round(3)
ct
# %% corr
corr = sales[["units", "price", "revenue"]].corr()
corr
# %% heatmap
plt.figure(figsize=(4, 4))
plt.imshow(corr, cmap="viridis")
plt.colorbar()
plt.title("corr")
plt.savefig("corr.png")
plt.close("all")
# %% weekly
weekly = sales.set_index("date").sort_index()["revenue"].resample("W").sum()
weekly.tail(3)
# %% save
by_store.to_csv("by_store.csv")
# %% read back
check = pd.read_csv("by_store.csv", index_col=0)
assert check.shape == by_store.shape
# %% final
summary = {"total": float(sales["revenue"].sum()), "outliers": len(outliers), "best": by_store["sum"].idxmax()}
print(summary)
