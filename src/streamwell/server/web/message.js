// What one message looks like, and what can be done with it.

import { giveResults, regenerate, resend } from './asking.js';
import { choose, current, liveOf, pending, tree } from './chat.js';
import { textOf } from './chats.js';
import { tokensLeft } from './models.js';
import { copyText, MarkdownView, PlainView } from './view.js';
import { html, isComposing, signal, useEffect, useLayoutEffect, useRef, useState } from './ui.js';

/** Questions that are being written anew, by their items: until one is on the server it can fail. */
const edits = signal(new Map());
/** What tools gave, by calls; kept for the same reason. */
const given = new Map();

function setEdit(item, text) {
  const next = new Map(edits.value);
  if (text === null) next.delete(item.id);
  else next.set(item.id, text);
  edits.value = next;
}

/** Something a person, or a tool, said. */
export function Question({ item, text }) {
  const said = item ? textOf(item) : text;
  const isTool = item?.role === 'tool';
  const edited = item ? edits.value.get(item.id) : undefined;
  if (edited !== undefined) return html`<${Editor} text=${edited} onWrite=${(now) => edits.value.set(item.id, now)} onDone=${async (changed) => {
    setEdit(item, changed);
    if (changed !== null && await resend(item, changed)) setEdit(item, null);
  }} />`;
  return html`<article class="message question" aria-label=${isTool ? 'Result of a tool' : 'You'}>
    ${isTool && html`<p class="role">Result of a tool</p>`}
    <div class="said">${said}</div>
    ${item && html`<div class="actions">
      <${Branches} item=${item} />
      ${!isTool && html`<button type="button" class="quiet" disabled=${current.value !== null}
        onClick=${() => setEdit(item, said)}>Edit</button>`}
      <${CopyButton} text=${() => said} />
    </div>`}
  </article>`;
}

function Editor({ text, onWrite, onDone }) {
  const area = useRef(null);
  useEffect(() => area.current.focus(), []);
  const keys = (event) => {
    if (isComposing(event)) return;
    if (event.key === 'Escape') { event.stopPropagation(); onDone(null); }
    if (event.key === 'Enter' && !event.shiftKey) { event.preventDefault(); done(); }
  };
  const done = () => { if (area.current.value.trim() && !current.value) onDone(area.current.value); };
  return html`<div class="message question editor">
    <textarea ref=${area} aria-label="Edit message" rows=${Math.min(12, text.split('\n').length + 1)}
      onKeyDown=${keys} onInput=${(event) => onWrite(event.currentTarget.value)} defaultValue=${text}></textarea>
    <div class="actions">
      <button type="button" onClick=${() => onDone(null)}>Cancel</button>
      <button type="button" class="primary" disabled=${current.value !== null} onClick=${done}>Send</button>
    </div>
  </div>`;
}

/** What the model said: while it is written from its stream, and then as the server keeps it. */
export function Answer({ item, live: pendingLive, onGrow }) {
  const live = pendingLive ?? liveOf(item);
  const isOver = live ? live.state.value === 'over' : item.status !== 'in_progress';
  const status = !isOver && live && statusOf(live);
  return html`<article class="message answer" aria-label="Answer" aria-busy=${!isOver || !item}>
    <${Reasoning} item=${item} live=${live} onGrow=${onGrow} />
    <${Text} item=${item} live=${live} onGrow=${onGrow} />
    <${Calls} item=${item} live=${live} />
    ${status && html`<p class="status" role="status">${status}</p>`}
    ${isOver && item && html`<${Ending} item=${item} live=${live} />`}
    ${isOver && item && html`<div class="actions">
      <${Branches} item=${item} />
      <button type="button" class="quiet" disabled=${current.value !== null}
        onClick=${() => regenerate(item)}>Regenerate</button>
      <${CopyButton} text=${() => textOf(item)} />
      <${Speed} item=${item} live=${live} />
    </div>`}
  </article>`;
}

function statusOf(live) {
  if (live.isStopped.value) return 'Stopping…';
  if (live.state.value === 'waiting') {
    const then = live.run ? 'The answer goes on' : 'The question is sent';
    return `Waiting: ${live.reason.value.replace(/\.$/, '')}. ${then} by itself.`;
  }
  return live.hasBegun.value ? '' : 'Thinking…';
}

