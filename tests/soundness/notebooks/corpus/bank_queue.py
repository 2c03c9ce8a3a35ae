# %% Imports
import heapq
import itertools
import logging
import random
from abc import ABC, abstractmethod
from collections import Counter, defaultdict, deque
from enum import Enum
from functools import lru_cache
# %% Logging
import io
stream = io.StringIO()
log = logging.getLogger("bank")
log.setLevel(logging.INFO)
handler = logging.StreamHandler(stream)
handler.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
log.addHandler(handler)
log.propagate = False
# %% Kinds
class Kind(Enum):
    PRIVATE = 1
    BUSINESS = 2
# %% Events
class Event(ABC):
    counter = itertools.count()

    def __init__(self, time):
        self.time = time
        self.number = next(Event.counter)

    def __lt__(self, other):
        return (self.time, self.number) < (other.time, other.number)

    @abstractmethod
    def happen(self, bank): ...
# %% Customers
class Customer:
    def __init__(self, name, kind, patience):
        self.name, self.kind, self.patience = name, kind, patience
        self.waited = None

    def __repr__(self):
        return f"Customer({self.name}, {self.kind.name})"
# %% Arrival and departure
class Arrival(Event):
    def __init__(self, time, customer):
        super().__init__(time)
        self.customer = customer

    def happen(self, bank):
        bank.queue.append((self.time, self.customer))
        bank.serve(self.time)

class Departure(Event):
    def happen(self, bank):
        bank.free += 1
        bank.serve(self.time)
# %% Bank
class Bank:
    def __init__(self, clerks):
        self.free = clerks
        self.queue = deque()
        self.events = []
        self.served = []
        self.lost = Counter()

    def schedule(self, event):
        heapq.heappush(self.events, event)

    def serve(self, now):
        while self.free and self.queue:
            came, customer = self.queue.popleft()
            customer.waited = now - came
            if customer.waited > customer.patience:
                self.lost[customer.kind] += 1
                log.warning("%s left", customer.name)
                continue
            self.free -= 1
            self.served.append(customer)
            self.schedule(Departure(now + service_time(customer.kind)))

    def run(self):
        while self.events:
            heapq.heappop(self.events).happen(self)
        return self
# %% Service times
SERVICE = {Kind.PRIVATE: 4, Kind.BUSINESS: 9}

@lru_cache(maxsize=None)
def service_time(kind):
    return SERVICE[kind]
# %% Crowd
def crowd(seed, size):
    rng = random.Random(seed)
    now = 0.0
    for i in range(size):
        now += rng.expovariate(0.35)
        yield now, Customer(f"c{i}", rng.choice(list(Kind)), rng.uniform(5, 30))
# %% One run
bank = Bank(clerks=2)
for time, customer in crowd(1, 60):
    bank.schedule(Arrival(time, customer))
bank.run()
print(len(bank.served), dict(bank.lost))
# %% Waiting
waits = [round(customer.waited, 2) for customer in bank.served]
print(max(waits), round(sum(waits) / len(waits), 3))
# %% By kind
by_kind = defaultdict(list)
for customer in bank.served:
    by_kind[customer.kind.name].append(customer.waited)
print({kind: round(sum(w) / len(w), 2) for kind, w in sorted(by_kind.items())})
# %% Another bank
def scenario(clerks, seed):
    other = Bank(clerks)
    for time, customer in crowd(seed, 60):
        other.schedule(Arrival(time, customer))
    return other.run()
# %% More clerks
big = scenario(3, 1)
print(len(big.served), sum(big.lost.values()))
# %% Several seeds
losses = {seed: sum(scenario(2, seed).lost.values()) for seed in range(2, 6)}
print(losses)
# %% What was logged
lines = stream.getvalue().splitlines()
print(len(lines), lines[:2])
# %% Histogram
def histogram(values, width):
    counts = Counter(int(value // width) for value in values)
    return [counts[i] for i in range(max(counts) + 1)]

print(histogram(waits, 5))
# %% Cache
print(service_time.cache_info().currsize)
# %% Names
print(Counter(name[0] for name in (c.name for c in bank.served)))
# %% Conclusion
print(f"two clerks lose {sum(bank.lost.values())}, three lose {sum(big.lost.values())}")
