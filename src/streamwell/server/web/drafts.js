// What is written and not sent, by chat: it outlives a reload.

import { chatId } from './chat.js';
import { withFiles } from './files.js';
import { inTab } from './storage.js';
import { signal } from './ui.js';

/** What stands in the composer of the chat that is open. */
export const draft = signal('');
export const files = signal([]);
/** The files of each chat; a reload loses them. */
const filesOf = new Map();

const storedAt = (chat) => `streamwell.draft.${chat}`;

export function setDraft(text) {
  draft.value = text;
  inTab.put(storedAt(chatId.value), text);
}

export function setFiles(chat, list) {
  filesOf.set(chat, list);
  if (chat === chatId.value) files.value = list;
}

export function addFile(chat, file) {
  setFiles(chat, [...(filesOf.get(chat) ?? []), file]);
}

/** Show what was written in the chat that is open now. */
export function showDraft() {
  draft.value = storedDraft(chatId.value);
  files.value = filesOf.get(chatId.value) ?? [];
}

const storedDraft = (chat) => inTab.get(storedAt(chat)) ?? '';

/** What was being written stands in another chat from now on. */
export function moveDraft(from, to) {
  const text = storedDraft(from);
  inTab.put(storedAt(from), '');
  if (text) inTab.put(storedAt(to), text);
  setFiles(to, filesOf.get(from) ?? []);
  filesOf.delete(from);
}

/** What could not be sent is to be written again, before what has been written since. */
export function giveBack(chat, { text, files: added }) {
  const isOpen = chat === chatId.value;
  const parts = [isOpen ? text : withFiles(text, added), isOpen ? draft.value : storedDraft(chat)];
  const joined = parts.filter(Boolean).join('\n\n');
  if (!isOpen) return inTab.put(storedAt(chat), joined);
  setDraft(joined);
  setFiles(chat, [...added, ...files.value]);
}
