"""Conversations and their items on a SQL database."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, and_, delete, func, insert, select, update

from streamwell.core.conversation import Conversation, ConversationItem, Page
from streamwell.store.database import SqlDatabase
from streamwell.store.paging import select_page
from streamwell.store.rows import (
    conversation_from_row,
    conversation_to_row,
    item_from_row,
    item_to_row,
    pack_item,
    pack_metadata,
)
from streamwell.store.schema import CONVERSATION_ITEMS, CONVERSATIONS


class SqlConversations(SqlDatabase):
    """The part of the `Store` port that is about conversations; see there what each promises."""

    async def create_conversation(
        self, conversation: Conversation, items: Sequence[ConversationItem]
    ) -> None:
        def create(connection: Connection) -> None:
            connection.execute(insert(CONVERSATIONS), [conversation_to_row(conversation)])
            _insert_items(connection, conversation.conversation_id, 0, items)

        await self._write(create)

    async def conversation(self, conversation_id: str) -> Conversation | None:
        statement = select(CONVERSATIONS).where(CONVERSATIONS.c.id == conversation_id)
        found = await self._read(conversation_from_row, statement)
        return found[0] if found else None

    async def conversations(self, tenant: str, page: Page) -> list[Conversation]:
        columns = CONVERSATIONS.c
        is_own = columns.tenant == tenant
        after_s = select(columns.created_s).where(is_own, columns.id == page.after)
        statement = select_page(
            select(CONVERSATIONS).where(is_own),
            page,
            (columns.created_s, columns.id),
            (after_s.scalar_subquery(), page.after),
        )
        return await self._read(conversation_from_row, statement)

    async def num_conversations(self, tenant: str) -> int:
        is_own = CONVERSATIONS.c.tenant == tenant
        (count,) = await self._read(
            lambda row: int(row[0]), select(func.count()).select_from(CONVERSATIONS).where(is_own)
        )
        return count

    async def update_conversation(self, conversation: Conversation) -> None:
        statement = (
            update(CONVERSATIONS)
            .where(CONVERSATIONS.c.id == conversation.conversation_id)
            .values(metadata=pack_metadata(conversation))
        )
        await self._write(lambda connection: connection.execute(statement))

    async def delete_conversation(self, conversation_id: str) -> bool:
        """Delete it with its items, which go by their foreign key."""
        statement = delete(CONVERSATIONS).where(CONVERSATIONS.c.id == conversation_id)
        return await self._write(lambda connection: connection.execute(statement).rowcount > 0)

    async def append_items(self, conversation_id: str, items: Sequence[ConversationItem]) -> None:
        def append(connection: Connection) -> None:
            if not append_items(connection, conversation_id, items):
                raise ValueError(f"Conversation {conversation_id} is unknown.")

        await self._write(append)

    async def items(self, conversation_id: str, page: Page) -> list[ConversationItem]:
        columns = CONVERSATION_ITEMS.c
        is_inside = columns.conversation_id == conversation_id
        after = select(columns.position).where(is_inside, columns.id == page.after)
        statement = select_page(
            select(columns.item).where(is_inside),
            page,
            (columns.position,),
            (after.scalar_subquery(),),
        )
        return await self._read(item_from_row, statement)

    async def delete_item(
        self, conversation_id: str, item_id: str, followers: Sequence[ConversationItem] = ()
    ) -> bool:
        columns = CONVERSATION_ITEMS.c
        is_inside = columns.conversation_id == conversation_id

        def take_out(connection: Connection) -> bool:
            is_it = and_(is_inside, columns.id == item_id)
            if not connection.execute(delete(CONVERSATION_ITEMS).where(is_it)).rowcount:
                return False
            for item in followers:
                changed = update(CONVERSATION_ITEMS).where(is_inside, columns.id == item.item_id)
                connection.execute(changed.values(item=pack_item(item)))
            return True

        return await self._write(take_out)


def append_items(
    connection: Connection, conversation_id: str, items: Sequence[ConversationItem]
) -> bool:
    """Add items at the end of a conversation; false if it is not there."""
    # It is locked, so that appended items of two servers come one by one.
    lock = select(CONVERSATIONS.c.id).where(CONVERSATIONS.c.id == conversation_id)
    if connection.scalar(lock.with_for_update()) is None:
        return False
    last = select(func.max(CONVERSATION_ITEMS.c.position)).where(
        CONVERSATION_ITEMS.c.conversation_id == conversation_id
    )
    last_position = connection.scalar(last)
    start = 0 if last_position is None else last_position + 1
    _insert_items(connection, conversation_id, start, items)
    return True


def _insert_items(
    connection: Connection, conversation_id: str, start: int, items: Sequence[ConversationItem]
) -> None:
    rows = [item_to_row(conversation_id, start + n, item) for n, item in enumerate(items)]
    if rows:
        connection.execute(insert(CONVERSATION_ITEMS), rows)
