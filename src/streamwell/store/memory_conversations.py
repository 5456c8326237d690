"""Conversations and their items in dictionaries."""

from __future__ import annotations

from collections.abc import Sequence

from streamwell.core.conversation import Conversation, ConversationItem, Page
from streamwell.core.errors import StoreFailed
from streamwell.store.memory_database import MemoryDatabase, StoredConversation
from streamwell.store.paging import page_of


class MemoryConversations:
    """The part of the `Store` port that is about conversations; see there what each promises."""

    _database: MemoryDatabase
    _lease_id: int | None

    async def create_conversation(
        self, conversation: Conversation, items: Sequence[ConversationItem]
    ) -> None:
        self._check_open()
        conversation_id = conversation.conversation_id
        if conversation_id in self._database.conversations:
            raise ValueError(f"Conversation {conversation_id} is there already.")
        stored = StoredConversation(conversation, {})
        stored.items.update(new_items(stored, items))
        self._database.conversations[conversation_id] = stored

    async def conversation(self, conversation_id: str) -> Conversation | None:
        stored = self._stored(conversation_id)
        return stored.conversation if stored else None

    async def conversations(self, tenant: str, page: Page) -> list[Conversation]:
        self._check_open()
        everybodys = (stored.conversation for stored in self._database.conversations.values())
        own = {found.conversation_id: found for found in everybodys if found.tenant == tenant}
        return page_of(own.values(), page, _age, own.get(page.after))

    async def num_conversations(self, tenant: str) -> int:
        self._check_open()
        stored = self._database.conversations.values()
        return sum(each.conversation.tenant == tenant for each in stored)

    async def update_conversation(self, conversation: Conversation) -> None:
        if stored := self._stored(conversation.conversation_id):
            stored.conversation = conversation

    async def delete_conversation(self, conversation_id: str) -> bool:
        self._check_open()
        return self._database.conversations.pop(conversation_id, None) is not None

    async def append_items(self, conversation_id: str, items: Sequence[ConversationItem]) -> None:
        stored = self._stored(conversation_id)
        if stored is None:
            raise ValueError(f"Conversation {conversation_id} is unknown.")
        stored.items.update(new_items(stored, items))

    async def items(self, conversation_id: str, page: Page) -> list[ConversationItem]:
        stored = self._stored(conversation_id)
        items = stored.items if stored else {}
        places = {item_id: place for place, item_id in enumerate(items)}
        return page_of(
            items.values(), page, lambda item: places[item.item_id], items.get(page.after)
        )

    async def delete_item(
        self, conversation_id: str, item_id: str, followers: Sequence[ConversationItem] = ()
    ) -> bool:
        stored = self._stored(conversation_id)
        if stored is None or stored.items.pop(item_id, None) is None:
            return False
        stored.items |= {item.item_id: item for item in followers if item.item_id in stored.items}
        return True

    def _check_open(self) -> None:
        if self._lease_id is None:
            raise StoreFailed("The store is not open.")

    def _stored(self, conversation_id: str) -> StoredConversation | None:
        self._check_open()
        return self._database.conversations.get(conversation_id)


def new_items(
    stored: StoredConversation, items: Sequence[ConversationItem]
) -> dict[str, ConversationItem]:
    """Items by id; raises `ValueError` if the conversation has one already, or two have one id."""
    new = {item.item_id: item for item in items}
    if len(new) < len(items) or new.keys() & stored.items.keys():
        raise ValueError("An item is there already.")
    return new


def _age(conversation: Conversation) -> tuple[int, str]:
    return conversation.created_s, conversation.conversation_id
