"""`show` is compact and deterministic, and loses no id, price or name."""

import dataclasses
import enum
import json
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cenote_worker.jail.rendering.show import render

ITEMS = [
    {"item_id": "1008292230", "name": "Wired headset", "price": 187.1, "available": True},
    {"item_id": "1656367028", "name": "Tea kettle", "price": 90.25, "available": True},
    {"item_id": "0096508426", "name": "T-shirt", "price": 48, "available": True},
]


def test_records_become_a_table():
    """The header once; values equal in all rows once; ids that look like numbers are marked as strings."""
    assert (
        "same in all: available=True\n"
        "item_id:str|name|price\n"
        "1008292230|Wired headset|187.1\n"
        "1656367028|Tea kettle|90.25\n"
        "0096508426|T-shirt|48"
    ) == render(ITEMS)


def test_a_table_is_shorter_than_json():
    assert len(json.dumps(ITEMS * 5)) > 2 * len(render(ITEMS * 5))


def test_records_by_key_become_a_table():
    assert "key|color|price\n1-a|red|1.5\n1-b|blue|2" == render(
        {"1-a": {"color": "red", "price": 1.5}, "1-b": {"color": "blue", "price": 2}}
    )


def test_keys_that_look_like_numbers_are_strings():
    assert "key:str|a\n07|1\n08|2" == render({"07": {"a": 1}, "08": {"a": 2}})
    assert "key|a\n7|1\n8|2" == render({7: {"a": 1}, 8: {"a": 2}})


def test_missing_keys_are_empty():
    assert "a|b\n1|2\n3|" == render([{"a": 1, "b": 2}, {"a": 3}])
    assert "a|b\n1|''\n3|None" == render([{"a": 1, "b": ""}, {"a": 3, "b": None}])


def test_nested_records_are_indented():
    order = {
        "order_id": "#W2378156",
        "status": "delivered",
        "address": {"city": "Berlin", "zip": "10115"},
        "items": [
            {"id": i, "name": f"thing {i}", "options": {"size": "XL", "colour": "midnight blue"}}
            for i in (1, 2)
        ],
    }
    assert (
        "order_id: #W2378156\n"
        "status: delivered\n"
        "address: {city: Berlin, zip: '10115'}\n"
        "items:\n"
        "  id|name|options\n"
        "  1|thing 1|{size: XL, colour: midnight blue}\n"
        "  2|thing 2|{size: XL, colour: midnight blue}"
    ) == render(order)


def test_lists_of_records_within_records_are_tables_where_that_is_shorter():
    """The field names once for each list, not for each record."""
    products = [
        {"id": f"P{product}", "variants": [{"size": size, "price": 9.5, "available": True} for size in sizes]}
        for product, sizes in enumerate(["SML", "SMLX"])
    ]
    assert (
        "- id: P0\n  variants:\n    same in all: price=9.5, available=True\n    size\n    S\n    M\n    L\n"
        "- id: P1\n  variants:\n    same in all: price=9.5, available=True\n    size\n    S\n    M\n    L\n    X"
    ) == render(products)
    assert "id|variants\nP0|[{size: S}, {size: M}]\nP1|[{size: L}, {size: X}]" == render(
        [
            {"id": f"P{n}", "variants": [{"size": size} for size in sizes]}
            for n, sizes in enumerate(["SM", "LX"])
        ]
    )


def test_records_by_key_hold_tables_where_that_is_shorter():
    lines = [
        {"item": "lamp", "options": {"color": "black", "power": power}} for power in ("USB", "AC", "battery")
    ]
    assert (
        "#1:\n  total: 5\n  lines:\n    same in all: item=lamp\n    options\n    {color: black, power: USB}\n"
        "    {color: black, power: AC}\n    {color: black, power: battery}"
    ) == render({f"#{n}": {"total": 5, "lines": lines} for n in (1, 2)}).partition("\n#2:")[0]


def test_long_collections_keep_head_and_tail():
    text = render([{"n": i, "s": "x"} for i in range(1000)], rows=8)
    assert (
        "1,000 items:\nn|s\n0|x\n1|x\n2|x\n3|x\n4|x\n5|x\n... rows 7 to 998 of 1,000 ...\n998|x\n999|x"
        == text
    )


@pytest.mark.parametrize(("count", "cut"), [(19, False), (20, False), (21, True)])
def test_rows_at_the_limit(count, cut):
    assert cut == (" of 21 ..." in render([{"n": i} for i in range(count)], rows=20))


