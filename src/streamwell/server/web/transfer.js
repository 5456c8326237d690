// Chats as a file, out of the server and into it.

import { addItems, createChat, itemsOf, textOf } from './chats.js';
import { ROOT, Tree } from './tree.js';

const FORMAT = 'streamwell.chats/1';
//: The server takes so many items at a time.
const MAX_NEW_ITEMS = 20;

/** All of these chats, with all branches, as the text of a file. */
export async function exported(chats) {
  const whole = [];
  for (const { id, title, settings, updated } of chats) {
    const items = await itemsOf(id);
    whole.push({ title, settings, updated, items: items.map(exportedItem) });
  }
  return JSON.stringify({ format: FORMAT, chats: whole }, null, 1);
}

function exportedItem(item) {
  const { id, role, previous_item_id: previous, reasoning_content: reasoning, tool_calls: calls } = item;
  return { id, previous, role, text: textOf(item), reasoning, calls };
}

/** Add the chats of a file; returns how many. Throws `Error` if it is none of ours. */
export async function imported(text) {
  let file;
  try {
    file = JSON.parse(text);
  } catch {
    throw new Error('the file is no JSON');
  }
  if (file?.format !== FORMAT || !Array.isArray(file.chats)) throw new Error(`the file is no ${FORMAT}`);
  file.chats.forEach(check); // all of them before the first one is made
  let number = 0;
  try {
    for (const chat of file.chats.toReversed()) { // the newest comes last, as it did
      await importChat(chat);
      number += 1;
    }
  } catch (error) {
    throw new Error(`The last ${number} of ${file.chats.length} chats were imported; then: ${error.message}`);
  }
  return number;
}

/** Throws `Error` if a chat of a file is none. */
function check(chat, at) {
  const isItem = (item) => typeof item?.id === 'string' && typeof item.text === 'string'
    && (item.previous == null || typeof item.previous === 'string');
  const isChat = Array.isArray(chat?.items) && chat.items.every(isItem);
  const { settings = {} } = chat ?? {};
  if (!isChat || settings === null || typeof settings !== 'object' || !isJson(settings.tools || '[]')) {
    throw new Error(`the file is damaged: chat ${at + 1} cannot be read`);
  }
}

function isJson(text) {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}

async function importChat({ title, settings, updated, items }) {
  const when = Number.isFinite(updated) ? { updated } : {};
  const chat = await createChat(String(title ?? ''), settings ?? {}, when);
  const tree = new Tree(items.map((item) => ({ ...item, previous_item_id: item.previous })));
  const newIds = new Map([[ROOT, ROOT]]);
  for (const row of rowsOf(tree)) {
    const sent = row.map(({ role, text }) => ({ role: role === 'assistant' ? role : 'user', content: String(text) }));
    const { data } = await addItems(chat.id, sent, newIds.get(tree.previous(row[0].id)));
    data.forEach((item, at) => newIds.set(row[at].id, item.id));
  }
}

/** Items that follow each other, as many as can be added at once. */
function rowsOf(tree) {
  const rows = [];
  for (const item of tree.items) {
    const row = rows.at(-1);
    if (row && row.length < MAX_NEW_ITEMS && tree.previous(item.id) === row.at(-1).id) row.push(item);
    else rows.push([item]);
  }
  return rows;
}

/** Let the browser save a text. */
export function save(text, name) {
  const link = document.createElement('a');
  link.href = URL.createObjectURL(new Blob([text], { type: 'application/json' }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
}
