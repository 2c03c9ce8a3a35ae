"""The conversations, from a single question to five requests in a row: twelve with a shop, eight on tables."""

from __future__ import annotations

from benchmarks.tokens.conversation import Conversation
from benchmarks.tokens.conversations import (
    cancel_order,
    cheaper_variants,
    contacts,
    exchange_keyboard,
    five_wishes,
    moving_house,
    phone_numbers,
    returns,
    revenue,
    sales_overview,
    shop_questions,
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
    *returns.CONVERSATIONS,
    *shop_questions.CONVERSATIONS,
    sales_overview.CONVERSATION,
    phone_numbers.CONVERSATION,
    *contacts.CONVERSATIONS,
    *revenue.CONVERSATIONS,
)
