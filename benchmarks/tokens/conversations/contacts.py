"""The table of contacts: look some up, change one, then six at once."""

from __future__ import annotations

from benchmarks.tokens.conversation import Cell, Conversation, Exchange, call
from benchmarks.tokens.sales_desk import make_sales_desk

LOOK = Cell(
    thought="I'll look at the tables first.",
    code="""\
for table in list_tables():
    print(table, describe_table(table))""",
)
LOOKS = (
    [call("list_tables")],
    [call("describe_table", table="sales"), call("describe_table", table="contacts")],
)
CONTACTS = "SELECT * FROM contacts ORDER BY company, id"
SUPPLIER = "SELECT id, name, phone FROM contacts WHERE company = 'Elbow Joint Supply' ORDER BY id"
MOVED = (4, 6, 8, 14, 17)
SWITCHBOARD = "+1-926-555-7000"

ADDRESS_BOOK = Conversation(
    name="address book",
    toolkit=make_sales_desk,
    exchanges=[
        Exchange(
            user="Who are our contacts, company by company?",
            batches=[*LOOKS, [call("query", sql=CONTACTS)]],
            cells=[LOOK, Cell(code=f'contacts = query("{CONTACTS}")\nshow(contacts)')],
            answer="""\
Our 24 contacts, by company:
- Anchor Bolt Supply: Contact 7, Contact 11, Contact 21
- Ball Valve Supply: Contact 12, Contact 15, Contact 23
- Check Valve Supply: Contact 1, Contact 3, Contact 9, Contact 18, Contact 19
- Drain Pipe Supply: Contact 2, Contact 16, Contact 20
- Elbow Joint Supply: Contact 4, Contact 6, Contact 8, Contact 14, Contact 17
- Flange Supply: Contact 5, Contact 10, Contact 13, Contact 22, Contact 24""",
        ),
        Exchange(
            user="How do I reach those at the flange supplier?",
            answer="At Flange Supply: Contact 5 at 001 535 555 1064, Contact 10 at (507) 555-7917, Contact 13 at "
            "4855556651, Contact 22 at (879) 555-7980 and Contact 24 at 4805558588.",
        ),
        Exchange(
            user="Contact 13 has a new number, 485 555 9000. Please change it.",
            batches=[[call("update_phone", contact_id=13, phone="+1-485-555-9000")]],
            cells=[
                Cell(
                    code="""\
try:
    print(update_phone(13, "+1-485-555-9000"))
    reply("Contact 13 now has the number +1-485-555-9000.")
except Exception as error:
    print(error)""",
                    replies=True,
                )
            ],
            answer="Contact 13 now has the number +1-485-555-9000.",
        ),
    ],
)

NEW_SWITCHBOARD = Conversation(
    name="switchboard",
    toolkit=make_sales_desk,
    exchanges=[
        Exchange(
            user="Everybody at Elbow Joint Supply has moved behind one switchboard, +1-926-555-7000. Which of our "
            "contacts does that concern?",
            batches=[*LOOKS, [call("query", sql=SUPPLIER)]],
            cells=[LOOK, Cell(code=f'moved = query("{SUPPLIER}")\nshow(moved)')],
            answer="Five contacts: Contact 4 (9265557261), Contact 6 (+1-778-555-8232), Contact 8 (+1-867-555-8660), "
            "Contact 14 (5975553337) and Contact 17 ((500) 555-8355). Shall I give them all the new number?",
        ),
        Exchange(
            user="Yes.",
            batches=[[call("update_phone", contact_id=number, phone=SWITCHBOARD) for number in MOVED]],
            cells=[
                Cell(
                    code=f"""\
failed = []
for contact in moved:
    try:
        update_phone(contact["id"], "{SWITCHBOARD}")
    except Exception as error:
        failed.append((contact["id"], str(error)))
if failed:
    print(failed)
else:
    reply("All five contacts at Elbow Joint Supply now have the number {SWITCHBOARD}.")""",
                    replies=True,
                )
            ],
            answer=f"All five contacts at Elbow Joint Supply now have the number {SWITCHBOARD}.",
        ),
    ],
)

CONVERSATIONS = (ADDRESS_BOOK, NEW_SWITCHBOARD)
