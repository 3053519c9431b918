// What every part of the page uses: elements, numbers as text, and how each number came about.
// Names come from files that nobody vouches for: they become text nodes and attribute values, never markup, and what
// would turn the text around them, or be no sign at all, is shown by its code.

const SVG = "http://www.w3.org/2000/svg";

/** Make an element; `on...` attributes are listeners, and strings among the children are text. */
function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : SHOWN.has(name) ? visible(value) : value);
  }
  element.append(...shownNodes(children));
  return element;
}

function replaceChildren(element, ...children) {
  element.replaceChildren(...shownNodes(children));
}

const shownNodes = (children) => children.flat(Infinity).filter((child) => child !== null && child !== undefined)
  .map((child) => typeof child === "string" ? visible(child) : child);

// Attributes that people see or hear.
const SHOWN = new Set(["aria-label", "title"]);
const UNSEEN = /[\p{C}\p{Zl}\p{Zp}]|(?! )\p{Zs}/gu;

/** Text in which what has no sign of its own is written as its code, as commands show it in a terminal. */
function visible(text) {
  return text.replace(UNSEEN, (sign) => sign === "\n" ? sign : sign < " " ? CONTROLS[sign] ?? `\\x${codeOf(sign, 2)}`
    : sign.split("").map((unit) => `\\u${codeOf(unit, 4)}`).join(""));
}

const CONTROLS = { "\t": "\\t", "\r": "\\r" };
const codeOf = (unit, digits) => unit.charCodeAt(0).toString(16).padStart(digits, "0");

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

function bytesText(count) {
  let size = count, unit = 0;
  while (Math.abs(size) >= 1023.5 && unit < UNITS.length - 1) { size /= 1024; unit += 1; }
  return unit === 0 ? `${count} B` : `${size.toFixed(Math.abs(size) >= 100 ? 0 : Math.abs(size) >= 10 ? 1 : 2)} ${UNITS[unit]}`;
}

/** The size of a tensor; "open" where only a run knows it, which files store as 0. */
const sizeText = ({ bytes, shape }) => bytes || shape?.includes(0) ? bytesText(bytes) : "open";

/** The type of a tensor: what the model says, then what kernels of the host compute in, where that is another one. */
const dtypeText = ({ declared, dtype }) => declared ? `${declared}/${dtype}` : dtype;

/** An option of the compiler as it stands in the file. */
const optionText = (value) => typeof value === "string" ? value : JSON.stringify(value);

/** The same in the types of the model, as estimates count it. */
const deviceSize = (symbol) => sizeText({ bytes: symbol.device_bytes, shape: symbol.shape });

function timeText(us) {
  const size = Math.abs(us);
  if (size < 999.5) return `${threeDigits(us)} us`;
  return size < 999.5e3 ? `${threeDigits(us / 1e3)} ms` : `${threeDigits(us / 1e6)} s`;
}

function countText(count) {
  const prefixes = ["", "k", "M", "G", "T", "P", "E"];
  let value = count, at = 0;
  while (Math.abs(value) >= 999.5 && at < prefixes.length - 1) { value /= 1000; at += 1; }
  return `${threeDigits(value)} ${prefixes[at]}`;
}

function threeDigits(value) {
  return Math.abs(value) >= 999.5 ? Math.round(value).toLocaleString("en") : String(Number(value.toPrecision(3)));
}

/** A number of the device with its unit, as people write it. */
function quantity({ value, unit }) {
  if (unit === "B") return bytesText(value);
  if (unit === "s") return timeText(1e6 * value);
  if (unit.endsWith("/s")) return `${countText(value)}${unit}`;
  return unit === "share" ? String(value) : `${stated(value)} ${unit}`;
}

const sourced = (row) => `${row.name} = ${quantity(row)} (${row.origin}: ${row.source})`;

const exact = (number) => number.toLocaleString("en", { maximumFractionDigits: 3 });
// As it stands in the file; only whole numbers are grouped.
const stated = (number) => Number.isInteger(number) ? exact(number) : String(number);
const percent = (share) => share > 0 && share < 0.0005 ? "under 0.1 %" : `${(100 * share).toFixed(share < 0.0995 && share > 0 ? 1 : 0)} %`;
const hex = (address) => `0x${address.toString(16)}`;
const shapeText = (shape) => shape === null ? "?" : shape.length ? shape.map((size) => size ?? "?").join(" x ") : "scalar";
const shortened = (text, most) => cut(visible(text), most);
const cut = (text, most) => text.length <= most ? text : `${text.slice(0, Math.ceil(most / 2) - 1)}…${text.slice(text.length - Math.floor(most / 2))}`;
const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);
const modelled = () => el("span", { class: "modelled", title: "an estimate of the cost model; nothing was measured" }, "modelled");

function plural(count, noun) {
  return `${exact(count)} ${noun}${count === 1 ? "" : "s"}`;
}

/** Show how a number came about, one click away. */
function how(...lines) {
  return el("details", {}, el("summary", {}, "how computed"), el("div", { class: "how" }, lines.flat().join("\n")));
}

const TERMS = ["launch", "fill", "held", "compute", "streams", "link"];
const MEANING = {
  launch: "starting the section's program",
  fill: "until the last stage of the pipeline has its first data",
  held: "moving what is kept on chip as a whole",
  compute: "the slowest operator on its share of the compute units",
  streams: "moving all else that crosses the border of the section",
  link: "collectives between chips",
};
const colour = (name) => `var(--${name})`;

/** A bar of parts: [[share of the whole, colour, text], ...]. */
function bar(parts) {
  return el("div", { class: "bar" }, parts.map(([share, paint, text]) => {
    const part = el("i", { title: text });
    part.style.width = `${(100 * Math.min(Math.max(share, 0), 1)).toFixed(3)}%`;
    part.style.background = paint;
    return part;
  }));
}

function legend(pairs) {
  return el("div", { class: "legend" }, pairs.map(([name, paint, title]) => {
    const box = el("i");
    box.style.background = paint;
    return el("span", { title }, box, name);
  }));
}

const tip = () => document.getElementById("tip");

function showTip(event, text) {
  const box = tip();
  box.textContent = visible(text);
  box.hidden = false;
  const { innerWidth: width, innerHeight: height } = window;
  box.style.left = `${Math.min(event.clientX + 14, width - box.offsetWidth - 8)}px`;
  box.style.top = `${event.clientY + 18 + box.offsetHeight > height ? event.clientY - box.offsetHeight - 8 : event.clientY + 18}px`;
}

function hideTip() {
  tip().hidden = true;
}
