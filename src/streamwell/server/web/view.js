// A markdown text that grows, shown without flicker: finished blocks rest, the last one is made anew.

import { blockAt } from './blocks.js';
import { decorate } from './decorate.js';
import { rendered } from './markdown.js';

//: What all views of the page may spend in one frame; the rest waits for the next one.
const FRAME_MS = 8;

const changed = new Set();
let frame = 0;

function workSoon(view) {
  changed.add(view);
  frame ||= requestAnimationFrame(workOnAll);
}

function workOnAll() {
  frame = 0;
  const until = performance.now() + FRAME_MS;
  for (const view of changed) {
    if (performance.now() >= until) break;
    if (view.work(until)) changed.delete(view);
  }
  if (changed.size) frame = requestAnimationFrame(workOnAll);
}

export class MarkdownView {
  #root;
  #text = '';
  #isWhole = false;
  //: How much of the text is in finished blocks.
  #done = 0;
  #tail = null;
  #onRender;

  /** `onRender` is called after each change of what is shown. */
  constructor(root, onRender = () => {}) {
    this.#root = root;
    this.#onRender = onRender;
  }

  /** Show this text, which begins with the one before; a whole one does not grow any more. */
  update(text, isWhole) {
    if (!text.startsWith(this.#text.slice(0, this.#done))) this.#clear();
    this.#text = text;
    this.#isWhole = isWhole;
    workSoon(this);
  }

  close() {
    changed.delete(this);
  }

  #clear() {
    this.#root.replaceChildren();
    this.#done = 0;
    this.#tail = null;
  }

  /** Render until a moment of time; true if nothing is left to do. */
  work(until) {
    while (this.#done < this.#text.length && performance.now() < until) {
      const block = blockAt(this.#text, this.#done, this.#isWhole);
      this.#tail = this.#shown(block);
      if (block.isOpen) break;
      decorate(this.#tail);
      this.#tail = null;
      this.#done = block.end;
    }
    this.#onRender();
    return this.#done === this.#text.length || this.#tail !== null;
  }

  /** The element of the block that is not finished, made or changed. */
  #shown(block) {
    const raw = this.#text.slice(this.#done, block.end);
    let element = this.#tail;
    if (element && element.dataset.kind !== block.kind) {
      element.remove();
      element = null;
    }
    if (!element) {
      element = block.kind === 'code' ? codeElement() : document.createElement('div');
      element.dataset.kind = block.kind;
      element.classList.add('block');
      this.#root.append(element);
    }
    if (block.kind === 'code') growCode(element, block);
    else if (element.source !== raw) {
      element.source = raw;
      element.replaceChildren(rendered(raw));
    }
    return element;
  }
}

function codeElement() {
  const element = document.createElement('div');
  const bar = document.createElement('div');
  bar.className = 'code-bar';
  const lang = document.createElement('span');
  const copy = document.createElement('button');
  copy.type = 'button';
  copy.textContent = 'Copy';
  copy.className = 'copy-code quiet';
  bar.append(lang, copy);
  const pre = document.createElement('pre');
  pre.tabIndex = 0; // who has no mouse scrolls it with the keys
  const code = document.createElement('code');
  code.append('');
  pre.append(code);
  element.append(bar, pre);
  element.classList.add('code');
  return element;
}

/** Add what is new; the text that is there stays, and so does a selection in it. */
function growCode(element, { lang, body }) {
  element.dataset.lang = lang;
  element.firstChild.firstChild.textContent = lang || 'text';
  const node = element.querySelector('code').firstChild;
  if (body.startsWith(node.data)) node.appendData(body.slice(node.length));
  else node.data = body;
}

document.addEventListener('click', (event) => {
  const button = event.target.closest?.('.copy-code');
  if (button) copyText(button.closest('.code').querySelector('code').textContent, button);
});

/** Put a text on the clipboard, and say so on the button for a moment. */
export async function copyText(text, button) {
  const label = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = 'Copied';
  } catch {
    button.textContent = 'Not allowed';
  }
  setTimeout(() => { button.textContent = label; }, 1500);
}
