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

//: Changes begun and made here: a list that was asked for before one of them is not the list after it.
let numChanges = 0;

//: Of several lists that are asked for side by side, only the one that was begun last is shown.
let numLists = 0;
let latest = Promise.resolve();

/** Resolves when a list that was asked for since then is shown. */
export function refreshChats() {
  numLists += 1;
  latest = refresh(numLists);
  return latest;
}

async function refresh(number) {
  for (let before = null; before !== numChanges && number === numLists;) {
    before = numChanges;
    const found = await listAll(PATH);
    if (before === numChanges && number === numLists) show(found.map(fromConversation));
  }
  if (number !== numLists) await latest;
}

function show(all) {
  chats.value = all.sort((a, b) => b.updated - a.updated);
}

/** A list that was asked for meanwhile may have it already. */
function showOne(chat) {
  show([chat, ...(chats.value ?? []).filter(({ id }) => id !== chat.id)]);
}

async function change(action) {
  numChanges += 1;
  try {
    return await action();
  } finally {
    numChanges += 1;
  }
}

/** A new chat; by a `mark` it is known again to a page that has not heard its id. */
export async function createChat(title, settings, { mark, updated = Date.now() } = {}) {
  const chat = { title, settings, updated };
  const metadata = { ...toMetadata(chat), ...(mark && { mark }) };
  const created = fromConversation(await change(() => call('POST', PATH, { metadata })));
  showOne(created);
  return created;
}

let writing = Promise.resolve();

/**
 * Change what is written on a chat: `title`, `updated`, and `settings` by a function of those that it
 * has; one change after the other. Returns the chat.
 */
export function changeChat(id, changes) {
  const written = writing.then(() => write(id, changes));
  writing = written.catch(() => {});
  return written;
}

/** The server takes all that is written at once; what others have written there stays. */
async function write(id, { settings: update, ...others }) {
  const conversation = await call('GET', `${PATH}/${id}`);
  const changes = { ...others, settings: update?.(fromConversation(conversation).settings) };
  const isReplaced = (name) => name === 'mark' || (changes.settings && /^settings\.\d+$/.test(name));
  const staying = Object.entries(conversation.metadata).filter(([name]) => !isReplaced(name));
  const written = { ...conversation, metadata: { ...Object.fromEntries(staying), ...toMetadata(changes) } };
  await change(() => call('POST', `${PATH}/${id}`, { metadata: written.metadata }));
  const chat = fromConversation(written);
  if (chats.value?.some((other) => other.id === id)) showOne(chat); // it may be deleted by now
  return chat;
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
  await change(() => call('DELETE', `${PATH}/${id}`));
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
    mark: metadata.mark,
    updated: Number(metadata.updated) || createdS * 1000,
  };
}

/** What of a chat is given, as the server keeps it. */
function toMetadata({ title, settings, updated }) {
  const metadata = {};
  if (title !== undefined) metadata.title = shortTitle(title);
  if (updated !== undefined) metadata.updated = String(updated);
  if (settings === undefined) return metadata;
  const letters = Array.from(JSON.stringify(settings));
  for (let at = 0; at * PIECE_LENGTH < letters.length; at += 1) {
    if (at === MAX_PIECES) throw new Error('the settings of a chat are too long to be kept');
    metadata[`settings.${at}`] = letters.slice(at * PIECE_LENGTH, (at + 1) * PIECE_LENGTH).join('');
  }
  return metadata;
}

function joinPieces(metadata) {
  let text = '';
  for (let at = 0; metadata[`settings.${at}`] !== undefined; at += 1) text += metadata[`settings.${at}`];
  return text;
}
