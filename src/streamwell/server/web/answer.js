// One answer while it is written: what the events of its run have said so far.

import { signal } from './ui.js';

let count = 0;

export class LiveAnswer {
  content = '';
  reasoning = '';
  calls = [];
  usage = null;
  /** `connecting`, `open`, `waiting`, then `over`; with the reason of a wait or of a bad end. */
  state = signal('connecting');
  reason = signal('');
  /** Something of it has been said. */
  hasBegun = signal(false);
  /** Somebody wants no more of it. */
  isStopped = signal(false);
  /** Ends its stream here; on the server it goes on. */
  abort = new AbortController();
  error = null;
  /** The server may know of it, although it has not said so. */
  mayBeThere = false;
  /** Tells it from all others, also while its run is not known. */
  name = `live-${count += 1}`;
  finishReason = null;
  #listeners = new Set();
  #sentMs = performance.now();
  #firstMs = 0;
  #lastMs = 0;
  #numDeltas = 0;
  //: One that was found half written has no times of its own.
  #isWatched;

  constructor({ isWatched }) {
    this.#isWatched = isWatched;
  }

  /** One event of the stream; true if it was the last one. */
  take(data) {
    if (data === '[DONE]') return this.#end();
    const chunk = JSON.parse(data);
    if (chunk.error) {
      this.error = chunk.error.message;
      return this.#end();
    }
    if (chunk.usage) this.usage = chunk.usage;
    const [choice] = chunk.choices;
    if (choice) this.#takeChoice(choice);
    this.#tell(choice?.delta);
    return false;
  }

  /** Its end cannot be heard. */
  fail(message) {
    this.error = message;
    this.#end();
  }

  setState(state, reason) {
    this.state.value = state;
    this.reason.value = reason?.message ?? '';
  }

  /** Each event is told: what it adds to the answer, `{content, reasoning}`. */
  onChange(listener) {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  /** Seconds to the first token and tokens per second, as far as they were seen. */
  get speed() {
    if (!this.#isWatched || !this.#firstMs) return null;
    const seconds = (this.#lastMs - this.#firstMs) / 1000;
    const numTokens = this.usage?.completion_tokens ?? this.#numDeltas;
    return {
      firstTokenS: (this.#firstMs - this.#sentMs) / 1000,
      tokensPerS: seconds > 0 && numTokens > 1 ? (numTokens - 1) / seconds : null,
    };
  }

  #takeChoice({ delta, finish_reason: finishReason }) {
    if (delta.content) this.content += delta.content;
    if (delta.reasoning_content) this.reasoning += delta.reasoning_content;
    for (const call of delta.tool_calls ?? []) this.calls.push(call);
    if (finishReason) this.finishReason = finishReason;
    if (delta.content || delta.reasoning_content || delta.tool_calls) {
      this.#lastMs = performance.now();
      this.#firstMs ||= this.#lastMs;
      this.#numDeltas += 1;
      this.hasBegun.value = true;
    }
  }

  #end() {
    this.state.value = 'over';
    this.#tell();
    return true;
  }

  #tell({ content = '', reasoning_content: reasoning = '' } = {}) {
    for (const listener of this.#listeners) listener({ content: content ?? '', reasoning: reasoning ?? '' });
  }
}
