// What is served, how far it is loaded, and which model answers.

import { call, send } from './api.js';
import { settings } from './settings.js';
import { eventsOf } from './sse.js';
import { signal } from './ui.js';

const LOOK_MS = 700;

export const models = signal([]);
/** What the server says while it is not ready; `null` when it is. `{text, progress}` */
export const loading = signal({ text: 'Connecting…', progress: null });

/** The model that answers; `null` if it is not served, or not known yet. */
export function chosenModel() {
  const all = models.value;
  const { model } = settings.value;
  return (model ? all.find(({ id }) => id === model) : all[0]) ?? null;
}

/** What an answer left of its model's context, `{count, of}`; `null` if that is not known any more. */
export function tokensLeft(id, usage) {
  const model = models.value.find((other) => other.id === id);
  if (!model?.max_model_len) return null;
  // the input of an encoder-decoder has a limit of its own
  const used = model.max_input_len ? usage.completion_tokens : usage.total_tokens;
  return { count: Math.max(0, model.max_model_len - used), of: model.max_model_len };
}

export async function refreshModels() {
  models.value = (await call('GET', 'v1/models')).data;
}

/** Look again and again until the server is ready. */
export async function waitUntilReady() {
  for (;;) {
    loading.value = await look();
    await refreshModels().catch(() => {});
    if (loading.value === null) break;
    await new Promise((resolve) => { setTimeout(resolve, LOOK_MS); });
  }
}

async function look() {
  let response;
  try {
    response = await fetch('ready', { cache: 'no-store' });
  } catch {
    return { text: 'The server cannot be reached. Trying again…', progress: null };
  }
  if (response.ok) return null;
  const { status, model, stage, progress, error } = await response.json().catch(() => ({}));
  if (error) return { text: `${model ?? 'The server'}: ${error}`, progress: null };
  if (!model) return { text: 'The server is shutting down.', progress: null };
  return { text: `Loading ${model}: ${stage || status}`, progress };
}

/** Answer with this model from now on; one that is not loaded, is. Throws `ApiError`. */
export async function chooseModel(id) {
  await refreshModels().catch(() => {});
  const model = models.value.find((other) => other.id === id);
  if (model && model.status !== 'ready' && !model.loads_on_request) await load(id);
}

async function load(id) {
  try {
    const response = await send('POST', 'v1/models/load', { body: { model: id, stream: true } });
    for await (const events of eventsOf(response)) for (const { data } of events) show(id, JSON.parse(data));
  } finally {
    loading.value = null;
    await refreshModels().catch(() => {});
  }
}

function show(id, news) {
  if (news.error) throw new Error(news.error.message);
  if (news.object === 'model.load') loading.value = { text: `Loading ${id}: ${news.stage}`, progress: news.progress };
}
