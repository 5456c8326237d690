// A run, followed to its end through whatever happens to the network and the server.

import { ApiError, send } from './api.js';
import { eventsOf } from './sse.js';

const FIRST_PAUSE_MS = 250;
const LONGEST_PAUSE_MS = 5000;
//: Nothing else on the page waits longer than this for a burst of events.
const SLICE_MS = 8;

/**
 * Give every event of a run to `take(data, id)`, each exactly once, until the last one.
 *
 * `request` starts the run, `{path, body, key}`; the key makes sending it again harmless. Without
 * one, `run` is the id of a run that is there. `onState` hears `connecting`, `open` and `waiting`,
 * the last one with the reason. Throws `ApiError` for what no patience mends.
 */
export async function followRun({ request, run, take, onState = () => {}, signal }) {
  const place = { run, id: null, isOver: false };
  let failures = 0;
  while (!place.isOver) {
    onState('connecting');
    let reason = null;
    try {
      const response = await open(request, place, signal);
      if (response.status === 204) return;
      onState('open');
      const before = place.id;
      reason = await read(response, place, take);
      if (place.id !== before) failures = 0;
    } catch (error) {
      if (signal?.aborted || !isPassing(error, place)) throw error;
      reason = error;
    }
    if (place.isOver) return;
    failures += 1;
    onState('waiting', reason);
    await pause(pauseMs(failures, reason), signal);
  }
}

function isPassing(error, place) {
  // a connection that is cut in the middle ends with a TypeError of the reader
  if (!(error instanceof ApiError)) return error instanceof TypeError;
  return error.isTransient || (Boolean(place.run) && error.status >= 500);
}

/** The run that an event is of, by the event's id. */
export function runOf(id) {
  return id.slice(0, id.indexOf(':'));
}

function open(request, place, signal) {
  if (!place.run) {
    const headers = { 'idempotency-key': request.key };
    return send('POST', request.path, { body: request.body, headers, signal, outlivesPage: true });
  }
  const path = `v1/chat/completions/${place.run}?stream=true`;
  return send('GET', path, { headers: place.id ? { 'last-event-id': place.id } : {}, signal });
}

async function read(response, place, take) {
  let since = performance.now();
  for await (const events of eventsOf(response)) {
    for (const { id, data } of events) {
      // what has no id is not of the run, but of this connection: an end that is none
      if (id === null) return new Error(messageOf(data));
      place.id = id;
      place.run ??= runOf(id);
      place.isOver = take(data, id);
      if (place.isOver) return null;
      if (performance.now() - since > SLICE_MS) {
        await turn();
        since = performance.now();
      }
    }
  }
  return new Error('the connection was lost');
}

function messageOf(data) {
  try {
    return JSON.parse(data).error.message;
  } catch {
    return 'the connection was lost';
  }
}

function pauseMs(failures, reason) {
  if (reason?.retryAfterS) return 1000 * Math.min(reason.retryAfterS, 10);
  return Math.min(LONGEST_PAUSE_MS, FIRST_PAUSE_MS * 2 ** (failures - 1)) * (0.75 + Math.random() / 2);
}

/** Let everything else have a turn. */
export function turn() {
  return globalThis.scheduler?.yield?.() ?? new Promise((resolve) => { setTimeout(resolve); });
}

/** Wait, but no longer than until the network or the person is back. */
export function pause(ms, signal) {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason);
    const done = () => {
      clearTimeout(timer);
      removeEventListener('online', done);
      document.removeEventListener('visibilitychange', seen);
      signal?.removeEventListener('abort', abort);
      resolve();
    };
    const seen = () => { if (document.visibilityState === 'visible') done(); };
    const abort = () => { done(); reject(signal.reason); };
    const timer = setTimeout(done, ms);
    addEventListener('online', done);
    document.addEventListener('visibilitychange', seen);
    signal?.addEventListener('abort', abort);
  });
}
