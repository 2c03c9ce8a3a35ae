"""Many small changes of one kind: a loop of a few lines replaces many calls."""

from __future__ import annotations

from benchmarks.tokens.conversation import Cell, Conversation, Exchange, call
from benchmarks.tokens.sales_desk import make_sales_desk

PHONES = "SELECT id, phone FROM contacts ORDER BY id"
CHANGED = {
    1: "+1-213-555-8403",
    3: "+1-780-555-8395",
    4: "+1-926-555-7261",
    5: "+1-535-555-1064",
    7: "+1-525-555-8631",
    10: "+1-507-555-7917",
    11: "+1-538-555-3822",
    12: "+1-734-555-8994",
    13: "+1-485-555-6651",
    14: "+1-597-555-3337",
    16: "+1-440-555-2721",
    17: "+1-500-555-8355",
    18: "+1-377-555-3420",
    21: "+1-279-555-2698",
    22: "+1-879-555-7980",
    23: "+1-744-555-5305",
    24: "+1-480-555-8588",
}

CONVERSATION = Conversation(
    name="phone numbers",
    toolkit=make_sales_desk,
    exchanges=[
        Exchange(
            user="Bring the phone numbers of our contacts into the form +1-555-555-5555 and leave those alone "
            "that have it.",
            batches=[
                [call("list_tables")],
                [call("describe_table", table="sales"), call("describe_table", table="contacts")],
                [call("query", sql=PHONES)],
                [call("update_phone", contact_id=number, phone=phone) for number, phone in CHANGED.items()],
            ],
            cells=[
                Cell(
                    thought="I'll look at the table first.",
                    code="""\
for table in list_tables():
    print(table, describe_table(table))""",
                ),
                Cell(code=f'contacts = query("{PHONES}")\nshow(contacts)'),
                Cell(
                    code="""\
import re
changed, failed = [], []
for contact in contacts:
    digits = re.sub(r"\\D", "", contact["phone"])[-10:]
    phone = f"+1-{digits[:3]}-{digits[3:6]}-{digits[6:]}"
    if phone == contact["phone"]:
        continue
    try:
        update_phone(contact["id"], phone)
        changed.append(contact["id"])
    except Exception as error:
        failed.append((contact["id"], str(error)))
print(len(changed), "changed:", changed, "failed:", failed)""",
                ),
            ],
            answer="I changed 17 of the 24 phone numbers to the form +1-555-555-5555; the other 7 already had "
            "it. There were "
            "no failures.",
        )
    ],
)
