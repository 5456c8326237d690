"""`/v1/conversations`: what was said, kept for the responses that go on from it."""

from __future__ import annotations

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response

from streamwell.server.convert.items import item_dict
from streamwell.server.convert.messages import (
    conversation_dict,
    core_message,
    list_dict,
    previous_item,
)
from streamwell.server.deps import ClosedRoute, ServicesDep, TenantDep
from streamwell.server.errors import JSONBytes
from streamwell.server.paging import NewestFirstDep, refuse_include
from streamwell.server.queries import refuse_other_sites
from streamwell.server.schemas.conversations import (
    CreateConversationRequest,
    CreateItemsRequest,
    UpdateRequest,
)

router = APIRouter(route_class=ClosedRoute, prefix="/conversations", tags=["conversations"])


@router.post("", response_model=None)
async def create_conversation(
    request: Request,
    services: ServicesDep,
    tenant: TenantDep,
    body: CreateConversationRequest | None = None,
) -> Response:
    """Begin a conversation."""
    if body is None:  # a page of another site can send nothing without asking first
        refuse_other_sites(request, services)
    body = body or CreateConversationRequest.model_validate({})
    services.unknown_fields.note(body.model_extra or ())
    messages = [core_message(item) for item in body.items]
    metadata = tuple((body.metadata or {}).items())
    conversation = await services.conversations.create(tenant, metadata, messages)
    return JSONBytes(conversation_dict(conversation))


@router.get("", response_model=None)
async def list_conversations(
    services: ServicesDep, tenant: TenantDep, query: NewestFirstDep
) -> Response:
    """The caller's conversations."""
    found = await services.conversations.of_tenant(tenant, query.page)
    return JSONBytes(list_dict([conversation_dict(entry) for entry in found], query.limit))


@router.get("/{conversation_id}", response_model=None)
async def get_conversation(
    conversation_id: str, services: ServicesDep, tenant: TenantDep
) -> Response:
    """A conversation without its items."""
    return JSONBytes(conversation_dict(await services.conversations.find(conversation_id, tenant)))


@router.post("/{conversation_id}", response_model=None)
async def update_conversation(
    conversation_id: str, body: UpdateRequest, services: ServicesDep, tenant: TenantDep
) -> Response:
    """Replace the metadata of a conversation."""
    services.unknown_fields.note(body.model_extra or ())
    metadata = tuple((body.metadata or {}).items())
    conversation = await services.conversations.update(conversation_id, tenant, metadata)
    return JSONBytes(conversation_dict(conversation))


@router.delete("/{conversation_id}", response_model=None)
async def delete_conversation(
    conversation_id: str, services: ServicesDep, tenant: TenantDep
) -> Response:
    """Delete a conversation with its items; its responses stay."""
    await services.conversations.delete(conversation_id, tenant)
    deleted = {"id": conversation_id, "object": "conversation.deleted", "deleted": True}
    return JSONBytes(deleted)


@router.get("/{conversation_id}/items", response_model=None, dependencies=[Depends(refuse_include)])
async def list_items(
    conversation_id: str, services: ServicesDep, tenant: TenantDep, query: NewestFirstDep
) -> Response:
    """What was said; the text of an answer grows while it is generated."""
    entries = await services.conversations.items(conversation_id, tenant, query.page)
    return JSONBytes(list_dict([item_dict(*entry) for entry in entries], query.limit))


@router.post(
    "/{conversation_id}/items", response_model=None, dependencies=[Depends(refuse_include)]
)
async def create_items(
    conversation_id: str, body: CreateItemsRequest, services: ServicesDep, tenant: TenantDep
) -> Response:
    """Add messages, one after the other, at the end or after an item."""
    services.unknown_fields.note(body.model_extra or ())
    messages = [core_message(item) for item in body.items]
    previous_id = previous_item(body.previous_item_id)
    entries = await services.conversations.add(conversation_id, tenant, messages, previous_id)
    return JSONBytes(list_dict([item_dict(*entry) for entry in entries], len(entries)))


@router.get(
    "/{conversation_id}/items/{item_id}",
    response_model=None,
    dependencies=[Depends(refuse_include)],
)
async def get_item(
    conversation_id: str, item_id: str, services: ServicesDep, tenant: TenantDep
) -> Response:
    """One item."""
    entry = await services.conversations.item(conversation_id, tenant, item_id)
    return JSONBytes(item_dict(*entry))


@router.delete("/{conversation_id}/items/{item_id}", response_model=None)
async def delete_item(
    conversation_id: str, item_id: str, services: ServicesDep, tenant: TenantDep
) -> Response:
    """Delete one item; an answer's response stays. Returns the conversation."""
    conversation = await services.conversations.delete_item(conversation_id, tenant, item_id)
    return JSONBytes(conversation_dict(conversation))
