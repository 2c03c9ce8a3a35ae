# %% Load
import pandas as pd

notes = pd.read_csv("penguins-raw.csv")
# %% Names
notes.columns = [name.split(" (")[0].strip().lower().replace(" ", "_") for name in notes.columns]
# %% Species in one word
notes["species"] = notes["species"].str.split().str[0]
# %% Rows that can be used
measures = ["culmen_length", "culmen_depth", "flipper_length", "body_mass"]
birds = notes.dropna(subset=measures).reset_index(drop=True)
print(len(notes), len(birds))
# %% Means
means = birds.groupby("species")[measures].mean().round(1)
# %% Sex
birds["sex"] = birds["sex"].where(birds["sex"].isin(["MALE", "FEMALE"]), "unknown").str.lower()
counts = birds.groupby(["species", "sex"]).size()
# %% Islands
islands = birds.groupby("island")["species"].agg(lambda s: ",".join(sorted(set(s))))
print(islands.to_dict())
# %% Mass against flippers
import numpy as np

slope = {}
for species, group in birds.groupby("species"):
    slope[species] = round(float(np.polyfit(group["flipper_length"], group["body_mass"], 1)[0]), 2)
# %% A cache in a function
def heaviest(species, _seen={}):
    if species not in _seen:
        _seen[species] = float(birds.loc[birds["species"] == species, "body_mass"].max())
    return _seen[species]
# %% Ask it
records = {name: heaviest(name) for name in means.index}
# %% Years
birds["year"] = pd.to_datetime(birds["date_egg"]).dt.year
per_year = birds["year"].value_counts().sort_index().to_dict()
# %% Write
means.to_csv("means.csv")
# %% Report
print(means.to_string())
print(records, slope, per_year)
