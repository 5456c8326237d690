// A text that grows, shown without flicker: finished blocks rest, the last one is made anew.

import { firstBlock } from './blocks.js';
import { decorate } from './decorate.js';
import { rendered } from './markdown.js';
import { GrowingText } from './pieces.js';

//: What all views of the page may spend in one frame; the rest waits for the next one.
const FRAME_MS = 8;
//: Nobody reads what is shown for less; between two changes the page has time for all else.
const PAUSE_MS = 30;

const changed = new Set();
let frame = 0;
let lastMs = -PAUSE_MS;

function workSoon(view) {
  changed.add(view);
  frame ||= requestAnimationFrame(workOnAll);
}

function workOnAll() {
  frame = 0;
  const startMs = performance.now();
  const isLast = [...changed].some((view) => view.isWhole); // what ends is shown at once
  if (isLast || startMs >= lastMs + PAUSE_MS) {
    lastMs = startMs;
    for (const view of changed) {
      if (performance.now() >= startMs + FRAME_MS) break;
      if (view.work(startMs + FRAME_MS)) changed.delete(view);
    }
  }
  if (changed.size) frame = requestAnimationFrame(workOnAll);
}

/** Markdown that grows. What it costs to go on does not depend on how much is there. */
export class MarkdownView {
  #root;
  //: What is in no finished block.
  #rest = '';
  isWhole = false;
  #carried = null;
  //: The element of the block that is not finished.
  #tail = null;
  #onRender;

  /** `onRender` is called after each change of what is shown. */
  constructor(root, onRender = () => {}) {
    this.#root = root;
    this.#onRender = onRender;
  }

  /** The text goes on with this; a whole one does not grow any more. */
  add(text, isWhole) {
    this.#rest += text;
    this.isWhole = isWhole;
    workSoon(this);
  }

  close() {
    changed.delete(this);
    this.#root.replaceChildren();
  }

  /** Render until a moment of time; true if nothing is left to do. */
  work(until) {
    let isOpen = false;
    while (this.#rest && !isOpen && performance.now() < until) {
      const block = firstBlock(this.#rest, this.isWhole, this.#carried);
      this.#show(block);
      isOpen = block.isOpen;
      if (!isOpen) this.#finish(block);
    }
    this.#onRender();
    return isOpen || !this.#rest;
  }

  /** The element of the open block shows it. */
  #show(block) {
    if (this.#tail && this.#tail.kind !== block.kind) {
      this.#tail.element.remove();
      this.#tail = null;
    }
    if (!this.#tail) {
      this.#tail = block.kind === 'code' ? new CodeBlock() : new TextBlock();
      this.#root.append(this.#tail.element);
    }
    this.#tail.show(block, this.#rest);
  }

  #finish({ end, carried }) {
    this.#rest = this.#rest.slice(end);
    this.#carried = carried ?? null;
    if (carried?.fence) {
      this.#tail.goOn();
    } else {
      decorate(this.#tail.element);
      this.#tail = null;
    }
  }
}

class TextBlock {
  kind = 'text';
  element = document.createElement('div');
  #source = null;

  constructor() {
    this.element.className = 'block';
  }

  show({ end, head }, text) {
    const source = head + text.slice(0, end);
    if (source === this.#source) return;
    this.#source = source;
    this.element.replaceChildren(rendered(source));
  }
}

class CodeBlock {
  kind = 'code';
  element = document.createElement('div');
  #name = document.createElement('span');
  #text;
  //: How much of the piece that is written is shown.
  #numShown = 0;

  constructor() {
    const bar = document.createElement('div');
    const copy = document.createElement('button');
    const pre = document.createElement('pre');
    const code = document.createElement('code');
    bar.className = 'code-bar';
    copy.type = 'button';
    copy.textContent = 'Copy';
    copy.className = 'copy-code quiet';
    pre.tabIndex = 0; // who has no mouse scrolls it with the keys
    bar.append(this.#name, copy);
    pre.append(code);
    this.element.append(bar, pre);
    this.element.className = 'block code';
    this.#text = new GrowingText(code);
  }

  /** Add what is new; the text that is there stays, and so does a selection in it. */
  show({ lang, body }) {
    if (this.element.dataset.lang !== lang) {
      this.element.dataset.lang = lang;
      this.#name.textContent = lang || 'text';
    }
    this.#text.append(body.slice(this.#numShown));
    this.#numShown = body.length;
  }

  /** What is shown next is another piece. */
  goOn() {
    this.#numShown = 0;
  }
}

/** Text as it is, that grows. */
export class PlainView {
  #root;
  #text;
  #rest = '';
  #onRender;

  constructor(root, onRender) {
    this.#root = root;
    this.#text = new GrowingText(root);
    this.#onRender = onRender;
  }

  add(text) {
    this.#rest += text;
    workSoon(this);
  }

  close() {
    changed.delete(this);
    this.#root.replaceChildren();
  }

  work() {
    this.#text.append(this.#rest);
    this.#rest = '';
    this.#onRender();
    return true;
  }
}

document.addEventListener('click', (event) => {
  const button = event.target.closest?.('.copy-code');
  if (button) copyText(button.closest('.code').querySelector('code').textContent, button);
});

/** What stands on buttons that say something else for a moment. */
const labels = new WeakMap();

/** Put a text on the clipboard, and say so on the button for a moment. */
export async function copyText(text, button) {
  if (!labels.has(button)) labels.set(button, button.textContent);
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = 'Copied';
  } catch { // without TLS browsers have the old way only
    button.textContent = copySelected(text) ? 'Copied' : 'Not allowed';
  }
  setTimeout(() => { button.textContent = labels.get(button); }, 1500);
}

function copySelected(text) {
  const area = document.createElement('textarea');
  area.value = text;
  document.body.append(area);
  area.select();
  try {
    return document.execCommand('copy');
  } finally {
    area.remove();
  }
}
