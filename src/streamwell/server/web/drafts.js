// What is written and not sent, by chat: it outlives a reload.

import { chatId } from './chat.js';
import { withFiles } from './files.js';
import { signal } from './ui.js';

/** What stands in the composer of the chat that is open. */
export const draft = signal('');
export const files = signal([]);

const storedAt = (chat) => `streamwell.draft.${chat}`;

/** Keep a text for this tab; one that there is no room for is not kept. */
export function store(place, text) {
  try {
    if (text) sessionStorage.setItem(place, text);
    else sessionStorage.removeItem(place);
  } catch {
    sessionStorage.removeItem(place); // what was there is older
  }
}

export function setDraft(text) {
  draft.value = text;
  store(storedAt(chatId.value), text);
}

/** Show what was written in the chat that is open now. */
export function showDraft() {
  draft.value = storedDraft(chatId.value);
}

const storedDraft = (chat) => sessionStorage.getItem(storedAt(chat)) ?? '';

/** What was being written stands in another chat from now on. */
export function moveDraft(from, to) {
  const text = storedDraft(from);
  store(storedAt(from), '');
  if (text) store(storedAt(to), text);
}

/** What could not be sent is to be written again, before what has been written since. */
export function giveBack(chat, { text, files: added }) {
  const isOpen = chat === chatId.value;
  const parts = [isOpen ? text : withFiles(text, added), isOpen ? draft.value : storedDraft(chat)];
  const joined = parts.filter(Boolean).join('\n\n');
  if (!isOpen) return store(storedAt(chat), joined);
  setDraft(joined);
  files.value = [...added, ...files.value];
}
