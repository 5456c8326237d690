// A worker: colours code, away from the page. `{id, text, lang}` in, `{id, html}` out.

import hljs from './vendor/highlight.js';

onmessage = ({ data: { id, text, lang } }) => {
  const isKnown = hljs.getLanguage(lang) !== undefined;
  const html = isKnown ? hljs.highlight(text, { language: lang, ignoreIllegals: true }).value : null;
  postMessage({ id, html });
};
