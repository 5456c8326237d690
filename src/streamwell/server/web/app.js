// The page: its parts, its keys, and the address that says which chat is open.

import { stop } from './asking.js';
import { chatId, current, isLoading, liveOf, look, openChat, path, pending, problem } from './chat.js';
import { chats, refreshChats } from './chats.js';
import { addFiles, Composer, goOnBegun } from './composer.js';
import { Dialogs, isSettingsOpen, keep } from './dialogs.js';
import { Answer, Question } from './message.js';
import { chooseModel, chosenModel, loading, models, refreshModels, waitUntilReady } from './models.js';
import { areKnown, settings } from './settings.js';
import { addressOf, closeOnPhones, isOpen, search, Sidebar } from './sidebar.js';
import './theme.js';
import { effect, html, isComposing, render, useEffect, useRef, useState } from './ui.js';

const NEAR_END_PX = 60;

function App() {
  return html`<a class="skip" href="#main" onClick=${(event) => {
    event.preventDefault();
    document.getElementById('main').focus();
  }}>To the chat</a>
  <${Sidebar} />
  <div class="side">
    <${Header} />
    <${Chat} />
  </div>
  <${Dialogs} />`;
}

function Header() {
  const title = chats.value?.find(({ id }) => id === chatId.value)?.title ?? 'New chat';
  return html`<header>
    <button type="button" class="quiet" aria-label="Chats" title="Chats (Ctrl+B)" aria-expanded=${isOpen.value}
      aria-controls="sidebar" onClick=${() => { isOpen.value = !isOpen.value; }}>☰</button>
    <h1>${title}</h1>
    <${ModelPicker} />
    <button type="button" class="quiet" aria-label="Settings" title="Settings" disabled=${!areKnown.value}
      onClick=${() => { isSettingsOpen.value = true; }}>⚙</button>
  </header>`;
}

function ModelPicker() {
  const choose = async (event) => {
    const model = event.currentTarget.value;
    settings.value = { ...settings.value, model }; // what is asked from here on is asked of it
    try {
      await keep((now) => ({ ...now, model }));
      await chooseModel(model);
    } catch (error) {
      problem.value = error.message;
    }
  };
  if (!models.value.length) return null;
  const chosen = chosenModel()?.id ?? settings.value.model;
  return html`<select class="models" aria-label="Model" value=${chosen} disabled=${!areKnown.value} onChange=${choose}>
    ${!chosenModel() && html`<option value=${chosen} selected>${chosen} (not served)</option>`}
    ${models.value.map(({ id, status }) => html`<option value=${id} selected=${id === chosen}>${
      id}${status === 'ready' ? '' : ` (${status})`}</option>`)}
  </select>`;
}

function Chat() {
  const scroller = useRef(null);
  const isAtEnd = useRef(true);
  const [isDropped, setDropped] = useState(false);
  const follow = () => {
    if (isAtEnd.current) scroller.current.scrollTop = scroller.current.scrollHeight;
  };
  const onScroll = () => {
    const { scrollHeight, scrollTop, clientHeight } = scroller.current;
    isAtEnd.current = scrollHeight - scrollTop - clientHeight < NEAR_END_PX;
  };
  useEffect(() => { isAtEnd.current = true; follow(); }, [chatId.value, pending.value]);
  const drop = (event) => {
    event.preventDefault();
    setDropped(false);
    addFiles(event.dataTransfer.files);
  };
  return html`<main id="main" tabindex="-1" class=${isDropped ? 'dropped' : ''}
      onDragOver=${(event) => { event.preventDefault(); setDropped(true); }}
      onDragLeave=${() => setDropped(false)} onDrop=${drop}>
    <div class="scroller" ref=${scroller} onScroll=${onScroll} tabindex="0" role="log" aria-live="off" aria-label="Messages">
      <div class="messages"><${Messages} onGrow=${follow} /></div>
    </div>
    ${loading.value && html`<${Loading} />`}
    ${problem.value && html`<p class="problem" role="alert">${problem.value}</p>`}
    <${Composer} />
    <${Announcer} />
  </main>`;
}

function Messages({ onGrow }) {
  const shown = path.value;
  const sent = pending.value;
  if (!shown.length && !sent) return html`<p class="welcome">${isLoading.value ? 'Loading…' : 'What is on your mind?'}</p>`;
  // one row: in a list of its own, the same key would be another element, and the answer drawn anew
  return [
    ...shown.map((item) => (item.role === 'assistant'
      ? html`<${Answer} key=${liveOf(item)?.name ?? item.id} item=${item} onGrow=${onGrow} />`
      : html`<${Question} key=${item.id} item=${item} />`)),
    sent?.text && html`<${Question} key="sent" text=${sent.text} />`,
    sent && html`<${Answer} key=${sent.live.name} live=${sent.live} onGrow=${onGrow} />`,
  ];
}

function Loading() {
  const { text, progress } = loading.value;
  return html`<div class="loading" role="status">
    <span>${text}</span>
    <progress aria-label="Loading" ...${progress === null ? {} : { value: progress, max: 1 }}></progress>
  </div>`;
}

/** Tells who cannot see the page when an answer begins and what it was, but not each token. */
function Announcer() {
  const [text, setText] = useState('');
  const live = current.value;
  const last = useRef(null);
  useEffect(() => {
    if (live) {
      last.current = live;
      setText('An answer is being written.');
    } else if (last.current) {
      setText(`Answer: ${last.current.content.slice(0, 500)}`);
      last.current = null;
    }
  }, [live]);
  return html`<div class="announcer" aria-live="polite">${text}</div>`;
}

function goToAddress() {
  const id = /^#\/chat\/([\w-]{1,80})$/.exec(location.hash)?.[1] ?? '';
  if (id !== chatId.value || !id) openChat(id);
}

document.addEventListener('keydown', (event) => {
  const isCommand = event.ctrlKey || event.metaKey;
  const letter = event.key.toLowerCase();
  if (event.key === 'Escape' && !isComposing(event) && current.value && !document.querySelector('dialog[open]')) stop();
  else if (isCommand && letter === 'k') search();
  else if (isCommand && event.shiftKey && letter === 'o') { location.hash = addressOf(''); openChat(''); closeOnPhones(); }
  else if (isCommand && letter === 'b') isOpen.value = !isOpen.value;
  else return;
  event.preventDefault();
});

effect(() => {
  const id = chatId.value;
  if (id && location.hash !== addressOf(id)) history.pushState(null, '', addressOf(id));
});
effect(() => {
  const title = chats.value?.find(({ id }) => id === chatId.value)?.title;
  document.title = title ? `${title} · Streamwell` : 'Streamwell';
});

async function refresh() {
  refreshModels().catch(() => {});
  await refreshChats();
  goOnBegun();
}

addEventListener('hashchange', goToAddress);
addEventListener('popstate', goToAddress);
document.addEventListener('visibilitychange', () => {
  if (document.visibilityState === 'visible') refresh().catch(() => {});
});
setInterval(() => { if (document.visibilityState === 'visible') refresh().catch(() => {}); }, 20_000);

render(html`<${App} />`, document.getElementById('app'));
goToAddress();
waitUntilReady();
refresh().then(look).catch((error) => { problem.value = error.message; });
