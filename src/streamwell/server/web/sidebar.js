// The list of chats.

import { chatId } from './chat.js';
import { changeChat, chats, deleteChat } from './chats.js';
import { confirmed } from './dialogs.js';
import { html, isComposing, signal, useRef, useState } from './ui.js';

const sought = signal('');
export const isOpen = signal(matchMedia('(min-width: 800px)').matches);
const trouble = signal('');

/** Put the cursor where chats are searched. */
export function search() {
  isOpen.value = true;
  requestAnimationFrame(() => document.getElementById('search').focus());
}

export const addressOf = (id) => (id ? `#/chat/${id}` : '#/');

export function closeOnPhones() {
  if (!matchMedia('(min-width: 800px)').matches) isOpen.value = false;
}

export function Sidebar() {
  const words = sought.value.toLowerCase().split(/\s+/).filter(Boolean);
  const found = (chats.value ?? []).filter(({ title }) => (
    words.every((word) => title.toLowerCase().includes(word))
  ));
  return html`<nav class="sidebar" id="sidebar" aria-label="Chats" hidden=${!isOpen.value}>
    <a class="button" href=${addressOf('')} title="New chat (Ctrl+Shift+O)" onClick=${closeOnPhones}>New chat</a>
    <input id="search" type="search" placeholder="Search chats" aria-label="Search chats" title="Ctrl+K"
      value=${sought.value} onInput=${(event) => { sought.value = event.currentTarget.value; }} />
    ${trouble.value && html`<p role="alert" class="refusal">${trouble.value}</p>`}
    ${chats.value && !found.length && html`<p class="none">${words.length ? 'No chat is called so.' : 'No chats yet.'}</p>`}
    <ul class="chats">${found.map((chat) => html`<${Entry} key=${chat.id} chat=${chat} />`)}</ul>
  </nav>`;
}

function Entry({ chat }) {
  const [isRenamed, setRenamed] = useState(false);
  if (isRenamed) return html`<li><${Rename} chat=${chat} onDone=${() => setRenamed(false)} /></li>`;
  const isCurrent = chat.id === chatId.value;
  return html`<li class=${isCurrent ? 'current' : ''}>
    <a href=${addressOf(chat.id)} aria-current=${isCurrent ? 'page' : null} onClick=${closeOnPhones}>${chat.title}</a>
    <button type="button" class="quiet" aria-label=${`Rename ${chat.title}`} title="Rename"
      onClick=${() => setRenamed(true)}>✎</button>
    <button type="button" class="quiet" aria-label=${`Delete ${chat.title}`} title="Delete"
      onClick=${() => remove(chat)}>×</button>
  </li>`;
}

function Rename({ chat, onDone }) {
  const input = useRef(null);
  const save = async () => {
    if (!input.current) return; // it has gone already, and loses the focus by that
    const title = input.current.value.trim();
    onDone();
    if (title && title !== chat.title) await attempt(() => changeChat(chat.id, { title }));
  };
  const keys = (event) => {
    if (isComposing(event)) return;
    if (event.key === 'Enter') save();
    if (event.key === 'Escape') { event.stopPropagation(); onDone(); }
  };
  return html`<input ref=${(node) => { if (node && !input.current) node.select(); input.current = node; }}
    aria-label="Title" defaultValue=${chat.title} maxlength="200" onKeyDown=${keys} onBlur=${save} />`;
}

async function remove(chat) {
  if (!await confirmed(`Delete “${chat.title}”?`, 'Its messages and answers are deleted from the server.', 'Delete')) return;
  await attempt(() => deleteChat(chat.id));
  if (chat.id === chatId.value) location.hash = addressOf('');
}

async function attempt(action) {
  trouble.value = '';
  try {
    await action();
  } catch (error) {
    trouble.value = error.message;
  }
}
