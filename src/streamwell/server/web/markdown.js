// Markdown to elements. What a model writes is text: no HTML of its, no picture, no script.

import DOMPurify from './vendor/purify.js';
import { Marked } from './vendor/marked.js';

const ALLOWED = {
  ALLOWED_TAGS: ['a', 'blockquote', 'br', 'code', 'del', 'em', 'h1', 'h2', 'h3', 'h4', 'h5', 'h6',
    'hr', 'li', 'ol', 'p', 'pre', 'span', 'strong', 'table', 'tbody', 'td', 'th', 'thead',
    'tr', 'ul'],
  ALLOWED_ATTR: ['align', 'class', 'href', 'rel', 'start', 'target', 'title'],
  ALLOWED_URI_REGEXP: /^(?:https?|mailto):/i,
  ALLOW_DATA_ATTR: false,
  ALLOW_ARIA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};
const LINK = /^(?:https?:\/\/|mailto:)/i;
const INLINE_MATH = [/^\$\$([^$]+?)\$\$/, /^\$(?!\s)((?:\\.|[^$\\\n])+?)(?<!\s)\$(?!\d)/, /^\\\(([^\n]+?)\\\)/];
//: Without `\s*` on both sides of what is inside: for thousands of spaces that would take minutes.
const DISPLAY_MATH = [/^ {0,3}\$\$([^]+?)\$\$[ \t]*(?:\n|$)/, /^ {0,3}\\\[([^]+?)\\\][ \t]*(?:\n|$)/];

function escape(text) {
  return text.replaceAll('&', '&amp;').replaceAll('<', '&lt;').replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;').replaceAll("'", '&#39;');
}

function mathToken(name, level, patterns, start) {
  return {
    name,
    level,
    start: (text) => { const at = text.search(start); return at < 0 ? undefined : at; },
    tokenizer: (text) => {
      for (const pattern of patterns) {
        const match = pattern.exec(text);
        if (match) return { type: name, raw: match[0], tex: match[1].trim() };
      }
      return undefined;
    },
    renderer: ({ tex }) => `<span class="math ${name}">${escape(tex)}</span>`,
  };
}

const marked = new Marked({
  gfm: true,
  extensions: [
    mathToken('display', 'block', DISPLAY_MATH, /\$\$|\\\[/),
    mathToken('inline', 'inline', INLINE_MATH, /\$|\\\(/),
  ],
  renderer: {
    html: ({ text }) => (/^<br\s*\/?>$/i.test(text.trim()) ? '<br>' : escape(text)),
    link({ href, title, tokens }) {
      const inner = this.parser.parseInline(tokens);
      if (!LINK.test(href)) return inner;
      const named = title ? ` title="${escape(title)}"` : '';
      return `<a href="${escape(href)}"${named} target="_blank" rel="noopener noreferrer">${inner}</a>`;
    },
    // a picture would tell its host that, and what, somebody reads here
    image({ href, text }) {
      const label = escape(text || 'picture');
      if (!LINK.test(href)) return label;
      return `<a href="${escape(href)}" target="_blank" rel="noopener noreferrer">${label}</a>`;
    },
    checkbox: ({ checked }) => (checked ? '☑ ' : '☐ '),
  },
});

// without this the sanitizer would take `target` for an attack on old browsers
DOMPurify.addHook('afterSanitizeAttributes', (node) => {
  if (node.nodeName === 'A') {
    node.setAttribute('target', '_blank');
    node.setAttribute('rel', 'noopener noreferrer');
  }
});

/** The elements of a piece of markdown. */
export function rendered(text) {
  return DOMPurify.sanitize(marked.parse(text), ALLOWED);
}

// the first call takes long: its code is compiled before an answer waits for it
(globalThis.requestIdleCallback ?? setTimeout)(() => rendered('# a\n\n- *b*\n\n| c |\n|---|\n| $d$ |'));

/** HTML of our own making, from libraries that mark up text, as elements. */
export function sanitized(text) {
  return DOMPurify.sanitize(text, ALLOWED);
}
