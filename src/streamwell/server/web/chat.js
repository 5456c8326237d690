// The chat that is open: its items, the answers that are being written, and what a person does.

import { ApiError, call, newRequestKey } from './api.js';
import { LiveAnswer } from './answer.js';
import { changeChat, chats, createChat, itemsOf, loadChat } from './chats.js';
import { requestOptions, settings } from './settings.js';
import { followRun } from './stream.js';
import { ROOT, Tree } from './tree.js';
import { batch, computed, signal } from './ui.js';

//: So often is looked for what other tabs and devices have added.
const LOOK_MS = 2500;
//: Where the mark of a chat is kept from its making until its first question is on its way.
const STORED_BEGUN = 'streamwell.begun';

export const chatId = signal('');
export const items = signal([]);
/** Which branch is shown where there are several: the id of an item to that of the next one. */
export const chosen = signal(new Map());
/** What was sent and is no item yet: `{text, previous, live}`. */
export const pending = signal(null);
export const problem = signal('');
export const isLoading = signal(false);

/** Answers that are being written, by run. */
const lives = new Map();
const livesVersion = signal(0);
let leaving = new AbortController();

export const tree = computed(() => new Tree(items.value));
export const path = computed(() => {
  const whole = tree.value.path(chosen.value);
  if (!pending.value) return whole;
  const at = whole.findIndex((item) => item.id === pending.value.previous);
  return whole.slice(0, at + 1);
});

/** The answer that is being written at the end of what is shown. */
export const current = computed(() => {
  if (pending.value) return pending.value.live;
  const last = path.value.at(-1);
  const live = last && liveOf(last);
  return live && live.state.value !== 'over' ? live : null;
});

export function liveOf(item) {
  livesVersion.value; // eslint-disable-line no-unused-expressions -- read, to be told of changes
  return item.run_id ? lives.get(item.run_id) ?? null : null;
}

/** Show a chat; the empty id is a new one. */
export async function openChat(id) {
  leaving.abort();
  leaving = new AbortController();
  lives.clear();
  batch(() => {
    chatId.value = id;
    items.value = [];
    chosen.value = new Map();
    pending.value = null;
    problem.value = '';
    isLoading.value = id !== '';
    settings.value = id ? {} : newChatSettings();
  });
  if (!id) return;
  const mine = leaving;
  try {
    const [chat, found] = await Promise.all([loadChat(id), itemsOf(id)]);
    if (mine.signal.aborted) return;
    settings.value = chat.settings;
    take(found);
  } catch (error) {
    if (mine.signal.aborted) return;
    problem.value = error.status === 404 ? 'This chat is not there, or no longer.' : error.message;
    if (!(error instanceof ApiError) || error.isTransient) setTimeout(() => reopen(id, mine), 1000);
  } finally {
    if (!mine.signal.aborted) isLoading.value = false;
  }
}

function reopen(id, mine) {
  if (!mine.signal.aborted) openChat(id);
}

function newChatSettings() {
  try {
    return JSON.parse(localStorage.getItem('streamwell.settings')) ?? {};
  } catch {
    return {};
  }
}

/**
 * Ask something; after an item, or at the end of what is shown. True once the server has it;
 * `onSent` is called when it is on its way.
 */
export async function ask(text, { after, onSent } = {}) {
  const message = { role: 'user', content: text };
  const previous = after ?? path.value.at(-1)?.id ?? ROOT;
  return answer([message], previous, text, onSent);
}

/** Another answer to the same. */
export function regenerate(item) {
  return answer([], tree.value.previous(item.id), null);
}

/** The same question in other words: a branch beside the first one. */
export function resend(item, text) {
  return ask(text, { after: tree.value.previous(item.id) });
}

/** Tell what the tools gave that an answer called. */
export function giveResults(item, results) {
  const messages = results.map(({ id, content }) => ({ role: 'tool', tool_call_id: id, content }));
  return answer(messages, item.id, results.map(({ content }) => content).join('\n'));
}

export async function stop() {
  const live = current.value;
  if (live?.run) await call('POST', `v1/runs/${live.run}/cancel`).catch(() => {});
  else if (pending.value) live.abort.abort(new DOMException('stopped', 'AbortError'));
}

export function choose(item) {
  const next = new Map(chosen.value);
  next.set(tree.value.previous(item.id), item.id);
  chosen.value = next;
}

async function answer(messages, previous, text, onSent = () => {}) {
  if (current.value) return false;
  const live = new LiveAnswer({ isWatched: true });
  live.abort = new AbortController();
  batch(() => {
    pending.value = { text, previous, live };
    problem.value = '';
  });
  const mine = leaving;
  try {
    const id = await chatFor(text);
    const request = { path: 'v1/chat/completions', key: newRequestKey(),
      body: { ...requestOptions(settings.value), conversation: id, previous_item_id: previous } };
    request.body.messages = [...request.body.messages, ...messages];
    const starting = started(request, live, mine);
    sessionStorage.removeItem(STORED_BEGUN);
    onSent();
    await starting;
    return true;
  } catch (error) {
    if (!mine.signal.aborted) {
      pending.value = null;
      if (error.name !== 'AbortError') problem.value = error.message;
    }
    return false;
  }
}

