// How a chat is answered: model, system prompt, sampling. Kept with the chat, on the server.

import { signal } from './ui.js';

/** Those of the chat that is open; what is missing is left to the server. */
export const settings = signal({});
/** Whether these are they: while a chat is being opened, nobody knows what a change would replace. */
export const areKnown = signal(true);

export const NUMBERS = [
  { name: 'temperature', label: 'Temperature', min: 0, max: 100, step: 'any', hint: '0 is greedy' },
  { name: 'top_p', label: 'Top p', min: 0, max: 1, step: 'any' },
  { name: 'top_k', label: 'Top k', min: 0, max: 2147483647, step: 1, hint: '0 is off' },
  { name: 'min_p', label: 'Min p', min: 0, max: 1, step: 'any' },
  { name: 'repetition_penalty', label: 'Repetition penalty', min: 0.01, max: 10, step: 'any' },
  { name: 'max_tokens', label: 'Most tokens of an answer', min: 1, max: 2147483647, step: 1 },
  { name: 'seed', label: 'Seed', step: 1, hint: 'the same gives the same answer' },
];

/** The fields of a request; a system prompt is its first message. */
export function requestOptions({ model, system, thinking, tools, ...numbers }) {
  const options = { stream: true, stream_options: { include_usage: true }, messages: [] };
  if (model) options.model = model;
  if (system) options.messages.push({ role: 'system', content: system });
  if (thinking !== undefined) options.chat_template_kwargs = { enable_thinking: thinking };
  if (tools) options.tools = JSON.parse(tools);
  for (const { name } of NUMBERS) if (numbers[name] !== undefined) options[name] = numbers[name];
  return options;
}
