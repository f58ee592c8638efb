"use strict";
// Texts and numbers, as the page of a session and the list of sessions write them. Everything that
// was said is inserted as text, never as markup.

// Control characters, separators of lines that nobody sees, and marks that turn writing around.
const HIDDEN_CHARACTER =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]|\udb40[\udc00-\udc7f]/g;
const NUMBER_FORMAT = new Intl.NumberFormat("en-US", { maximumFractionDigits: 0 });

const byId = (id) => document.getElementById(id);

function element(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, setting] of Object.entries(attributes || {})) {
    if (setting === undefined || setting === null || setting === false) continue;
    if (name === "class") node.className = setting;
    else if (name === "click") node.addEventListener("click", setting);
    else node.setAttribute(name, setting === true ? "" : String(setting));
  }
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === "") continue;
    node.append(child instanceof Node ? child : visibleText(String(child)));
  }
  return node;
}

// Text with a visible sign for each character that would hide or turn something.
function visibleText(text) {
  const fragment = document.createDocumentFragment();
  let position = 0;
  for (const match of text.matchAll(HIDDEN_CHARACTER)) {
    const code = match[0].codePointAt(0);
    const sign = document.createElement("span");
    sign.className = "sign";
    sign.textContent = code < 32 ? String.fromCharCode(0x2400 + code)
      : "U+" + code.toString(16).toUpperCase().padStart(4, "0");
    fragment.append(text.slice(position, match.index), sign);
    position = match.index + match[0].length;
  }
  fragment.append(text.slice(position));
  return fragment;
}

const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
const count = (number) => NUMBER_FORMAT.format(number);
const plural = (number, noun) => count(number) + " " + noun + (number === 1 ? "" : "s");
const share = (part, whole) => (whole ? ((100 * part) / whole).toFixed(part / whole < 0.1 ? 1 : 0) + " %" : "–");
function short(number) {
  if (number >= 999950) return (number / 1e6).toFixed(1) + "M";
  return number >= 1000 ? (number / 1000).toFixed(1) + "k" : String(Math.round(number));
}
function dollars(amount) {
  if (amount === null || amount === undefined) return "unknown";
  if (amount === 0) return "$0";
  return "$" + amount.toFixed(amount >= 10 ? 2 : amount >= 0.1 ? 3 : amount >= 0.0001 ? 4 : 6);
}
const clock = (at) => at === null || at === undefined ? ""
  : new Date(at * 1000).toISOString().replace("T", " ").slice(0, 19) + " UTC";

const fact = (name, figure, note, tone) => element("div", { class: "fact " + (tone || "") },
  element("dt", {}, name), element("dd", {}, element("strong", {}, figure), note ? element("span", {}, note) : ""));

async function decodePayload(payload) {
  const binary = atob(payload);
  const bytes = new Uint8Array(binary.length);
  for (let index = 0; index < binary.length; index += 1) bytes[index] = binary.charCodeAt(index);
  // Not through a Blob: the browser's main process would have to store it first.
  const stream = new DecompressionStream("deflate");
  const writer = stream.writable.getWriter();
  writer.write(bytes);
  writer.close();
  return JSON.parse(await new Response(stream.readable).text());
}

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  byId("theme").textContent = theme === "dark" ? "Light" : "Dark";
}

function startTheme(onChange) {
  setTheme(matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  byId("theme").addEventListener("click", () => {
    setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
    onChange?.();
  });
}
