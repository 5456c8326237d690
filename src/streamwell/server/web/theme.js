// Dark, light, or as the system is.

import { effect, signal } from './ui.js';

const STORED = 'streamwell.theme';

export const THEMES = ['system', 'light', 'dark'];
export const theme = signal(THEMES.includes(localStorage.getItem(STORED)) ? localStorage.getItem(STORED) : 'system');

effect(() => {
  localStorage.setItem(STORED, theme.value);
  document.documentElement.dataset.theme = theme.value;
});