function Text({ item, live, onGrow }) {
  const root = useRef(null);
  useLayoutEffect(() => {
    const view = new MarkdownView(root.current, onGrow);
    const add = (text) => view.add(text, !live || live.state.value === 'over');
    add(live ? live.content : textOf(item));
    const leave = live?.onChange(({ content }) => add(content));
    return () => { leave?.(); view.close(); };
  }, [live, live ? null : item]);
  return html`<div class="markdown" ref=${root}></div>`;
}

function Reasoning({ item, live, onGrow }) {
  const now = () => ({
    hasText: Boolean(live ? live.reasoning : item?.reasoning_content),
    isThinking: Boolean(live) && live.state.value !== 'over' && !live.content,
  });
  const { hasText, isThinking } = now();
  const [, setSeen] = useState('');
  useEffect(() => live?.onChange(() => setSeen(JSON.stringify(now()))), [live]);
  if (!hasText) return null;
  return html`<details class="reasoning" open=${isThinking}>
    <summary>${isThinking ? 'Thinking…' : 'Thoughts'}</summary>
    <${Thoughts} item=${item} live=${live} onGrow=${onGrow} />
  </details>`;
}

function Thoughts({ item, live, onGrow }) {
  const root = useRef(null);
  useLayoutEffect(() => {
    const view = new PlainView(root.current, onGrow);
    view.add(live ? live.reasoning : item.reasoning_content);
    const leave = live?.onChange(({ reasoning }) => reasoning && view.add(reasoning));
    return () => { leave?.(); view.close(); };
  }, [live, live ? null : item]);
  return html`<div class="thoughts" ref=${root}></div>`;
}

function Calls({ item, live }) {
  const calls = (live ? live.calls : item?.tool_calls) ?? [];
  const isOpen = Boolean(item) && calls.length > 0 && !current.value
    && !tree.value.items.some((other) => tree.value.previous(other.id) === item.id);
  const give = (event) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    for (const { id } of calls) given.set(id, form.get(id));
    giveResults(item, calls.map(({ id }) => ({ id, content: form.get(id) })));
  };
  if (!calls.length) return null;
  return html`<form class="calls" onSubmit=${give}>${calls.map((call) => html`<div class="call" key=${call.id}>
      <p>Calls <code>${call.function.name}</code></p>
      <pre tabindex="0"><code>${call.function.arguments}</code></pre>
      ${isOpen && html`<label>Result <input name=${call.id} autocomplete="off" required
        defaultValue=${given.get(call.id) ?? ''} /></label>`}
    </div>`)}
    ${isOpen && html`<button type="submit">Send ${calls.length > 1 ? 'results' : 'result'}</button>`}
  </form>`;
}

const ENDINGS = {
  length: 'It ends here because it reached its greatest length.',
  cancelled: 'Stopped.',
};

function Ending({ item, live }) {
  const error = item.error ?? live?.error;
  const isGone = item.status === 'incomplete' && !item.finish_reason && !error;
  const said = error ? `It failed: ${error}`
    : isGone ? 'The text of this answer is not kept any more.' : ENDINGS[item.finish_reason];
  return said ? html`<p class=${error ? 'ending error' : 'ending'}>${said}</p>` : null;
}

function Branches({ item }) {
  const all = tree.value.siblings(item.id);
  if (all.length < 2) return null;
  const at = all.findIndex(({ id }) => id === item.id);
  const step = (by) => choose(all[at + by]);
  const isFixed = pending.value !== null; // what is asked belongs to the way that is shown
  return html`<span class="branches" role="group" aria-label="Versions">
    <button type="button" class="quiet" aria-label="Version before" disabled=${isFixed || at === 0} onClick=${() => step(-1)}>‹</button>
    <span>${at + 1}/${all.length}</span>
    <button type="button" class="quiet" aria-label="Version after" disabled=${isFixed || at === all.length - 1} onClick=${() => step(1)}>›</button>
  </span>`;
}

function CopyButton({ text }) {
  return html`<button type="button" class="quiet" onClick=${(event) => copyText(text(), event.currentTarget)}>Copy</button>`;
}

function Speed({ item, live }) {
  const speed = item.speed ?? live?.speed;
  const usage = item.usage;
  const parts = [];
  if (speed) parts.push(`first token ${(1000 * speed.firstTokenS).toFixed(0)} ms`);
  if (speed?.tokensPerS) parts.push(`${speed.tokensPerS.toFixed(1)} tokens/s`);
  if (usage) parts.push(`${usage.completion_tokens} tokens`);
  const left = usage && tokensLeft(item.model, usage);
  if (left) parts.push(`${left.count} of ${left.of} left`);
  return parts.length ? html`<span class="speed">${parts.join(' · ')}</span>` : null;
}
