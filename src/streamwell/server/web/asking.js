// What a person asks for: kept until the server has it, whatever else is looked at meanwhile.

import { LiveAnswer } from './answer.js';
import { call, newRequestKey } from './api.js';
import { chatId, current, endBadly, finish, isLoading, path, pending, problem, settle, show, tree } from './chat.js';
import { changeChat, chats, createChat, refreshChats } from './chats.js';
import { giveBack, moveDraft } from './drafts.js';
import { requestOptions, settings } from './settings.js';
import { inTab } from './storage.js';
import { followRun, pause, runOf } from './stream.js';
import { ROOT } from './tree.js';
import { batch, effect } from './ui.js';

/**
 * Of each chat what the server is not known to have: `{text, previous, kept, live, mark, key, body}`;
 * of one that is not made yet by the mark that it will have.
 */
const unheard = new Map();

const STORED = 'streamwell.asked.';
const MARK = 'new-';

/** Ask something; after an item, or at the end of what is shown. True once the server has it. */
export function ask(text, { after, kept } = {}) {
  const message = { role: 'user', content: text };
  return answer([message], after ?? path.value.at(-1)?.id ?? ROOT, text, kept);
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

/** Stop the answer that is written; if the server may have the question already, once that is known. */
export function stop() {
  const live = current.value;
  if (!live) return;
  live.isStopped.value = true;
  if (pending.value?.live === live) keep(chatId.value || pending.value.mark, pending.value); // a reload knows it
  if (live.run) cancel(live);
  else giveUpIfRefused(live);
}

async function cancel(live) {
  for (let failures = 0; live.state.value !== 'over'; failures += 1) {
    try {
      await call('POST', `v1/runs/${live.run}/cancel`);
      return;
    } catch (error) {
      if (!error.isTransient) return;
      await pause(Math.min(5000, 250 * 2 ** failures));
    }
  }
}

/** What the server has refused each time it has not got; of all else nobody knows. */
function giveUpIfRefused(live) {
  const isRefused = live.state.value === 'waiting' && !live.mayBeThere;
  if (live.isStopped.value && !live.run && isRefused) live.abort.abort(new DOMException('stopped', 'AbortError'));
}

function isRefusal({ status, code } = {}) {
  return (status === 429 || status === 503) && code !== 'run_elsewhere' && code !== 'store_failed';
}

async function answer(messages, previous, text, kept = null) {
  if (current.value || isLoading.value) return false;
  const body = { ...requestOptions(settings.value), previous_item_id: previous };
  body.messages = [...body.messages, ...messages];
  const asked = { text, previous, kept, body, key: newRequestKey(), mark: MARK + newRequestKey() };
  return send(chatId.value, asked);
}

/** Send what was asked in a chat; the empty one is a new chat. */
async function send(chat, asked, { mayBeThere = false } = {}) {
  asked.live = new LiveAnswer({ isWatched: true });
  asked.live.mayBeThere = mayBeThere;
  asked.live.isStopped.value = Boolean(asked.isStopped);
  batch(() => {
    pending.value = asked;
    problem.value = '';
  });
  keep(chat || asked.mark, asked);
  let place = chat;
  try {
    place = await chatFor(chat, asked);
    if (asked.live.isStopped.value && !mayBeThere) throw new DOMException('stopped', 'AbortError');
    await started(place, asked);
    return true;
  } catch (error) {
    forget(place || asked.mark);
    if (pending.value === asked) {
      pending.value = null;
      if (error.name !== 'AbortError') problem.value = error.message;
    }
    if (asked.kept) giveBack(place, asked.kept);
    return false;
  }
}

function keep(chat, asked) {
  const { text, previous, kept, body, key, mark, live } = asked;
  const isStopped = live.isStopped.value;
  unheard.set(chat, asked);
  inTab.put(STORED + chat, JSON.stringify({ text, previous, kept, body, key, mark, isStopped }));
}

function forget(chat) {
  unheard.delete(chat);
  inTab.put(STORED + chat, '');
}

/** The chat that was asked in; a new one gets the first words as its title. */
async function chatFor(chat, asked) {
  if (chat) {
    changeChat(chat, { updated: Date.now() }).catch(() => {});
    return chat;
  }
  const { id } = await newChat(asked);
  forget(asked.mark);
  keep(id, asked);
  if (pending.value === asked) { // else another chat is open by now
    moveDraft('', id);
    chatId.value = id;
  }
  return id;
}

/** The chat that a question begins; waits for a server that cannot make it now. */
async function newChat({ text, mark, live }) {
  const chosen = settings.value; // another chat may be open by the next try
  for (let failures = 0; ; failures += 1) {
    try {
      return await createChat(text ?? '', chosen, { mark });
    } catch (error) {
      if (!error.isTransient) throw error;
      live.setState('waiting', error);
      await pause(Math.min(5000, 250 * 2 ** failures), live.abort.signal);
      live.abort.signal.throwIfAborted();
      await refreshChats().catch(() => {});
      const made = chats.value?.find((chat) => chat.mark === mark); // only the answer was lost
      if (made) return made;
    }
  }
}

/** Follow a request's run; resolves when the server has the run, and goes on to its end. */
function started(chat, asked) {
  const { live, key, body } = asked;
  const request = { path: 'v1/chat/completions', key, body: { ...body, conversation: chat } };
  const onState = (state, reason) => {
    if (state === 'waiting' && !isRefusal(reason)) live.mayBeThere = true;
    live.setState(state, reason);
    giveUpIfRefused(live);
  };
  return new Promise((resolve, reject) => {
    let left = null;
    const take = (data, id) => {
      if (!live.run) {
        live.run = runOf(id);
        forget(chat);
        if (live.isStopped.value) cancel(live);
        if (chatId.value !== chat) { // it is found there again
          live.abort.abort();
          resolve();
          return true;
        }
        left = show(live);
        live.settled = settle(live, left).then(resolve, reject);
      }
      return live.take(data);
    };
    followRun({ request, take, signal: live.abort.signal, onState })
      .then(() => live.settled)
      .then(() => left && finish(live, left))
      .catch((error) => (live.run ? endBadly(live, error, left) : reject(error)));
  });
}

/** A question that the page was loaded again with, or left for another chat, is asked when its chat is open. */
function takeUp(id) {
  if (pending.value || chatId.value !== id || isLoading.value) return;
  const asked = unheard.get(id) ?? stored(id);
  if (unheard.has(id)) pending.value = asked;
  else if (asked) send(id, asked, { mayBeThere: true });
}

/** What was asked before the page was loaded again; what is refused is a draft then, whatever it was. */
function stored(chat) {
  const asked = JSON.parse(inTab.get(STORED + chat));
  if (asked?.text) asked.kept ??= { text: asked.text, files: [] };
  return asked;
}

effect(() => {
  const id = chatId.value;
  if (id && !isLoading.value) queueMicrotask(() => takeUp(id));
});

/**
 * Questions whose chats were being made when the page was loaded again go to those chats, or are given
 * back; returns one of the chats. To be called when all chats are known.
 */
export function takeBegun() {
  let begun = null;
  const marks = inTab.names().filter((name) => name.startsWith(STORED + MARK));
  for (const mark of marks.map((name) => name.slice(STORED.length)).filter((name) => !unheard.has(name))) {
    const asked = stored(mark);
    const chat = chats.value.find((other) => other.mark === mark);
    forget(mark);
    if (chat) inTab.put(STORED + chat.id, JSON.stringify(asked));
    else if (asked.kept) giveBack('', asked.kept);
    begun ??= chat ?? null;
  }
  return begun;
}
