// What components are made with.

import htm from './vendor/htm.js';
import { h } from './vendor/preact.js';

export { render } from './vendor/preact.js';
export { useEffect, useLayoutEffect, useRef, useState } from './vendor/preact-hooks.js';
export { batch, computed, effect, signal } from './vendor/signals.js';

/** The key belongs to what is being put together, a word in Chinese, say; Safari tells it by 229 alone. */
export const isComposing = (event) => event.isComposing || event.keyCode === 229;

export const html = htm.bind(h);
