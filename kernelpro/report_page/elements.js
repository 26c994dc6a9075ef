// Elements and numbers. A text is always set as text, never as markup.

const SVG_SPACE = "http://www.w3.org/2000/svg";

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  node.append(...children.flat(Infinity).filter((c) => c || c === 0));
  return node;
}

function el(tag, attributes, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

function svg(tag, attributes, ...children) {
  return filled(document.createElementNS(SVG_SPACE, tag), attributes, children);
}

function byId(id) {
  return document.getElementById(id);
}

function duration(us) {
  if (us === null || us === undefined) return "not measured";
  if (us < 1000) return `${short(us)} us`;
  return us < 1e6 ? `${short(us / 1000)} ms` : `${short(us / 1e6)} s`;
}

function seconds(value) {
  if (value > 0 && value < 1) return duration(value * 1e6);
  return value < 120 ? `${short(value)} s` : `${short(value / 60)} min`;
}

function short(value) {
  if (value === null || value === undefined) return "-";
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e15 || size < 1e-4) return value.toExponential(2);
  if (size >= 1000) return String(Math.round(value)).replace(/\B(?=(\d{3})+$)/g, ",");
  return String(Number(value.toPrecision(3)));
}

function amount(value, unit) {
  // A large number with a prefix of the SI: 3.11 TB/s.
  for (const [size, prefix] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (value >= size) return `${short(value / size)} ${prefix}${unit}`;
  }
  return `${short(value)} ${unit}`;
}

function largest(values, start) {
  // Of any number of values; a call with that many arguments would fail.
  return values.reduce((found, value) => (value > found ? value : found), start);
}

function smallest(values, start) {
  return values.reduce((found, value) => (value < found ? value : found), start);
}

function times(ratio) {
  return ratio === null || ratio === undefined ? "-" : `${ratio.toFixed(ratio < 10 ? 2 : 1)}x`;
}

function percent(share) {
  return `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`;
}

function words(name) {
  return name.replaceAll("_", " ");
}

function plural(count, word) {
  return `${short(count)} ${word}${count === 1 ? "" : "s"}`;
}

function table(caption, heads, rows, options = {}) {
  // heads: [title, is a number]; rows: lists of cells, texts or elements.
  return el("div", {class: "scroll", tabindex: 0, role: "region", "aria-label": caption},
    el("table", {class: options.class},
      el("caption", {class: "hidden"}, caption),
      el("thead", {}, el("tr", {}, heads.map(([title, number]) =>
        el("th", {scope: "col", class: number && "number"}, title)))),
      el("tbody", {}, rows.map((row) => el("tr", {}, row.map((cell, at) =>
        el(at ? "td" : "th", {scope: at ? null : "row", class: heads[at][1] && "number"},
          cell)))))));
}

function listed(pairs) {
  // Names and values; pairs without a value are left out.
  return el("dl", {class: "facts"}, pairs.filter(([, value]) => value || value === 0).map(
    ([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))));
}

function tip(x, y, text) {
  const box = byId("tip");
  box.hidden = !text;
  if (!text) return;
  box.textContent = text;
  const wide = box.offsetWidth;
  box.style.left = `${Math.max(4, Math.min(x + 12, window.innerWidth - wide - 8))}px`;
  box.style.top = `${y + 14}px`;
}
