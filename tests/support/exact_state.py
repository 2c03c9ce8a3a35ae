"""A state that only an image of its process has in full, and questions about it."""

from __future__ import annotations

STATE = """
import asyncio, collections, contextvars, decimal, functools, gc, io, json, logging, os, random, signal, sqlite3
import tempfile, threading, time, weakref
import numpy as np

def counting():
    n = 0
    while True:
        n += (yield n) or 1
generator = counting()
next(generator); generator.send(10)

class Once:
    def __await__(self):
        return (yield "paused")
async def waits():
    return await Once()
coroutine = waits(); coroutine.send(None)

database = sqlite3.connect(":memory:")
database.execute("create table t (a)")
_ = database.executemany("insert into t values (?)", [(i,) for i in range(9)])
cursor = database.execute("select a from t order by a"); cursor.fetchone()
database.create_function("twice", 1, lambda n: 2 * n)

text = open("lines.txt", "w+"); text.write("one\\ntwo\\nthree\\n"); text.flush(); text.seek(0); text.readline()
half = open("half.txt", "w"); half.write("not flushed")
log = logging.getLogger("agent"); log.setLevel(logging.DEBUG); log.addHandler(logging.FileHandler("agent.log"))
log.info("first")
nowhere = open(os.devnull, "w")

nan = float("nan"); by_nan = {nan: "mine", float("nan"): "other"}
class Thing: pass
thing = Thing(); proxy = weakref.proxy(thing); thing.name = "thing"
calls = []
@functools.lru_cache(maxsize=None)
def slow(n):
    calls.append(n)
    return n * n
slow(3), slow(4)
json.dumps = lambda *a, **k: "patched"
lock = threading.Lock(); lock.acquire(); local = threading.local(); local.value = 9
variable = contextvars.ContextVar("variable", default=0); variable.set(12)
decimal.getcontext().prec = 5; np.seterr(divide="raise")
class Sub(np.ndarray): pass
backing = np.arange(20.).view(Sub); window = backing[5:10]; window.note = "view"
pairs = zip(range(10), "abcdefghij"); next(pairs)
mixed = {object(): 1, (1, 2): 2}; addresses = [id(key) for key in mixed]
seen = []
def caught(number, frame): seen.append(number)
signal.signal(signal.SIGUSR1, caught)
gc.disable(); gc.set_threshold(123, 4, 5)
memory = __import__("mmap").mmap(-1, 8192); memory[:5] = b"hello"
large = np.arange(3_000_000.); part = large[::2]
folder = tempfile.mkdtemp(); open(folder + "/inner.txt", "w").write("inner"); os.umask(0o027)
try:
    1 / 0
except ZeroDivisionError as error:
    kept = error
def asks(n): return outside(n) + 1
number = os.getpid(); spent = time.process_time()
"""

QUESTIONS = """
def answers():
    os.kill(os.getpid(), signal.SIGUSR1)
    log.info("second")
    try:
        coroutine.send("woken")
    except StopIteration as stop:
        woken = stop.value
    half.flush()
    return [
        next(generator), generator.gi_frame.f_locals, woken, nowhere.write("x"), nowhere.flush(), nowhere.isatty(),
        cursor.fetchone(), database.in_transaction, database.execute("select twice(a) from t where a = 7").fetchone(),
        text.tell(), text.readline(), half.tell(), open("half.txt").read(), open("agent.log").read(), log.level,
        by_nan[nan], float("nan") in by_nan, proxy.name, slow(3), slow(5), slow.cache_info().misses, calls,
        json.dumps(1), lock.locked(), local.value, variable.get(), str(decimal.Decimal(1) / 3), np.geterr()["divide"],
        type(window).__name__, window.base is backing, window.note, list(pairs)[:2],
        [id(k) for k in mixed] == addresses,
        seen, gc.isenabled(), gc.get_threshold(), memory[:5], float(part.sum()), part.base is large,
        open(folder + "/inner.txt").read(), os.umask(0o027), kept.__traceback__.tb_lineno, asks(4), os.getcwd(),
        os.getpid() == number, time.process_time() >= spent,
    ]
print(answers())
"""

AFTERWARDS = """
import subprocess, multiprocessing.pool, wave
got = []
thread = threading.Thread(target=got.append, args=(1,)); thread.start(); thread.join()
with multiprocessing.pool.ThreadPool(2) as pool:
    got += pool.map(abs, [-2, -3])
got.append(subprocess.run(["echo", "here"], capture_output=True, text=True).stdout)
pid = os.fork()
if not pid: os._exit(3)
got.append(os.waitpid(pid, 0)[1])
got.append(float((np.ones((300, 300)) @ np.ones(300)).sum()))
def deep(n): return n and 1 + deep(n - 1)
got.append(deep(800)); got.append(len(bytearray(50_000_000)))
async def later():
    await asyncio.sleep(0)
    return "awaited"
got.append(await later())
print(got)
"""


def outside(n: int) -> int:
    """The function of the client that the state calls."""
    return n * 10
