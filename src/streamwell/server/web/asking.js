// What a person asks for: kept until the server has it, whatever else is looked at meanwhile.

import { LiveAnswer } from './answer.js';
import { call, newRequestKey } from './api.js';
import { chatId, current, endBadly, finish, isLoading, path, pending, problem, settle, show, tree } from './chat.js';
import { changeChat, chats, createChat } from './chats.js';
import { giveBack, moveDraft, store } from './drafts.js';
import { requestOptions, settings } from './settings.js';
import { followRun, pause, runOf } from './stream.js';
import { ROOT } from './tree.js';
import { batch, effect } from './ui.js';

/** Of each chat what the server is not known to have: `{text, previous, kept, live, mark, key, body}`. */
const unheard = new Map();

const storedAt = (chat) => `streamwell.asked.${chat}`;

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

function giveUpIfRefused(live) {
  const isStopped = live.isStopped.value && !live.run;
  if (isStopped && live.state.value === 'waiting') live.abort.abort(new DOMException('stopped', 'AbortError'));
}

async function answer(messages, previous, text, kept = null) {
  if (current.value || isLoading.value) return false;
  const body = { ...requestOptions(settings.value), previous_item_id: previous };
  body.messages = [...body.messages, ...messages];
  const asked = { text, previous, kept, body, key: newRequestKey(), mark: newRequestKey() };
  return send(chatId.value, asked);
}

/** Send what was asked in a chat; the empty one is a new chat. */
async function send(chat, asked) {
  asked.live = new LiveAnswer({ isWatched: true });
  batch(() => {
    pending.value = asked;
    problem.value = '';
  });
  keep(chat, asked);
  let place = chat;
  try {
    place = await chatFor(chat, asked);
    if (asked.live.isStopped.value) throw new DOMException('stopped', 'AbortError');
    await started(place, asked);
    return true;
  } catch (error) {
    forget(place);
    if (pending.value === asked) {
      pending.value = null;
      if (error.name !== 'AbortError') problem.value = error.message;
    }
    if (asked.kept) giveBack(place, asked.kept);
    return false;
  }
}

function keep(chat, asked) {
  const { text, previous, kept, body, key, mark } = asked;
  unheard.set(chat, asked);
  store(storedAt(chat), JSON.stringify({ text, previous, kept, body, key, mark }));
}

function forget(chat) {
  unheard.delete(chat);
  store(storedAt(chat), '');
}

/** The chat that was asked in; a new one gets the first words as its title. */
async function chatFor(chat, asked) {
  if (chat) {
    changeChat(chat, { updated: Date.now() }).catch(() => {});
    return chat;
  }
  const { id } = await createChat(asked.text ?? '', settings.value, asked.mark);
  forget('');
  keep(id, asked);
  if (pending.value === asked) { // else another chat is open by now
    moveDraft('', id);
    chatId.value = id;
  }
  return id;
}

/** Follow a request's run; resolves when the server has the run, and goes on to its end. */
function started(chat, asked) {
  const { live, key, body } = asked;
  const request = { path: 'v1/chat/completions', key, body: { ...body, conversation: chat } };
  const onState = (...now) => {
    live.setState(...now);
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
  if (unheard.has(id)) pending.value = unheard.get(id);
  else if (stored(id)) send(id, stored(id));
}

function stored(chat) {
  return JSON.parse(sessionStorage.getItem(storedAt(chat)));
}

effect(() => {
  const id = chatId.value;
  if (id && !isLoading.value) queueMicrotask(() => takeUp(id));
});

/** The chat that was being made for a question when the page was loaded again; the question goes with it. */
export function takeBegun() {
  const asked = unheard.has('') ? null : stored('');
  if (!asked) return null;
  forget('');
  const chat = chats.value.find(({ mark }) => mark === asked.mark);
  if (chat) store(storedAt(chat.id), JSON.stringify(asked));
  else if (asked.kept) giveBack('', asked.kept);
  return chat ?? null;
}
