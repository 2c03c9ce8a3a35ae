# %% Load
from sklearn.datasets import load_linnerud

gym = load_linnerud(as_frame=True)
body, exercise = gym.target.copy(), gym.data.copy()
# %% Units, in place
body["Weight"] *= 0.4536
body["Waist"] *= 2.54
# %% Bootstrap with numpy's old generator
import numpy as np

np.random.seed(5)

def resample(frame):
    return frame.iloc[np.random.randint(0, len(frame), len(frame))]
# %% Intervals for the means
draws = np.array([resample(exercise).mean().to_numpy() for _ in range(200)])
interval = np.quantile(draws, [0.05, 0.95], axis=0).round(1)
print(interval)
# %% A second bootstrap that goes on with the same generator
waist = np.array([resample(body)["Waist"].median() for _ in range(200)])
print(round(float(waist.std()), 3))
# %% Ranks
ranks = exercise.rank()
athlete = int(ranks.sum(axis=1).idxmax())
# %% Correlations
together = body.join(exercise).corr().loc[body.columns, exercise.columns].round(2)
# %% A closure that counts
def counter():
    seen = []

    def note(value):
        seen.append(value)
        return len(seen)

    return note

note = counter()
# %% Use it
for name in exercise:
    note(float(exercise[name].max()))
# %% And again
calls = note(0.0)
# %% Heavy ones
heavy = body.index[body["Weight"] > body["Weight"].mean()].tolist()
# %% Report
print(f"athlete {athlete}, {calls} notes, {len(heavy)} heavy, {together.loc['Waist', 'Situps']}")
