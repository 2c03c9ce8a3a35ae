# %% libraries
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

# %% seed
torch.manual_seed(7)
rng = np.random.default_rng(7)
# %% data
points = rng.normal(size=(240, 4)).astype("float32")
target = (points[:, 0] * points[:, 1] > 0).astype("float32")
# %% a look at it
share = float(target.mean())
print(f"{len(points)} points, {share:.2f} positive")
# %% tensors
X = torch.tensor(points)
y = torch.tensor(target).unsqueeze(1)
# %% split
train_X, test_X = X[:180], X[180:]
train_y, test_y = y[:180], y[180:]
# %% scale
mean, spread = train_X.mean(0), train_X.std(0)
train_X = (train_X - mean) / spread
test_X = (test_X - mean) / spread
# %% baseline
baseline = max(share, 1 - share)
print(f"always the same answer: {baseline:.2f}")


# %% model
class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(4, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 1)
        )

    def forward(self, x):
        return self.layers(x)


model = Net(16)
# %% size
size = sum(p.numel() for p in model.parameters())
print(size, "parameters")
# %% optimizer
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.5)
loss_of = nn.BCEWithLogitsLoss()
# %% loader
loader = DataLoader(TensorDataset(train_X, train_y), batch_size=45, shuffle=True)
# %% training
losses = []


def epoch():
    model.train()
    total = 0.0
    for batch_X, batch_y in loader:
        optimizer.zero_grad()
        loss = loss_of(model(batch_X), batch_y)
        loss.backward()
        optimizer.step()
        total += loss.item() * len(batch_X)
    return total / len(train_X)


for _ in range(4):
    losses.append(epoch())
    schedule.step()
# %% how it went
print([round(each, 3) for each in losses])
# %% predictions
model.eval()
with torch.no_grad():
    logits = model(test_X)
# %% accuracy
threshold = 0.0
accuracy = ((logits > threshold).float() == test_y).float().mean().item()
print(f"accuracy {accuracy:.2f}")
# %% weights
norms = {name: round(p.detach().norm().item(), 3) for name, p in model.named_parameters()}
norms
# %% gradients of one example
probe = test_X[:1].clone().requires_grad_()
model(probe).sum().backward()
importance = probe.grad.abs().squeeze().tolist()
# %% saved
torch.save(model.state_dict(), "model.pt")
# %% read again
again = Net(16)
again.load_state_dict(torch.load("model.pt"))
again.eval()
same = bool(torch.equal(again(test_X), model(test_X)))
# %% report
report = {"accuracy": round(accuracy, 3), "baseline": round(baseline, 3), "same": same, "size": size}
report
