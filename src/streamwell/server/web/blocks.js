// Where one block of a markdown text ends and the next begins, so that finished ones can rest. Pure.

//: A block that gets longer than this is cut, so that what is still written stays cheap to render.
const MAX_OPEN_CHARS = 6000;

const FENCE = /^ {0,3}(`{3,}|~{3,})\s*([^\s`]*)[^`]*$/;
const LIST_ITEM = /^ {0,3}(?:[-*+]|\d{1,9}[.)])(?:\s|$)/;
const MATH_OPEN = /^ {0,3}(\$\$|\\\[)/;
const CLOSES = { $$: /\$\$\s*$/, '\\[': /\\\]\s*$/ };

/**
 * The block at a place of a text: `{end, isOpen, kind, lang, body}`.
 *
 * `kind` is `code` for fenced code, with its language and its text, else `text`. An open block is
 * one that more text might still belong to.
 */
export function blockAt(text, start, isWhole) {
  const first = lineAt(text, start);
  const fence = FENCE.exec(first.line);
  if (fence) return codeBlock(text, first, fence, isWhole);
  const math = MATH_OPEN.exec(first.line);
  if (math) return mathBlock(text, start, first, math[1], isWhole);
  return textBlock(text, start, first, isWhole);
}

function codeBlock(text, first, [, marks, lang], isWhole) {
  const closing = new RegExp(`^ {0,3}\\${marks[0]}{${marks.length},}\\s*$`);
  const from = first.next;
  for (let at = from; at < text.length;) {
    const { line, end, next } = lineAt(text, at);
    // the last line may go on: it closes when it has ended
    if (closing.test(line) && (end < text.length || isWhole)) {
      return { end: next, isOpen: false, kind: 'code', lang, body: text.slice(from, Math.max(from, at - 1)) };
    }
    at = next;
  }
  const isNamed = first.end < text.length;
  const body = isNamed ? text.slice(from) : '';
  return { end: text.length, isOpen: !isWhole, kind: 'code', lang: isNamed || isWhole ? lang : '', body };
}

function mathBlock(text, start, first, opening, isWhole) {
  for (let at = start, line = first; ;) {
    const rest = at === start ? line.line.trimStart().slice(2) : line.line;
    if (CLOSES[opening].test(rest) && (line.end < text.length || isWhole)) return textOf(line.next);
    if (line.next >= text.length || line.line === '') break;
    at = line.next;
    line = lineAt(text, at);
  }
  // it never ends, or has an empty line within: then it is no formula
  return textBlock(text, start, first, isWhole);
}

function textBlock(text, start, first, isWhole) {
  const isList = LIST_ITEM.test(first.line);
  let lastBreak = 0;
  for (let at = start; at < text.length;) {
    const { line, end, next } = lineAt(text, at);
    const isEmpty = line.trim() === '';
    if (isEmpty && next < text.length && at > start) {
      const following = lineAt(text, next);
      if (following.line.trim() !== '' && endsBefore(following, isList, text, isWhole)) return textOf(next);
    }
    if (at > start && FENCE.test(line) && !isList && end < text.length) return textOf(at);
    if (at > start && (isEmpty || (isList && LIST_ITEM.test(line)))) lastBreak = at;
    at = next;
    if (at - start > MAX_OPEN_CHARS) return textOf(lastBreak > start ? lastBreak : Math.min(at, text.length));
  }
  if (text.length - start > 2 * MAX_OPEN_CHARS) return textOf(cutOf(text, start + MAX_OPEN_CHARS));
  return { end: text.length, isOpen: !isWhole, kind: 'text' };
}

/** A line after an empty one begins another block, unless it goes on with a list. */
function endsBefore({ line, end }, isList, text, isWhole) {
  if (!isList) return true;
  const isComplete = end < text.length || isWhole;
  return isComplete && !/^\s/.test(line) && !LIST_ITEM.test(line);
}

function textOf(end) {
  return { end, isOpen: false, kind: 'text' };
}

function cutOf(text, at) {
  const space = text.indexOf(' ', at);
  return space < 0 || space > at + 200 ? at : space;
}

function lineAt(text, start) {
  const newline = text.indexOf('\n', start);
  const end = newline < 0 ? text.length : newline;
  return { line: text.slice(start, end), end, next: Math.min(end + 1, text.length) };
}
