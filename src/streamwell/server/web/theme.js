// Dark, light, or as the system is.

import { forGood } from './storage.js';
import { effect, signal } from './ui.js';

const STORED = 'streamwell.theme';

export const THEMES = ['system', 'light', 'dark'];
export const theme = signal(THEMES.find((name) => name === forGood.get(STORED)) ?? 'system');

effect(() => {
  forGood.put(STORED, theme.value);
  document.documentElement.dataset.theme = theme.value;
});
