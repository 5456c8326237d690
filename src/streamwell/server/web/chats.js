// All chats of this key: conversations on the server, and what is written on them.

import { call, listAll } from './api.js';
import { signal } from './ui.js';

const PATH = 'v1/conversations';
//: The server keeps texts of up to 512 characters; longer ones are kept in pieces.
const PIECE_LENGTH = 500;
const MAX_PIECES = 12;
const TITLE_LENGTH = 80;

/** Newest first; `null` until they are known. */
export const chats = signal(null);

export async function refreshChats() {
  const found = await listAll(PATH);
  chats.value = found.map(fromConversation).sort((a, b) => b.updated - a.updated);
}

export async function createChat(title, settings) {
  const chat = { title: shortTitle(title), settings, updated: Date.now() };
  const conversation = await call('POST', PATH, { metadata: toMetadata(chat) });
  const created = fromConversation(conversation);
  chats.value = [created, ...(chats.value ?? [])];
  return created;
}

/** Change what is written on a chat: `title`, `settings`, `updated`. */
export async function changeChat(id, changes) {
  const known = (chats.value ?? []).find((chat) => chat.id === id) ?? await loadChat(id);
  const changed = { ...known, ...changes };
  changed.title = shortTitle(changed.title);
  await call('POST', `${PATH}/${id}`, { metadata: toMetadata(changed) });
  const others = (chats.value ?? []).filter((chat) => chat.id !== id);
  chats.value = [...others, changed].sort((a, b) => b.updated - a.updated);
}

export async function loadChat(id) {
  return fromConversation(await call('GET', `${PATH}/${id}`));
}

/** Delete a chat and all of its answers; those that are still written end. */
export async function deleteChat(id) {
  const items = await itemsOf(id);
  await Promise.all(items.filter((item) => item.run_id).map(({ run_id: run }) => (
    call('DELETE', `v1/runs/${run}`).catch((error) => { if (error.status !== 404) throw error; })
  )));
  await call('DELETE', `${PATH}/${id}`);
  chats.value = chats.value.filter((chat) => chat.id !== id);
}

/** The items of a chat in the order in which they were added, from after one of them on. */
export function itemsOf(id, after = '') {
  return listAll(`${PATH}/${id}/items`, `&order=asc${after && `&after=${after}`}`);
}

export function addItems(id, items, previous) {
  return call('POST', `${PATH}/${id}/items`, { items, previous_item_id: previous });
}

export function textOf(item) {
  return item.content.map((part) => part.text).join('');
}

function shortTitle(text) {
  const line = text.trim().replace(/\s+/g, ' ');
  const letters = Array.from(line);
  return letters.length > TITLE_LENGTH ? `${letters.slice(0, TITLE_LENGTH - 1).join('')}…` : line;
}

function fromConversation({ id, created_at: createdS, metadata }) {
  let settings = {};
  try {
    settings = JSON.parse(joinPieces(metadata) || '{}');
  } catch { /* somebody else's idea of settings */ }
  return {
    id,
    title: metadata.title || 'Untitled chat',
    settings,
    updated: Number(metadata.updated) || createdS * 1000,
  };
}

function toMetadata({ title, settings, updated }) {
  const letters = Array.from(JSON.stringify(settings));
  const pieces = {};
  for (let at = 0; at * PIECE_LENGTH < letters.length; at += 1) {
    if (at === MAX_PIECES) throw new Error('the settings of a chat are too long to be kept');
    pieces[`settings.${at}`] = letters.slice(at * PIECE_LENGTH, (at + 1) * PIECE_LENGTH).join('');
  }
  return { title, updated: String(updated), ...pieces };
}

function joinPieces(metadata) {
  let text = '';
  for (let at = 0; metadata[`settings.${at}`] !== undefined; at += 1) text += metadata[`settings.${at}`];
  return text;
}
