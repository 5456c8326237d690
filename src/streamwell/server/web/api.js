// Requests to this server: the key that they carry, and the errors that they end with.

import { forGood, inTab } from './storage.js';
import { signal } from './ui.js';

const STORED_KEY = 'streamwell.key';
//: Browsers deliver what a page has sent that goes away, up to 64 KiB of it all together.
const MAX_KEPT_ALIVE = 8_000;

// The key is sent as a header and never stands in a URL.
let key = inTab.get(STORED_KEY) ?? forGood.get(STORED_KEY) ?? '';
let answerKey = null;
let asking = null;

/** Whether the server wants a key that it has not got; `wrong` after one that it does not know. */
export const keyAsked = signal(null);

export class ApiError extends Error {
  constructor(status, { message, code, param } = {}, retryAfterS = 0) {
    super(message ?? `the server answered ${status}`);
    Object.assign(this, { status, code, param, retryAfterS });
  }

  /** The server, or a proxy before it, cannot do it at the moment, or the network lost the request. */
  get isTransient() {
    const { status } = this;
    return [0, 408, 429].includes(status) || (status >= 502 && status <= 504) || (status >= 520 && status <= 524);
  }
}

/** The response, whatever its kind; waits for a key if the server wants one. Throws `ApiError`. */
export async function send(method, path, { body, headers = {}, signal, outlivesPage = false } = {}) {
  for (;;) {
    const sent = { ...headers };
    if (body !== undefined) sent['content-type'] = 'application/json';
    const used = key;
    if (used && !isSendable(used)) {
      await askForKey();
      continue;
    }
    if (used) sent.authorization = `Bearer ${used}`;
    const json = body === undefined ? undefined : JSON.stringify(body);
    const keepalive = outlivesPage && json.length < MAX_KEPT_ALIVE;
    let response;
    try {
      response = await fetch(path, { method, headers: sent, signal, body: json, keepalive, cache: 'no-store' });
    } catch (error) {
      if (error.name === 'AbortError') throw error;
      throw new ApiError(0, { message: 'the server cannot be reached' });
    }
    if (response.ok) return response;
    if (response.status !== 401) throw await errorOf(response);
    if (used === key) await askForKey();
  }
}

/** The JSON of an answer. Throws `ApiError`. */
export async function call(method, path, body, options = {}) {
  const response = await send(method, path, { body, ...options });
  return response.json();
}

/** What the person typed when asked for a key. */
export function setKey(value, { remember }) {
  key = value.trim();
  inTab.put(STORED_KEY, key);
  forGood.put(STORED_KEY, remember ? key : '');
  keyAsked.value = null;
  answerKey?.();
  answerKey = asking = null;
}

/** Headers have no other characters: such a key is none of any server, and no request would leave. */
function isSendable(text) {
  return /^[\x21-\x7e]+$/.test(text);
}

function askForKey() {
  keyAsked.value = key ? 'wrong' : 'missing';
  asking ??= new Promise((resolve) => { answerKey = resolve; });
  return asking;
}

async function errorOf(response) {
  const retryAfterS = Number(response.headers.get('retry-after')) || 0;
  const body = await response.json().catch(() => ({}));
  return new ApiError(response.status, body.error, retryAfterS);
}

/** All entries of a list, page by page. */
export async function listAll(path, query = '') {
  const entries = [];
  for (let after = ''; ;) {
    const page = await call('GET', `${path}?limit=100${query}${after && `&after=${after}`}`);
    entries.push(...page.data);
    if (!page.has_more) return entries;
    after = page.last_id;
  }
}

/** A name for a request, so that sending it again does not do it again. */
export function newRequestKey() {
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return `page-${Array.from(bytes, (byte) => byte.toString(16).padStart(2, '0')).join('')}`;
}
