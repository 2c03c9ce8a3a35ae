"""Arrays that are going to be sorted, made as fast to write to as they were before a copy was made.

Vector instructions that write with a mask, as sorting does, take a slow way through the processor on a page that has
not been written to since a fork, also when the copy has gone; as long as the mask lets nothing pass the kernel hears
of none. Sorting what is in order took thirty times as long. Plain writes make the page an ordinary one again.
"""

from __future__ import annotations

from cenote_worker.in_jail.array_views import bytes_of
from cenote_worker.in_jail.pristine import BUILTINS

__builtins__ = BUILTINS


def unshare(array: object) -> None:
    """Writes what is there, all of it: half of the cost was seen to stay where one byte of each 64 was written.

    Views are left as they are.
    """
    memory = bytes_of(array)
    if memory is not None:
        memory |= 0
