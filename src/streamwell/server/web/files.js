// Text files that are asked about: they become part of the message.

const MAX_BYTES = 256 * 1024;

/** `{name, text}` of a file. Throws `Error` for what is too large or no text. */
export async function readText(file) {
  if (file.size > MAX_BYTES) throw new Error(`${file.name} has over ${MAX_BYTES / 1024} KiB`);
  let text;
  try {
    text = new TextDecoder('utf-8', { fatal: true }).decode(await file.arrayBuffer());
  } catch {
    throw new Error(`${file.name} is no text in UTF-8`);
  }
  if (text.includes('\0')) throw new Error(`${file.name} is no text`);
  return { name: file.name, text };
}

/** A message with its files, each in a fence that is longer than any within it. */
export function withFiles(text, files) {
  const parts = files.map((file) => {
    const longest = Math.max(2, ...Array.from(file.text.matchAll(/`{3,}/g), ([marks]) => marks.length));
    const fence = '`'.repeat(longest + 1);
    return `${file.name}:\n${fence}\n${file.text.replace(/\n$/, '')}\n${fence}`;
  });
  return [...parts, text].filter((part) => part.trim()).join('\n\n');
}
