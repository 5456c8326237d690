// What components are made with.

import htm from './vendor/htm.js';
import { h } from './vendor/preact.js';

export { render } from './vendor/preact.js';
export { useEffect, useLayoutEffect, useRef, useState } from './vendor/preact-hooks.js';
export { batch, computed, effect, signal } from './vendor/signals.js';

export const html = htm.bind(h);