/** The chat that is open, or a new one with the first words as its title. */
async function chatFor(text) {
  if (chatId.value) {
    changeChat(chatId.value, { updated: Date.now() }).catch(() => {});
    return chatId.value;
  }
  const mark = newRequestKey();
  sessionStorage.setItem(STORED_BEGUN, mark);
  const chat = await createChat(text ?? '', settings.value, mark);
  chatId.value = chat.id;
  return chat.id;
}

/** The chat that was made for a question which was not sent any more: the page was loaded again. */
export function takeBegun() {
  const mark = sessionStorage.getItem(STORED_BEGUN);
  sessionStorage.removeItem(STORED_BEGUN);
  return (mark && chats.value.find((chat) => chat.mark === mark)) || null;
}

/** Follow a request's run; resolves when the server has the run, and goes on to its end. */
function started(request, live, mine) {
  return new Promise((resolve, reject) => {
    const signal = AbortSignal.any([mine.signal, live.abort.signal]);
    const take1 = (data, id) => {
      if (!live.run) {
        live.run = id.slice(0, id.indexOf(':'));
        lives.set(live.run, live);
        live.settled = settle(live, mine).then(resolve, reject);
      }
      return live.take(data);
    };
    followRun({ request, take: take1, signal, onState: (...now) => live.setState(...now) })
      .then(() => live.settled).then(() => finish(live, mine)).catch(reject);
  });
}

/** What was pending is on the server: its items are shown instead. */
async function settle(live, mine) {
  for (;;) {
    await look();
    if (mine.signal.aborted) return;
    const found = items.value.find((item) => item.run_id === live.run);
    if (found) {
      batch(() => {
        if (pending.value?.live === live) pending.value = null;
        livesVersion.value += 1;
        for (const item of [found, tree.value.get(tree.value.previous(found.id))]) if (item) choose(item);
      });
      return;
    }
    await new Promise((resolve) => { setTimeout(resolve, 300); });
  }
}

/** The item as the server keeps it takes the place of what was seen of it. */
async function finish(live, mine) {
  const place = items.value.findIndex((item) => item.run_id === live.run);
  if (place < 0 || mine.signal.aborted) return;
  await refresh(items.value[place].id, mine, { speed: live.speed });
}

/** Take an item again as the server has it; returns it, or `null` if that cannot be had. */
async function refresh(id, mine, more = {}) {
  for (let failures = 0; !mine.signal.aborted; failures += 1) {
    try {
      const item = await call('GET', `v1/conversations/${chatId.value}/items/${id}`);
      if (!mine.signal.aborted) {
        items.value = items.value.map((old) => (old.id === id ? { ...old, ...more, ...item } : old));
      }
      return item;
    } catch (error) {
      if (!error.isTransient) return null;
      await new Promise((resolve) => { setTimeout(resolve, Math.min(5000, 250 * 2 ** failures)); });
    }
  }
  return null;
}

function take(found) {
  const known = new Set(items.value.map((item) => item.id));
  const fresh = found.filter((item) => !known.has(item.id));
  if (fresh.length) items.value = [...items.value, ...fresh];
  for (const item of fresh) if (item.status === 'in_progress' && !lives.has(item.run_id)) watch(item);
}

/** Follow an answer that this page did not ask for, or asked for before it was loaded again. */
function watch(item) {
  if (!item.run_id.startsWith('chatcmpl-')) return poll(item); // other routes stream other events
  const live = new LiveAnswer({ isWatched: false });
  live.run = item.run_id;
  lives.set(live.run, live);
  livesVersion.value += 1;
  const mine = leaving;
  followRun({ run: live.run, take: (data) => live.take(data), signal: mine.signal,
    onState: (...now) => live.setState(...now) })
    .then(() => finish(live, mine))
    .catch((error) => { if (!mine.signal.aborted) problem.value = error.message; });
}

/** Look at an item until it is whole. */
async function poll({ id }) {
  const mine = leaving;
  for (;;) {
    await new Promise((resolve) => { setTimeout(resolve, 1000); });
    const item = await refresh(id, mine);
    if (item?.status !== 'in_progress') return;
  }
}

let looking = null;

/** Take what has been added to the chat since, here or elsewhere. */
export function look() {
  looking ??= lookOnce().finally(() => { looking = null; });
  return looking;
}

async function lookOnce() {
  const id = chatId.value;
  if (!id) return;
  const mine = leaving;
  try {
    const found = await itemsOf(id, items.value.at(-1)?.id);
    if (!mine.signal.aborted) take(found);
  } catch (error) {
    if (mine.signal.aborted) return;
    if (error.status === 400) openChat(id); // what was last is not there any more
    else if (error.status === 404) problem.value = 'This chat is not there, or no longer.';
  }
}

setInterval(() => {
  if (document.visibilityState === 'visible' && !isLoading.value) look();
}, LOOK_MS);
document.addEventListener('visibilitychange', () => {
  if (document.visibilityState === 'visible') look();
});
