// A worker: colours code, away from the page. `{id, texts, lang}` in, `{id, htmls}` out.

import hljs from './vendor/highlight.js';

onmessage = ({ data: { id, texts, lang } }) => {
  const isKnown = hljs.getLanguage(lang) !== undefined;
  const html = isKnown && hljs.highlight(texts.join(''), { language: lang, ignoreIllegals: true }).value;
  postMessage({ id, htmls: isKnown ? split(html, texts) : null });
};

/** The HTML of each text, whole in itself: what is open where one ends is open again in the next. */
function split(html, texts) {
  const lines = html.match(/[^\n]*\n|[^\n]+/g) ?? [];
  let open = [];
  return texts.map((text) => {
    const numLines = text.match(/[^\n]*\n|[^\n]+/g).length;
    const own = open.join('') + lines.splice(0, numLines).join('');
    open = [];
    for (const [tag] of own.matchAll(/<span[^>]*>|<\/span>/g)) {
      if (tag === '</span>') open.pop();
      else open.push(tag);
    }
    return own + '</span>'.repeat(open.length);
  });
}