@pytest.mark.parametrize(
    ("value", "whole"),
    [
        ([{"n": i, "s": "x"} for i in range(100)], True),
        ([{"n": i, "s": "x"} for i in range(101)], False),
        ([{"n": i, "s": f"x{i:039}"} for i in range(68)], True),
        ([{"n": i, "s": f"x{i:039}"} for i in range(69)], False),
        ({f"key {i}": i for i in range(100)}, True),
        ([list(range(100)), "x"], True),
        ([list(range(101)), "x"], False),
        ([{"n": i} if i % 2 else i for i in range(100)], True),
    ],
)
def test_what_is_short_is_shown_whole(value: object, whole: bool):
    """Twenty rows are the limit for long output; a caller's own limit always applies."""
    assert whole == ("... " not in render(value))
    assert "... " in render(value, rows=20)


def test_short_frames_and_arrays_are_shown_whole():
    pd, np = pytest.importorskip("pandas"), pytest.importorskip("numpy")
    for value in (pd.DataFrame({"n": range(100)}), pd.Series(range(100)), np.arange(100), np.zeros((100, 2))):
        assert "... " not in render(value)
        assert "... " in render(value, rows=20)
    assert "... rows 16 to 96 of 101 ..." in render(pd.DataFrame({"n": range(101)}))
    assert 21 == render(np.arange(808).reshape(101, 2, 4)).count("\n") + 1


def test_lists_of_plain_items_stay_on_one_line():
    assert "[1, 2.5, red, '7', None]" == render([1, 2.5, "red", "7", None])
    assert render(list(range(1000))).startswith("1,000 items: [0, 1, 2")


def test_mixed_lists_have_one_item_a_line():
    assert "- 1\n- [2, 3]\n- {a: b}" == render([1, [2, 3], {"a": "b"}])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.1 + 0.2, "0.30000000000000004"),
        (12345678901234567890, "12345678901234567890"),
        (Decimal("10.50"), "10.50"),
        (True, "True"),
        (None, "None"),
        ("as it is\nin lines", "as it is\nin lines"),
        ([], "[]"),
        ({}, "{}"),
        ({"b", "a"}, "[a, b]"),
        (("a",), "[a]"),
        ({"a": "1"}, "a: '1'"),
        ({"a": "x|y"}, "a: 'x|y'"),
        ({"a": " x"}, "a: ' x'"),
        ({1: 2}, "1: 2"),
        ({"1": 2}, "'1': 2"),
        (b"ab", "b'ab'"),
    ],
)
def test_single_values(value, text):
    """Numbers in full; quotes where a string could be mistaken for something else."""
    assert text == render(value)


