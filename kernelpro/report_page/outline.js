// The tree as a list that can be folded; only the rows in view are elements.

const ROW = 30; // pixels; as in page.css
const SPARE = 12; // rows beyond the view
const PRINTED = 400; // rows on paper
const DEEPEST = 16; // levels that are indented; below, the level is only said

class Outline {
  constructor(shown, pick) {
    this.shown = shown;
    this.pick = pick;
    this.chosen = 0;
    this.space = el("div", {class: "space", role: "presentation"});
    this.box = el("div", {
      class: "outline", id: "outline", role: "tree", tabindex: 0,
      "aria-label": "Steps, each below the one that it was made from",
      onscroll: () => this.later(), onkeydown: (event) => this.key(event),
      onclick: (event) => this.click(event),
    }, this.space);
  }

  later() {
    if (this.asked) return;
    this.asked = true;
    requestAnimationFrame(() => {
      this.asked = false;
      this.draw();
    });
  }

  draw(everything = false) {
    const rows = this.shown.rows;
    this.space.style.height = `${rows.length * ROW}px`;
    const top = Math.max(0, Math.floor(this.box.scrollTop / ROW) - SPARE);
    const end = Math.ceil((this.box.scrollTop + this.box.clientHeight) / ROW) + SPARE;
    const [first, last] = everything ? [0, PRINTED] : [top, end];
    const active = this.shown.place.get(this.chosen);
    const items = rows.slice(first, last).map((node, i) => this.row(node, first + i));
    if (active !== undefined && (active < first || active >= last)) {
      items.push(this.row(rows[active], active)); // what the focus is on must exist
    }
    this.space.replaceChildren(...items);
    if (active === undefined) this.box.removeAttribute("aria-activedescendant");
    else this.box.setAttribute("aria-activedescendant", `step-${this.chosen}`);
  }

  row(node, at) {
    const folded = this.shown.folded.has(node.index);
    const parent = this.shown.nodes[node.parent];
    const same = parent ? parent.children.filter((c) => this.shown.kept[c.index]) : [node];
    const item = el("div", {
      id: `step-${node.index}`, role: "treeitem", "data-index": node.index,
      class: `row ${this.shown.hits[node.index] ? "" : "dim"} ${node.best ? "best" : ""} ` +
        `${node.won ? "won" : ""}`,
      "aria-level": node.depth + 1, "aria-setsize": same.length,
      "aria-posinset": same.indexOf(node) + 1,
      "aria-selected": node.index === this.chosen ? "true" : "false",
      "aria-expanded": node.children.length ? String(!folded) : null,
      "aria-label": `step ${node.index}, ${resultOf(node)}, ${node.title}`,
    },
    el("span", {class: "indent"}),
    el("span", {class: "fold", "aria-hidden": "true"},
      node.children.length ? (folded ? "\u25b8" : "\u25be") : ""),
    el("span", {class: `dot ${node.shade}`, "aria-hidden": "true"}),
    el("span", {class: "index"}, `#${node.index}`),
    el("span", {class: "ratio"}, node.index ? shortResult(node) : duration(node.us)),
    el("span", {class: "title"}, node.title || "no words were given"),
    folded && el("span", {class: "count"}, `+${node.below}`));
    item.style.top = `${at * ROW}px`;
    item.firstChild.style.width = `${Math.min(node.depth, DEEPEST) * 14}px`;
    return item;
  }

  choose(index) {
    this.chosen = index;
    const at = this.shown.place.get(index);
    if (at !== undefined) {
      const top = at * ROW;
      const {scrollTop, clientHeight} = this.box;
      if (top < scrollTop || top + ROW > scrollTop + clientHeight) {
        this.box.scrollTop = Math.max(0, top - clientHeight / 3);
      }
    }
    this.draw();
  }

  fold(index, folded) {
    this.shown.folded[folded ? "add" : "delete"](index);
    this.shown.update();
    this.pick(index);
  }

  click(event) {
    const item = event.target.closest(".row");
    if (!item) return;
    const index = Number(item.dataset.index);
    if (event.target.closest(".fold") && this.shown.nodes[index].children.length) {
      this.fold(index, !this.shown.folded.has(index));
    } else this.pick(index);
  }

  key(event) {
    const {rows, nodes, place, folded} = this.shown;
    if (!rows.length || event.ctrlKey || event.metaKey || event.altKey) return;
    const at = place.has(this.chosen) ? place.get(this.chosen) : 0;
    const node = nodes[rows[at].index];
    const page = Math.max(1, Math.floor(this.box.clientHeight / ROW) - 1);
    const to = {ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1,
      PageDown: at + page, PageUp: at - page}[event.key];
    if (to !== undefined) {
      this.pick(rows[Math.max(0, Math.min(rows.length - 1, to))].index);
    } else if (event.key === "ArrowRight") {
      if (folded.has(node.index)) this.fold(node.index, false);
      else if (rows[at + 1] && rows[at + 1].parent === node.index) this.pick(rows[at + 1].index);
    } else if (event.key === "ArrowLeft") {
      if (node.children.length && !folded.has(node.index)) this.fold(node.index, true);
      else if (node.parent >= 0) this.pick(node.parent);
    } else if (event.key === "Enter" || event.key === " ") {
      byId("step").focus();
    } else return;
    event.preventDefault();
  }
}

function resultOf(node) {
  if (node.index === 0) return `the baseline, ${duration(node.us)} a call`;
  const ratio = node.speedup === null ? "" :
    `${times(node.speedup)} the baseline's speed, ${duration(node.us)} a call`;
  return node.outcome === ACCEPTED ? ratio || "accepted, not timed" :
    [words(node.outcome), ratio].filter(Boolean).join(", ");
}

function shortResult(node) {
  if (node.outcome === ACCEPTED) return node.speedup === null ? "not timed" : times(node.speedup);
  return words(node.outcome).replace(" result", "").replace(" error", "");
}
