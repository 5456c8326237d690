// Colours of code and typeset formulas: made when a block is finished, one by one, when there is time.

import { sanitized } from './markdown.js';

//: Longer code stays plain: its colours would take more memory than they are worth.
const MAX_CODE_CHARS = 50_000;
const MAX_TEX_CHARS = 2000;

const waiting = [];
let isWorking = false;

/** Look at a finished block, and do what is to be done to it later. */
export function decorate(block) {
  const { lang } = block.dataset;
  if (lang) later(() => { highlight(block.querySelector('code'), lang); });
  for (const formula of block.querySelectorAll('.math')) later(() => typeset(formula));
}

function later(task) {
  waiting.push(task);
  if (!isWorking) work();
}

async function work() {
  isWorking = true;
  while (waiting.length) {
    await idle();
    const task = waiting.shift();
    try {
      await task();
    } catch (error) {
      console.warn('a part of an answer stays as it was written:', error);
    }
  }
  isWorking = false;
}

function idle() {
  return new Promise((resolve) => {
    if (globalThis.requestIdleCallback) requestIdleCallback(resolve, { timeout: 1000 });
    else setTimeout(resolve, 30);
  });
}

// the one script that this page may start, whatever a text says
const policy = globalThis.trustedTypes?.createPolicy('streamwell', {
  createScriptURL: () => new URL('./highlighter.js', import.meta.url).href,
});
const answers = new Map();
let worker = null;

function highlighter() {
  if (worker) return worker;
  const url = policy?.createScriptURL('') ?? new URL('./highlighter.js', import.meta.url).href;
  worker = new Worker(url, { type: 'module' });
  worker.onmessage = ({ data: { id, htmls } }) => {
    answers.get(id)(htmls);
    answers.delete(id);
  };
  return worker;
}

let numAsked = 0;

/** Colours come piece by piece, as the code did. */
async function highlight(code, lang) {
  const pieces = [...code.children];
  const texts = pieces.map((piece) => piece.textContent);
  if (code.textContent.length > MAX_CODE_CHARS) return;
  const id = numAsked += 1;
  const found = await new Promise((resolve) => {
    answers.set(id, resolve);
    highlighter().postMessage({ id, texts, lang });
  });
  found?.forEach((html, at) => later(() => { pieces[at].replaceChildren(sanitized(html)); }));
}

async function typeset(formula) {
  const { render } = globalThis.katex ?? await loadKatex();
  const tex = formula.textContent;
  if (!formula.isConnected || tex.length > MAX_TEX_CHARS) return;
  const displayMode = formula.classList.contains('display');
  const made = document.createElement('span');
  render(tex, made, { displayMode, throwOnError: true, trust: false, maxSize: 20, maxExpand: 200, strict: 'ignore' });
  formula.replaceChildren(...made.childNodes);
}

async function loadKatex() {
  const sheet = document.createElement('link');
  sheet.rel = 'stylesheet';
  sheet.href = new URL('./vendor/katex.css', import.meta.url).href;
  document.head.append(sheet);
  await import('./vendor/katex.js'); // it is no module, and leaves its name behind
  await idle();
  return globalThis.katex;
}
