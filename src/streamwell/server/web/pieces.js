// Plain text that grows in pieces of some lines each: only the last one is laid out anew.

const PIECE_CHARS = 1000;

export class GrowingText {
  #root;
  #last = null;

  /** The text is added to this element, which keeps line ends (`white-space`). */
  constructor(root) {
    this.#root = root;
  }

  append(text) {
    for (let rest = text; rest;) {
      this.#last ??= this.#begin();
      const newline = rest.indexOf('\n', Math.max(0, PIECE_CHARS - this.#last.length));
      const end = newline < 0 ? rest.length : newline + 1;
      this.#last.appendData(rest.slice(0, end));
      if (newline >= 0) this.#last = null;
      rest = rest.slice(end);
    }
  }

  #begin() {
    const piece = document.createElement('span');
    const text = document.createTextNode('');
    piece.className = 'piece';
    piece.append(text);
    this.#root.append(piece);
    return text;
  }
}
