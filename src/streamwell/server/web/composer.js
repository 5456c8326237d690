// Where a message is written.

import { ask, stop, takeBegun } from './asking.js';
import { chatId, current, isLoading, openChat } from './chat.js';
import { addFile, draft, files, setDraft, setFiles, showDraft } from './drafts.js';
import { readText, withFiles } from './files.js';
import { html, isComposing, signal, useEffect, useLayoutEffect, useRef } from './ui.js';

const refusal = signal('');

/** A question that was to begin a chat is asked in that chat, if the chat was made. */
export function goOnBegun() {
  const chat = takeBegun();
  if (chat && !chatId.value && !current.value) openChat(chat.id);
}

export async function addFiles(list) {
  refusal.value = '';
  const chat = chatId.value;
  for (const file of list) {
    try {
      addFile(chat, await readText(file));
    } catch (error) {
      refusal.value = error.message;
    }
  }
}

function submit() {
  const kept = { text: draft.value, files: files.value };
  const text = withFiles(kept.text, kept.files);
  if (!text.trim() || current.value || isLoading.value) return;
  setDraft('');
  setFiles(chatId.value, []);
  ask(text, { kept });
}

export function Composer() {
  const area = useRef(null);
  const picker = useRef(null);
  const isBusy = current.value !== null;
  useEffect(() => {
    showDraft();
    if (matchMedia('(hover: hover)').matches) area.current.focus();
  }, [chatId.value]);
  useLayoutEffect(() => {
    area.current.style.height = 'auto';
    area.current.style.height = `${area.current.scrollHeight + 2}px`;
  }, [draft.value]);
  const keys = (event) => {
    if (event.key !== 'Enter' || event.shiftKey || isComposing(event)) return;
    event.preventDefault();
    submit();
  };
  return html`<form class="composer" onSubmit=${(event) => { event.preventDefault(); submit(); }}>
    ${refusal.value && html`<p class="refusal" role="alert">${refusal.value}</p>`}
    ${files.value.length > 0 && html`<ul class="files" aria-label="Files">${files.value.map((file, at) => html`<li>
      ${file.name} <button type="button" class="quiet" aria-label=${`Remove ${file.name}`}
        onClick=${() => setFiles(chatId.value, files.value.toSpliced(at, 1))}>×</button></li>`)}</ul>`}
    <div class="box">
      <textarea ref=${area} rows="1" aria-label="Message" placeholder="Message" value=${draft.value}
        onInput=${(event) => setDraft(event.currentTarget.value)} onKeyDown=${keys}></textarea>
      <input ref=${picker} type="file" multiple hidden aria-label="Text files" onChange=${(event) => {
        addFiles(event.currentTarget.files);
        event.currentTarget.value = '';
      }} />
      <button type="button" class="quiet" aria-label="Add text files" title="Add text files"
        onClick=${() => picker.current.click()}>+</button>
      ${isBusy // two buttons: one that became the other while it is pressed would send again
        ? html`<button key="stop" type="button" class="primary" title="Stop (Esc)" onClick=${stop}>Stop</button>`
        : html`<button key="send" type="submit" class="primary" disabled=${isLoading.value || (!draft.value.trim() && !files.value.length)}>Send</button>`}
    </div>
  </form>`;
}
