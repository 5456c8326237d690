// The chat that is open: its items, and the answers that are being written.

import { ApiError, call } from './api.js';
import { LiveAnswer } from './answer.js';
import { itemsOf, loadChat } from './chats.js';
import { models } from './models.js';
import { areKnown, settings } from './settings.js';
import { forGood } from './storage.js';
import { followRun, pause } from './stream.js';
import { Tree } from './tree.js';
import { batch, computed, effect, signal } from './ui.js';

//: So often is looked for what other tabs and devices have added.
const LOOK_MS = 2500;

export const chatId = signal('');
export const items = signal([]);
/** Which branch is shown where there are several: the id of an item to that of the next one. */
export const chosen = signal(new Map());
/** What was asked and is no item yet: `{text, previous, live}`. */
export const pending = signal(null);
export const problem = signal('');
export const isLoading = signal(false);

/** Answers that are being written, by run. */
const lives = new Map();
const livesVersion = signal(0);
let leaving = new AbortController();

export const tree = computed(() => new Tree(items.value));
export const path = computed(() => (
  pending.value ? tree.value.wayTo(pending.value.previous) : tree.value.path(chosen.value)));

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
    areKnown.value = id === '';
  });
  if (!id) return;
  const mine = leaving;
  try {
    const [chat, found] = await Promise.all([loadChat(id), itemsOf(id)]);
    if (mine.signal.aborted) return;
    settings.value = chat.settings;
    areKnown.value = true;
    take(found);
  } catch (error) {
    if (mine.signal.aborted) return;
    problem.value = error.status === 404 ? 'This chat is not there, or no longer.' : error.message;
    if (!(error instanceof ApiError) || error.isTransient) {
      setTimeout(() => reopen(id, mine), 1000); // until then nobody knows what a question would follow
      return;
    }
  }
  isLoading.value = false;
}

function reopen(id, mine) {
  if (!mine.signal.aborted) openChat(id);
}

function newChatSettings() {
  try {
    return JSON.parse(forGood.get('streamwell.settings')) ?? {};
  } catch {
    return {};
  }
}

export function choose(...way) {
  const next = new Map(chosen.value);
  for (const item of way) next.set(tree.value.previous(item.id), item.id);
  chosen.value = next;
}

/** Show an answer that is being written, until its chat is left; returns the signal of that. */
export function show(live) {
  lives.set(live.run, live);
  livesVersion.value += 1;
  const left = leaving.signal;
  left.addEventListener('abort', () => live.abort.abort(), { once: true });
  return left;
}

/** What was pending is on the server: its items are shown instead. */
export async function settle(live, left) {
  for (;;) {
    await look();
    if (left.aborted) return;
    const found = items.value.find((item) => item.run_id === live.run);
    if (found) {
      batch(() => {
        if (pending.value?.live === live) pending.value = null;
        livesVersion.value += 1;
        choose(...tree.value.wayTo(found.id));
      });
      return;
    }
    await pause(300);
  }
}

/** The item as the server keeps it takes the place of what was seen of it. */
export async function finish(live, left) {
  const place = items.value.findIndex((item) => item.run_id === live.run);
  if (place < 0 || left.aborted) return;
  await refresh(items.value[place].id, left, { speed: live.speed });
}

/** An answer whose end cannot be had from here. */
export async function endBadly(live, error, left) {
  if (left.aborted) return;
  batch(() => {
    live.fail(error.message);
    problem.value = error.message;
  });
  await finish(live, left);
}

/** Take an item again as the server has it; returns it, or `null` if that cannot be had. */
async function refresh(id, left, more = {}) {
  for (let failures = 0; !left.aborted; failures += 1) {
    try {
      const item = await call('GET', `v1/conversations/${chatId.value}/items/${id}`);
      if (!left.aborted) {
        items.value = items.value.map((old) => (old.id === id ? renewed(old, { ...more, ...item }) : old));
      }
      return item;
    } catch (error) {
      if (!error.isTransient) return null;
      await pause(Math.min(5000, 250 * 2 ** failures));
    }
  }
  return null;
}

/** The same object where nothing is new: what shows it is left alone. */
function renewed(old, news) {
  const item = { ...old, ...news };
  return JSON.stringify(item) === JSON.stringify(old) ? old : item;
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
  const left = show(live);
  followRun({ run: live.run, take: (data) => live.take(data), signal: live.abort.signal,
    onState: (...now) => live.setState(...now) })
    .then(() => finish(live, left))
    .catch((error) => endBadly(live, error, left));
}

/** Look at an item until it is whole. */
async function poll({ id }) {
  const left = leaving.signal;
  for (;;) {
    await pause(1000);
    const item = await refresh(id, left);
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
  if (!id || isLoading.value) return;
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

// what was chosen for new chats may be served no more
effect(() => {
  const { model, ...others } = settings.value;
  const isGone = model && models.value.length > 0 && models.value.every(({ id }) => id !== model);
  if (isGone && !chatId.value) settings.value = others;
});

setInterval(() => {
  if (document.visibilityState === 'visible') look();
}, LOOK_MS);
document.addEventListener('visibilitychange', () => {
  if (document.visibilityState === 'visible') look();
});
