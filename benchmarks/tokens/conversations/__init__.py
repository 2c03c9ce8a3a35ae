"""The conversations, from a single question to five wishes in a row, and two on tables."""

from __future__ import annotations

from benchmarks.tokens.conversation import Conversation
from benchmarks.tokens.conversations import (
    cancel_order,
    cheaper_variants,
    exchange_keyboard,
    five_wishes,
    moving_house,
    phone_numbers,
    sales_overview,
    too_late,
    track_parcel,
)

CONVERSATIONS: tuple[Conversation, ...] = (
    track_parcel.CONVERSATION,
    cancel_order.CONVERSATION,
    exchange_keyboard.CONVERSATION,
    moving_house.CONVERSATION,
    cheaper_variants.CONVERSATION,
    five_wishes.CONVERSATION,
    too_late.CONVERSATION,
    sales_overview.CONVERSATION,
    phone_numbers.CONVERSATION,
)
