"""Conversations: what was said is kept, and runs go on from it.

An item is a message, or the answer that a run gives: its text stands in the run's log and nowhere
else. What goes on from an answer must wait for its end.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from streamwell.core.conversation import Conversation, ConversationItem, Page
from streamwell.core.errors import (
    AfterNotFound,
    ConversationNotFound,
    InvalidRequest,
    ItemNotFound,
    PreviousResponseNotFound,
    RunNotEnded,
    RunNotFound,
)
from streamwell.core.ids import is_id
from streamwell.core.messages import num_kept_bytes
from streamwell.core.ports import Store
from streamwell.core.types import (
    Message,
    RunEvent,
    RunKind,
    RunRequest,
    RunSpec,
    RunTerms,
    end_of,
)
from streamwell.service.acceptance import MAX_KEPT_BYTES
from streamwell.service.new_ids import id_by_time
from streamwell.service.new_items import items_of, new_items
from streamwell.service.once import Once
from streamwell.service.paths import answer_of, path_to, relinked
from streamwell.service.reader import Reader
from streamwell.service.runs import ItemsOf, RunService

#: Items of one conversation; what it takes to read all of them is bounded by this.
MAX_ITEMS = 2048
#: Of one tenant; they are kept until they are deleted.
MAX_CONVERSATIONS = 10_000

Metadata = tuple[tuple[str, str], ...]
#: An item; and if it is an answer that is kept, its run's model and events so far.
Entry = tuple[ConversationItem, str, list[RunEvent]]


class Conversations:
    """The conversations of all tenants; whoever asks for another's is told that it is not there."""

    def __init__(self, store: Store, runs: RunService) -> None:
        self._store = store
        self._runs = runs
        #: By conversation: whoever adds to it has it alone, in this server.
        self._turns = Once()

    async def create(
        self, tenant: str, metadata: Metadata, messages: Sequence[Message]
    ) -> Conversation:
        """Raises `InvalidRequest`: the messages are too long, or there are too many already."""
        _check_room([], messages, "items")
        if await self._store.num_conversations(tenant) >= MAX_CONVERSATIONS:
            raise InvalidRequest(
                f"there are {MAX_CONVERSATIONS} conversations already, the most there may be: "
                "delete some"
            )
        conversation = Conversation(
            conversation_id=id_by_time("conv_"),
            tenant=tenant,
            created_s=int(time.time()),
            metadata=metadata,
        )
        await self._store.create_conversation(conversation, new_items(messages))
        return conversation

    async def find(self, conversation_id: str, tenant: str) -> Conversation:
        """Raises `ConversationNotFound`, also for another tenant's."""
        is_possible = is_id(conversation_id)
        conversation = await self._store.conversation(conversation_id) if is_possible else None
        if conversation is None or conversation.tenant != tenant:
            raise ConversationNotFound
        return conversation

    async def of_tenant(self, tenant: str, page: Page) -> list[Conversation]:
        """Raises `AfterNotFound`."""
        found = await self._store.conversations(tenant, page)
        if page.after and not found:
            after = await self._store.conversation(page.after)
            if after is None or after.tenant != tenant:
                raise AfterNotFound
        return found

    async def update(self, conversation_id: str, tenant: str, metadata: Metadata) -> Conversation:
        """Replace its metadata. Raises `ConversationNotFound`."""
        conversation = await self.find(conversation_id, tenant)
        conversation = replace(conversation, metadata=metadata)
        await self._store.update_conversation(conversation)
        return conversation

    async def delete(self, conversation_id: str, tenant: str) -> None:
        """Delete it with its items; its runs stay. Raises `ConversationNotFound`."""
        async with self._turns.turn(conversation_id):
            await self.find(conversation_id, tenant)
            await self._store.delete_conversation(conversation_id)

    async def items(self, conversation_id: str, tenant: str, page: Page) -> list[Entry]:
        """Raises `ConversationNotFound`, `AfterNotFound`."""
        await self.find(conversation_id, tenant)
        items = await self._store.items(conversation_id, page)
        if page.after and not items:
            known = await self._all_items(conversation_id)
            if page.after not in [item.item_id for item in known]:
                raise AfterNotFound
        return [await self._entry(item) for item in items]

    async def item(self, conversation_id: str, tenant: str, item_id: str) -> Entry:
        """Raises `ConversationNotFound`, `ItemNotFound`."""
        await self.find(conversation_id, tenant)
        for item in await self._all_items(conversation_id):
            if item.item_id == item_id:
                return await self._entry(item)
        raise ItemNotFound

    async def add(
        self,
        conversation_id: str,
        tenant: str,
        messages: Sequence[Message],
        previous_id: str | None = None,
    ) -> list[Entry]:
        """Add messages, one after the other, after an item; `None` is the last one.

        Raises:
            ConversationNotFound: no such conversation, or another tenant's.
            InvalidRequest: it is full, or has no such item.
        """
        async with self._turns.turn(conversation_id):
            await self.find(conversation_id, tenant)
            known = await self._all_items(conversation_id)
            _check_room(known, messages, "items")
            items = new_items(messages, _last_id(path_to(known, previous_id)))
            await self._store.append_items(conversation_id, items)
        return [(item, "", []) for item in items]

    async def delete_item(self, conversation_id: str, tenant: str, item_id: str) -> Conversation:
        """Delete one item; what came after it comes after the one before it.

        Raises `ConversationNotFound`, `ItemNotFound`.
        """
        async with self._turns.turn(conversation_id):
            conversation = await self.find(conversation_id, tenant)
            followers = relinked(await self._all_items(conversation_id), item_id)
            is_there = is_id(item_id) and await self._store.delete_item(
                conversation_id, item_id, followers
            )
        if not is_there:
            raise ItemNotFound
        return conversation

    async def answer(self, request: RunRequest) -> Reader:
        """Start a run that goes on from a run, or in a conversation, as its terms say.

        The messages of the terms are what is new; the prompt is made here. A conversation gets
        them and the answer as items.

        Raises:
            ConversationNotFound, PreviousResponseNotFound: there is nothing to go on from.
            RunNotEnded: an answer is still being generated.
            InvalidRequest: the previous response failed, the conversation is full, or see
                `RunService.start`.
            StoreFailed: it could not be written.
        """
        terms = request.terms
        if not terms.conversation_id:
            return await self._runs.start(request, self._complete)
        async with self._turns.turn(terms.conversation_id):
            await self.find(terms.conversation_id, request.tenant)
            reader = await self._runs.start(request, self._complete)
            try:
                await reader.wait_for_start()  # who adds next is to see its items
            except BaseException:
                reader.close()
                raise
        return reader

    async def _complete(self, request: RunRequest) -> tuple[RunRequest, ItemsOf]:
        """Put what was said before into the prompt; tells what the conversation gets."""
        terms = request.terms
        if terms.conversation_id:
            path = await self._path(terms)
            terms = replace(terms, previous_item_id=_last_id(path))
            told = await self._told_along(path)
        else:
            told = await self._told_by(terms.previous_run_id, request.tenant)
        messages = (*told, *terms.messages)
        system = (Message("system", terms.instructions),) if terms.instructions else ()
        added = partial(items_of, num_new=len(terms.messages))
        terms = replace(terms, messages=messages)
        return replace(request, prompts=((*system, *messages),), terms=terms), added

    async def _path(self, terms: RunTerms) -> Sequence[ConversationItem]:
        """The items that a run in a conversation goes on from."""
        items = await self._all_items(terms.conversation_id)
        _check_room(items, terms.messages, "conversation", num_answers=1)
        return path_to(items, terms.previous_item_id)

    async def _told_along(self, path: Sequence[ConversationItem]) -> list[Message]:
        """What was said in these items.

        An answer without words is told, too: many templates want the roles to take turns.
        """
        return [
            item.message or answer_of(item.run_id, await self._ended(item.run_id)) for item in path
        ]

    async def _told_by(self, run_id: str, tenant: str) -> list[Message]:
        """A run's conversation, with its answer; nothing without a run."""
        if not run_id:
            return []
        spec = await self._previous(run_id, tenant)
        events = await self._ended(run_id)
        if not events:
            raise PreviousResponseNotFound(run_id)
        if events[-1].error is not None:
            raise InvalidRequest("the previous response failed", "previous_response_id")
        return [*spec.terms.messages, answer_of(run_id, events)]

    async def _previous(self, run_id: str, tenant: str) -> RunSpec:
        with suppress(RunNotFound):
            spec = await self._runs.find(run_id, tenant)
            if spec.kind is RunKind.RESPONSE:
                return spec
        raise PreviousResponseNotFound(run_id)

    async def _ended(self, run_id: str) -> list[RunEvent]:
        """All events of a run; none of one that is deleted. Raises `RunNotEnded`."""
        events = await self._runs.log.events(run_id)
        is_live = end_of(events) is None if events else await self._is_there(run_id)
        if is_live:
            raise RunNotEnded(f"The answer {run_id} has not ended yet; wait for it, or cancel it.")
        return events

    async def _is_there(self, run_id: str) -> bool:
        return await self._runs.log.spec(run_id) is not None

    async def _all_items(self, conversation_id: str) -> Sequence[ConversationItem]:
        page = Page(limit=MAX_ITEMS, newest_first=False)
        return await self._store.items(conversation_id, page)

    async def _entry(self, item: ConversationItem) -> Entry:
        log = self._runs.log
        spec = await log.spec(item.run_id) if item.run_id else None
        return (item, spec.model, await log.events(item.run_id)) if spec else (item, "", [])


def _check_room(
    items: Sequence[ConversationItem], new: Sequence[Message], param: str, num_answers: int = 0
) -> None:
    if len(items) + len(new) + num_answers > MAX_ITEMS:
        raise InvalidRequest(f"a conversation has at most {MAX_ITEMS} items", param)
    known = [item.message for item in items if item.message is not None]
    if num_kept_bytes([*known, *new]) > MAX_KEPT_BYTES:
        raise InvalidRequest(
            f"a conversation has at most {MAX_KEPT_BYTES} bytes of messages", param
        )


def _last_id(items: Sequence[ConversationItem]) -> str:
    return items[-1].item_id if items else ""