class Color(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Point:
    x: int
    y: float = 0.5


class Plain:
    def __init__(self):
        self.name = "n"
        self._hidden = 1


def test_objects_by_their_fields():
    assert "Point\n  x: 1\n  y: 0.5" == render(Point(1))
    assert "x|y\n1|0.5\n2|0.25" == render([Point(1), Point(2, 0.25)])
    assert "Plain\n  name: n" == render(Plain())
    assert "p: Point(x=1, y=0.5)\nc: Color.RED" == render({"p": Point(1), "c": Color.RED})


def test_models_by_their_fields():
    pydantic = pytest.importorskip("pydantic")
    model = pydantic.create_model("User", name=(str, ...), age=(int, 3))
    assert "User\n  name: Ann\n  age: 3" == render(model(name="Ann"))


def test_long_strings_lose_their_middle():
    assert "... [400 characters] ..." in render({"a": "x" * 1000})
    assert "x" * 600 == render({"a": "x" * 600}).partition(": ")[2].strip() or "\n" in render(
        {"a": "x" * 600}
    )


def test_cycles_and_depth_end():
    items: list[object] = [1]
    items.append(items)
    keys: dict[str, object] = {}
    keys["self"] = keys
    for value in (items, keys):
        assert 2_000 > len(render(value))


def test_the_whole_is_bounded():
    assert 21_000 > len(render({f"key {i}": "x" * 500 for i in range(1000)}, rows=1000))


def test_sets_are_in_order(apart):
    """The order of a set of strings differs between processes; the output does not."""
    texts = {apart("show({'set': {'a', 'b', 'c', 'd', 'e'}})").cells[0]["stdout"] for _ in range(2)}
    assert {"set: {a, b, c, d, e}\n"} == texts


names = st.text(alphabet="abcxyz 0123456789#-", min_size=1, max_size=12)


@given(
    st.lists(
        st.fixed_dictionaries({"id": names, "price": st.floats(allow_nan=False), "name": names}), max_size=20
    )
)
@settings(max_examples=60)
def test_no_id_price_or_name_is_lost(records):
    text = render(records)
    for record in records:
        assert repr(record["price"]) in text
        assert record["id"].strip() in text
        assert record["name"].strip() in text


class TestFrames:
    @pytest.fixture
    def pd(self):
        return pytest.importorskip("pandas")

    def test_frame(self, pd):
        frame = pd.DataFrame({"id": ["07", "08"], "price": [0.1, 1 / 3], "n": [1, 2]})
        assert (
            "2 rows x 3 columns\nid:str|price:float64|n:int64\n07|0.1|1\n08|0.3333333333333333|2"
            == render(frame)
        )

    def test_long_frame(self, pd):
        text = render(pd.DataFrame({"n": range(1000)}), rows=4)
        assert "1,000 rows x 1 columns\nn:int64\n0\n1\n2\n... rows 4 to 999 of 1,000 ...\n999" == text

    def test_an_index_of_labels_is_shown(self, pd):
        assert "index:str|a:int64\nx|1\ny|2" in render(pd.DataFrame({"a": [1, 2]}, index=["x", "y"]))
        grouped = pd.DataFrame({"k": ["p", "q"], "a": [1, 2]}).groupby("k").sum()
        assert "k:str|a:int64\np|1\nq|2" in render(grouped)

    def test_odd_frames(self, pd):
        assert "0 rows x 0 columns" == render(pd.DataFrame())
        assert "a:int64|a:int64\n1|2" in render(pd.DataFrame([[1, 2]], columns=["a", "a"]))
        assert "nan" in render(pd.DataFrame({"a": [1.5, None]})).lower()
        dates = pd.DataFrame({"d": pd.to_datetime(["2024-01-02"])})
        assert render(dates).endswith("\n2024-01-02 00:00:00")

    def test_series(self, pd):
        assert "2 values\nindex|n:int64\nx|1\ny|2" == render(pd.Series([1, 2], index=["x", "y"], name="n"))

    def test_inside_other_values(self, pd):
        assert "result:\n  1 rows x 1 columns\n  a:int64\n  1" == render({"result": pd.DataFrame({"a": [1]})})

    def test_arrays(self):
        np = pytest.importorskip("numpy")
        assert "array (3,) float64: [0.1, 0.2, 0.3]" == render(np.array([0.1, 0.2, 0.3]))
        assert "array (2, 2) int64\n1|2\n3|4" == render(np.array([[1, 2], [3, 4]]))
        assert "... 999,960 more ..." in render(np.zeros(10**6))
        assert "array () int64: 5" == render(np.array(5))
        assert "a: 5" == render({"a": np.int64(5)})

    def test_polars_and_arrow(self):
        polars, arrow = pytest.importorskip("polars"), pytest.importorskip("pyarrow")
        assert "1 rows x 2 columns\na:Int64|b:String\n1|x" == render(polars.DataFrame({"a": [1], "b": ["x"]}))
        assert "1 rows x 2 columns\na:int64|b:string\n1|x" == render(arrow.table({"a": [1], "b": ["x"]}))


def test_in_a_cell(good, sink):
    good("show([1, 2], 'text', rows=5)")
    assert "[1, 2]\ntext\n" == sink.out


@dataclasses.dataclass
class Address:
    street: str
    city: str = ""


@dataclasses.dataclass
class Parcel:
    id: int
    address: Address
    note: str | None = None
    tags: list[str] = dataclasses.field(default_factory=list)
    weight: float = 0.0

    def send(self, by: str = "air", *, fast: bool = False) -> bool:
        """Send it.

        At once.
        """
        return fast


def test_empty_fields_of_records_are_left_out():
    """Their class implies them; zero and False carry information. A dict shows its keys."""
    assert "Parcel\n  id: 1\n  address: Address(street=9 Elm Road)\n  weight: 0.0" == render(
        Parcel(1, Address("9 Elm Road"))
    )
    assert "id|address|weight\n1|Address(street=A)|0.0\n2|Address(street=B)|0.0" == render(
        [Parcel(1, Address("A")), Parcel(2, Address("B"))]
    )
    assert "a: None\nb: []" == render({"a": None, "b": []})


def test_a_class_is_shown_by_its_fields(monkeypatch: pytest.MonkeyPatch):
    """With the parameters of its own methods."""
    for cls in (Parcel, Address):
        monkeypatch.setattr(cls, "__module__", "__main__")
    assert "Address(street: str, city: str = '')" == render(Address)
    first, *rest = render(Parcel).split("\n")
    assert first.startswith("Parcel(id: int, address: Address, note: str | None = None, tags: list[str] = ")
    assert ["  send(by: str = 'air', fast: bool = False) -> bool  # Send it. At once."] == rest


def test_a_table_that_does_not_fit_has_fewer_rows():
    rows = [{"id": number, "text": f"{number} " * 40} for number in range(60)]
    lines = render(rows, chars=2000).split("\n")
    (gap,) = (line for line in lines if line.startswith("... "))
    _, what, first, _, last, _, total, _ = gap.split(" ")
    assert ("60 items:", "rows", "60") == (lines[0], what, total)
    shown = [*range(int(first) - 1), *range(int(last), 60)]
    assert [str(number) for number in shown] == [line.partition("|")[0] for line in lines[2:] if line != gap]
    assert len(shown) > 3
    assert len("\n".join(lines)) < 2100


def orders(count: int) -> list[dict[str, object]]:
    return [
        {"id": number, **{f"line {number}.{line}": [f"{line}"] * 60 for line in range(1 + number % 3)}}
        for number in range(count)
    ]


@pytest.mark.parametrize("count", [3, 6, 60])
@pytest.mark.parametrize("chars", [400, 1000, 3000])
@pytest.mark.parametrize("keyed", [False, True])
def test_what_does_not_fit_is_left_out_by_whole_items(count: int, chars: int, keyed: bool):
    """The text names them; the other items look as they would alone."""
    value = {f"o{order['id']}": order for order in orders(count)} if keyed else orders(count)
    whole = render(value, rows=100, chars=10**9).split("\n")
    lines = render(value, rows=100, chars=chars).split("\n")
    if len("\n".join(whole)) <= chars:
        assert whole == lines
        return
    (at,) = (at for at, line in enumerate(lines) if line.startswith("... "))
    _, what, first, _, last, _, total, _ = lines[at].split(" ")
    assert (("keys" if keyed else "items"), str(count)) == (what, total)
    blocks = [at for at, line in enumerate(whole) if line[:1] != " "]
    assert whole[: blocks[int(first) - 1]] == lines[:at]
    assert (whole[blocks[int(last)] :] if int(last) < count else []) == lines[at + 1 :]
    assert sum(len(line) + 1 for line in lines) <= chars + 60 or first == "2"


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (list(range(100)), "items 98 to 99 of 100:\n[98, 99]"),
        ({str(n): n for n in range(100)}, "keys 98 to 99 of 100:\n'98': 98\n'99': 99"),
        ("\n".join(map(str, range(100))), "lines 98 to 99 of 100:\n98\n99"),
        (set(range(99)), "items 98 to 98 of 99:\n[98]"),
        ([1, 2], "there are 2 items, and none from 98 on"),
    ],
)
def test_a_part_from_a_position_on(value: object, shown: str) -> None:
    assert shown == render(value, start=98)


@pytest.mark.parametrize("kind", ["pandas", "numpy", "polars", "arrow"])
def test_rows_of_a_table_from_a_position_on(kind: str) -> None:
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame({"a": range(100)})
    table = {
        "pandas": lambda: frame,
        "numpy": lambda: frame.to_numpy(),
        "polars": lambda: pytest.importorskip("polars").from_pandas(frame),
        "arrow": lambda: pytest.importorskip("pyarrow").Table.from_pandas(frame),
    }[kind]()
    shown = render(table, start=97, rows=2)
    assert shown.startswith("rows 97 to 98 of 100:\n")
    assert "97" in shown.split("\n")[-2]
    assert "98" in shown.split("\n")[-1]


@pytest.mark.parametrize(
    ("value", "arguments"), [(5, {"start": 0}), ([1], {"start": -1}), ([1], {"start": 0, "rows": 0})]
)
def test_no_part_of_what_has_none(value: object, arguments: dict[str, int]) -> None:
    with pytest.raises((TypeError, ValueError), match=r"parts are shown of|start is 0 or more"):
        render(value, **arguments)
