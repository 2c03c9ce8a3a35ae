# %% Imports
import re
import random
import gzip
import json
import csv
from collections import Counter, defaultdict, namedtuple
from datetime import datetime, timedelta
from itertools import groupby, islice, chain, pairwise
from pathlib import Path
# %% Write a log
rng = random.Random(99)
start = datetime(2025, 5, 1, 8)
paths = ["/", "/cart", "/item/1", "/item/22", "/login", "/static/app.js"]
for part in range(3):
    with open(f"part{part}.log", "w") as out:
        for i in range(120):
            moment = start + timedelta(hours=part * 4, seconds=90 * i)
            status = rng.choice([200, 200, 200, 304, 404, 500])
            out.write(f'10.0.0.{rng.randint(1, 20)} [{moment:%d/%b/%Y:%H:%M:%S}] "GET {rng.choice(paths)}" {status} {rng.randint(100, 9000)}\n')
# %% Pattern
LINE = re.compile(r'(?P<ip>\S+) \[(?P<time>[^\]]+)\] "(?P<method>\w+) (?P<path>\S+)" (?P<status>\d+) (?P<size>\d+)')
Hit = namedtuple("Hit", "ip time path status size")
# %% Parser
def parse(lines):
    for line in lines:
        found = LINE.match(line)
        if found:
            yield Hit(found["ip"], datetime.strptime(found["time"], "%d/%b/%Y:%H:%M:%S"), found["path"], int(found["status"]), int(found["size"]))
# %% Read
def lines_of(folder):
    for file in sorted(Path(folder).glob("*.log")):
        with file.open() as source:
            yield from source

hits = list(parse(lines_of(".")))
print(len(hits))
# %% Statuses
statuses = Counter(hit.status for hit in hits)
print(sorted(statuses.items()))
# %% Errors
ERRORS = range(400, 600)
errors = [hit for hit in hits if hit.status in ERRORS]
print(len(errors))
# %% Error rate by path
rate = {}
for path in sorted({hit.path for hit in hits}):
    of_path = [hit for hit in hits if hit.path == path]
    rate[path] = round(sum(hit.status in ERRORS for hit in of_path) / len(of_path), 3)
print(rate)
# %% Sessions
GAP = timedelta(minutes=30)

def sessions(hits):
    by_ip = defaultdict(list)
    for hit in hits:
        by_ip[hit.ip].append(hit)
    for ip, own in sorted(by_ip.items()):
        own.sort(key=lambda hit: hit.time)
        current = own[:1]
        for before, after in pairwise(own):
            if after.time - before.time > GAP:
                yield ip, current
                current = []
            current.append(after)
        yield ip, current
# %% Count sessions
all_sessions = list(sessions(hits))
lengths = Counter(len(session) for _, session in all_sessions)
print(len(all_sessions), lengths.most_common(3))
# %% Traffic per hour
per_hour = {f"{hour:%H}": sum(hit.size for hit in group) for hour, group in groupby(hits, key=lambda hit: hit.time.replace(minute=0, second=0))}
print(per_hour)
# %% A lazy stream
stream = (hit for hit in hits if hit.path.startswith("/item"))
first = next(stream)
print(first.path, first.status)
# %% Some more of it
more = [hit.path for hit in islice(stream, 4)]
print(more)
# %% Normalise
def normalise(path):
    return re.sub(r"\d+", "N", path)

pages = Counter(normalise(hit.path) for hit in hits)
print(pages.most_common())
# %% Save as CSV
with open("pages.csv", "w", newline="") as out:
    writer = csv.writer(out)
    writer.writerow(["page", "hits"])
    writer.writerows(sorted(pages.items()))
# %% Read the CSV
with open("pages.csv", newline="") as source:
    table = {row["page"]: int(row["hits"]) for row in csv.DictReader(source)}
print(table)
# %% Compress the errors
with gzip.GzipFile("errors.json.gz", "wb", mtime=0) as out:
    out.write(json.dumps([hit._asdict() | {"time": hit.time.isoformat()} for hit in errors]).encode())
# %% Read the errors
with gzip.open("errors.json.gz", "rt") as source:
    loaded = json.load(source)
print(len(loaded), loaded[0]["path"])
# %% Top talkers
talkers = Counter(hit.ip for hit in hits).most_common(3)
print(talkers)
# %% Report
report = Path("report.txt")
report.write_text("\n".join([f"hits {len(hits)}", f"errors {len(errors)}", f"sessions {len(all_sessions)}"]))
print(report.read_text())
