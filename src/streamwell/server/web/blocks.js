// Where the first block of a markdown text ends, so that finished ones can rest. Pure.

//: A block that gets longer than this comes in pieces: what is still written is rendered again and again.
const MAX_OPEN_CHARS = 2000;
//: A paragraph costs little; one without line ends is left alone for longer.
const MAX_LINE_CHARS = 6000;

//: No two neighbours in these patterns may take the same characters: that costs the square of a line.
const FENCE = /^ {0,3}(`{3,}|~{3,})(?![^]*`)\s*(\S*)/;
//: A line that may become the end of a fence with its next characters.
const MARKS = /^[\s`~]*$/;
const LIST_ITEM = /^ {0,3}(?:[-*+]|\d{1,9}[.)])(?:\s|$)/;
const TABLE_RULE = /^ {0,3}\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*(?:\|\s*)?$/;
//: A fence within a list, whose items set it in; the first may stand beside the mark of an item.
const INNER_FENCE = /^(\s*)(?:(?:[-*+]|\d{1,9}[.)])\s+)?(`{3,}|~{3,})[^`]*$/;
const MATH_OPEN = /^ {0,3}(\$\$|\\\[)/;
const CLOSES = { $$: /\$\$\s*$/, '\\[': /\\\]\s*$/ };

/**
 * The block that a text begins with, or a piece of a long one: `{end, isOpen, kind, lang, body, head, carried}`.
 *
 * `kind` is `code` for fenced code, with its language and its text, which only grows while the
 * block is open; else `text`, with the head of the table that a piece's rows belong to. More text
 * might still belong to an open block. `carried` is what the text after a piece is asked about with.
 */
export function firstBlock(text, isWhole, carried = null) {
  if (carried?.fence) return codePiece(text, 0, carried.fence, isWhole);
  if (carried?.head) return textBlock(text, isWhole, carried.head);
  const first = lineAt(text, 0);
  const [, marks, lang] = FENCE.exec(first.line) ?? [];
  if (marks) {
    const isNamed = first.end < text.length || isWhole;
    return codePiece(text, first.next, { marks, lang: isNamed ? lang : '' }, isWhole);
  }
  const [, opening] = MATH_OPEN.exec(first.line) ?? [];
  return (opening && mathBlock(text, opening, isWhole)) ?? textBlock(text, isWhole);
}

function codePiece(text, from, fence, isWhole) {
  const { marks, lang } = fence;
  const closing = new RegExp(`^ {0,3}\\${marks[0]}{${marks.length},}\\s*$`);
  const piece = (end, bodyEnd, more) => (
    { end, isOpen: false, kind: 'code', lang, body: text.slice(from, Math.max(from, bodyEnd)), ...more });
  for (let at = from; at < text.length;) {
    const { line, end, next } = lineAt(text, at);
    const isEnded = end < text.length || isWhole;
    if (isEnded && closing.test(line)) return piece(next, at - 1);
    // the end of the line before is not shown either: it belongs to the fence
    if (!isEnded && MARKS.test(line)) return piece(text.length, at - 1, { isOpen: true });
    if (at > MAX_OPEN_CHARS) return piece(at, at, { carried: { fence } });
    at = next;
  }
  const isAtLineEnd = !isWhole && text.endsWith('\n');
  return piece(text.length, text.length - (isAtLineEnd ? 1 : 0), { isOpen: !isWhole });
}

/** The block of a formula; nothing if it never ends, or has an empty line within. */
function mathBlock(text, opening, isWhole) {
  for (let at = 0; at < text.length;) {
    const { line, end, next } = lineAt(text, at);
    const rest = at === 0 ? line.trimStart().slice(2) : line;
    if (CLOSES[opening].test(rest) && (end < text.length || isWhole)) return textOf(next);
    if (line === '') break;
    at = next;
  }
  return null;
}

function textBlock(text, isWhole, carriedHead = '') {
  const isList = LIST_ITEM.test(text);
  const head = carriedHead || tableHead(text);
  let lastBreak = 0;
  let inner = null; // the fence within the list that is open
  for (let at = 0; at < text.length;) {
    const { line, end, next } = lineAt(text, at);
    if (inner) {
      if (inner.closing.test(line)) inner = null;
      else if (at > MAX_OPEN_CHARS && inner.at > 0 && inner.indent < 4) return textOf(inner.at);
      at = next;
      continue;
    }
    const isEmpty = line.trim() === '';
    if (isEmpty && next < text.length && at > 0) {
      const following = lineAt(text, next);
      if (following.line.trim() !== '' && endsBefore(following, isList, text, isWhole)) return textOf(next, carriedHead);
    }
    const isInner = isList && (at === 0 || /^\s/.test(line) || LIST_ITEM.test(line));
    if (at > 0 && FENCE.test(line) && !isInner && end < text.length) return textOf(at, carriedHead);
    if (isInner) inner = innerFence(line, at);
    if (at > MAX_OPEN_CHARS && head && !isEmpty) return { ...textOf(at, carriedHead), carried: { head } };
    if (isEmpty || (isList && LIST_ITEM.test(line))) lastBreak = at;
    if (at > MAX_OPEN_CHARS && !head) return textOf(lastBreak || at);
    at = next;
  }
  if (text.length > MAX_LINE_CHARS) return textOf(cutOf(text), carriedHead);
  return { ...textOf(text.length, carriedHead), isOpen: !isWhole };
}

/** The fence that a line of a list opens. */
function innerFence(line, at) {
  const [, indent, marks] = INNER_FENCE.exec(line) ?? [];
  return marks ? { at, indent: indent.length, closing: new RegExp(`^\\s*\\${marks[0]}{${marks.length},}\\s*$`) } : null;
}

/** The first two lines of a table, if a text begins with one. */
function tableHead(text) {
  const first = lineAt(text, 0);
  const rule = lineAt(text, first.next);
  return first.line.includes('|') && TABLE_RULE.test(rule.line) ? text.slice(0, rule.next) : '';
}

/** A line after an empty one begins another block, unless it goes on with a list. */
function endsBefore({ line, end }, isList, text, isWhole) {
  if (!isList) return true;
  const isComplete = end < text.length || isWhole;
  return isComplete && !/^\s/.test(line) && !LIST_ITEM.test(line);
}

function textOf(end, head = '') {
  return { end, isOpen: false, kind: 'text', head };
}

function cutOf(text) {
  const space = text.lastIndexOf(' ', MAX_LINE_CHARS);
  return space > MAX_LINE_CHARS / 2 ? space : MAX_LINE_CHARS;
}

function lineAt(text, start) {
  const newline = text.indexOf('\n', start);
  const end = newline < 0 ? text.length : newline;
  return { line: text.slice(start, end), end, next: Math.min(end + 1, text.length) };
}
