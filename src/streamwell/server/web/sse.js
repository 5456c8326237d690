// Server-sent events from the bytes of a response.

/** Text in, whole events out: `{id, data}`; comments and `retry` are left out. */
export class EventParser {
  #rest = '';

  push(text) {
    const blocks = (this.#rest + text).split('\n\n');
    this.#rest = blocks.pop();
    return blocks.map(parse).filter((event) => event.data !== null);
  }
}

function parse(block) {
  const event = { id: null, data: null };
  for (const line of block.split('\n')) {
    const colon = line.indexOf(':');
    const name = line.slice(0, colon);
    const value = line.slice(colon + 1).replace(/^ /, '');
    if (name === 'id') event.id = value;
    else if (name === 'data') event.data = event.data === null ? value : `${event.data}\n${value}`;
  }
  return event;
}

/** The events of a response, in the batches in which they came. */
export async function* eventsOf(response) {
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  const parser = new EventParser();
  try {
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      yield parser.push(decoder.decode(value, { stream: true }));
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
