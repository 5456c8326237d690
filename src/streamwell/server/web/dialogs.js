// Dialogs: the key, the settings of a chat, and questions before something is lost.

import { keyAsked, setKey } from './api.js';
import { chatId } from './chat.js';
import { changeChat, chats, refreshChats } from './chats.js';
import { areKnown, NUMBERS, settings } from './settings.js';
import { forGood } from './storage.js';
import { theme, THEMES } from './theme.js';
import { exported, imported, save } from './transfer.js';
import { html, signal, useEffect, useRef } from './ui.js';

export const isSettingsOpen = signal(false);
const question = signal(null);

/** Whether a person says yes. */
export function confirmed(title, text, yes) {
  return new Promise((resolve) => { question.value = { title, text, yes, resolve }; });
}

/** The browser's own dialog: it keeps the focus, and gives it back. */
function Dialog({ label, onClose, children, canClose = true }) {
  const dialog = useRef(null);
  useEffect(() => {
    const opener = document.activeElement;
    dialog.current.showModal();
    return () => opener?.focus?.();
  }, []);
  const onCancel = (event) => { event.preventDefault(); if (canClose) onClose(); };
  // browsers close a dialog at the second Escape, whatever is said to the first
  const onClosed = () => { if (canClose) onClose(); else dialog.current?.showModal(); };
  return html`<dialog ref=${dialog} aria-label=${label} onCancel=${onCancel} onClose=${onClosed}>${children}</dialog>`;
}

export function Dialogs() {
  return html`
    ${keyAsked.value && html`<${KeyDialog} />`}
    ${isSettingsOpen.value && html`<${SettingsDialog} />`}
    ${question.value && html`<${Question} ...${question.value} />`}`;
}

function Question({ title, text, yes, resolve }) {
  const answer = (value) => { question.value = null; resolve(value); };
  return html`<${Dialog} label=${title} onClose=${() => answer(false)}>
    <h2>${title}</h2>
    <p>${text}</p>
    <div class="actions">
      <button type="button" onClick=${() => answer(false)}>Cancel</button>
      <button type="button" class="primary" onClick=${() => answer(true)}>${yes}</button>
    </div>
  <//>`;
}

function KeyDialog() {
  const submit = (event) => {
    event.preventDefault();
    const form = new FormData(event.currentTarget);
    setKey(form.get('key'), { remember: form.get('remember') !== null });
  };
  return html`<${Dialog} label="API key" canClose=${false}>
    <form onSubmit=${submit}>
      <h2>API key</h2>
      <p>${keyAsked.value === 'wrong' ? 'The server does not know this key.' : 'This server asks for a key.'}
        It is kept in this browser, and sent to this server only.</p>
      <label>Key <input type="password" name="key" autocomplete="off" required autofocus /></label>
      <label class="check"><input type="checkbox" name="remember" /> Keep it when the tab is closed</label>
      <div class="actions"><button type="submit" class="primary">Continue</button></div>
    </form>
  <//>`;
}

const trouble = signal('');

function SettingsDialog() {
  const close = () => { trouble.value = ''; isSettingsOpen.value = false; };
  const now = useRef(settings.value).current;
  const chat = useRef(chatId.value).current;
  useEffect(() => { if (chatId.value !== chat) close(); }, [chatId.value]);
  const submit = async (event) => {
    event.preventDefault();
    try {
      await keep(changesOf(now, settingsOf(new FormData(event.currentTarget))));
      close();
    } catch (error) {
      trouble.value = error.message;
    }
  };
  return html`<${Dialog} label="Settings" onClose=${close}>
    <form onSubmit=${submit}>
      <h2>Settings</h2>
      <h3>This chat${chatId.value ? '' : ', and new ones'}</h3>
      <label>System prompt <textarea name="system" rows="4" maxlength="4000" defaultValue=${now.system ?? ''}></textarea></label>
      <div class="numbers">${NUMBERS.map(({ name, label, hint, ...range }) => html`<label>
        ${label}${hint && html` <small>${hint}</small>`}
        <input type="number" name=${name} placeholder="the model's" defaultValue=${now[name] ?? ''} ...${range} />
      </label>`)}</div>
      <label>Thinking <select name="thinking" defaultValue=${String(now.thinking ?? '')}>
        ${[['', 'as the model does'], ['true', 'on'], ['false', 'off']].map(([value, label]) => html`<option
          value=${value} selected=${String(now.thinking ?? '') === value}>${label}</option>`)}</select></label>
      <label>Tools <small>a JSON list, as in OpenAI's API</small>
        <textarea name="tools" rows="3" spellcheck="false" maxlength="4000" defaultValue=${now.tools ?? ''}></textarea></label>
      <h3>This page</h3>
      <label>Colours <select value=${theme.value} onChange=${(event) => { theme.value = event.currentTarget.value; }}>
        ${THEMES.map((name) => html`<option value=${name} selected=${name === theme.value}>${name}</option>`)}</select></label>
      <${Transfer} />
      ${trouble.value && html`<p role="alert" class="refusal">${trouble.value}</p>`}
      <div class="actions">
        <button type="button" onClick=${close}>Cancel</button>
        <button type="submit" class="primary">Save</button>
      </div>
    </form>
  <//>`;
}

/** What the form says in place of what it was opened with, as a change of what is kept by then. */
function changesOf({ model: _, ...before }, after) {
  const names = Object.keys({ ...before, ...after }).filter((name) => before[name] !== after[name]);
  return (kept) => {
    const changed = { ...kept };
    for (const name of names) {
      if (after[name] === undefined) delete changed[name];
      else changed[name] = after[name];
    }
    return changed;
  };
}

function settingsOf(form) {
  const changed = {};
  if (form.get('system').trim()) changed.system = form.get('system');
  for (const { name } of NUMBERS) if (form.get(name) !== '') changed[name] = Number(form.get(name));
  if (form.get('thinking')) changed.thinking = form.get('thinking') === 'true';
  if (form.get('tools').trim()) changed.tools = toolsOf(form.get('tools'));
  return changed;
}

function toolsOf(text) {
  try {
    if (Array.isArray(JSON.parse(text))) return JSON.stringify(JSON.parse(text));
  } catch { /* said below */ }
  throw new Error('Tools must be a list in JSON.');
}

/** Change the settings that are kept with the chat, or for chats to come. */
export async function keep(update) {
  if (!areKnown.value) return;
  const chat = chatId.value;
  const kept = chat ? (await changeChat(chat, { settings: update })).settings : update(settings.value);
  if (!chat) forGood.put('streamwell.settings', JSON.stringify(kept));
  if (chatId.value === chat) settings.value = kept;
}

function Transfer() {
  const picker = useRef(null);
  const take = async (event) => {
    const [file] = event.currentTarget.files;
    event.currentTarget.value = '';
    try {
      const number = await imported(await file.text());
      trouble.value = `${number} ${number === 1 ? 'chat was' : 'chats were'} imported.`;
    } catch (error) {
      trouble.value = error.message;
    }
    await refreshChats().catch(() => {});
  };
  const give = async () => {
    try {
      await refreshChats();
      save(await exported(chats.value), 'streamwell-chats.json');
    } catch (error) {
      trouble.value = error.message;
    }
  };
  return html`<div class="transfer">
    <button type="button" onClick=${give}>Export all chats</button>
    <button type="button" onClick=${() => picker.current.click()}>Import chats</button>
    <input ref=${picker} id="import" type="file" accept="application/json,.json" hidden aria-label="File with chats" onChange=${take} />
  </div>`;
}
