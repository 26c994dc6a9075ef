// Joins the parts: one chosen step, shown in the list, the map and the panel alike.

const LIVE_MS = 2000; // between two questions of a live page

class Page {
  constructor(facts) {
    this.searches = facts.searches;
    this.progress = {by: "time"};
    this.open(0);
    let asked = 0;
    addEventListener("resize", () => {
      cancelAnimationFrame(asked);
      asked = requestAnimationFrame(() => this.drawCharts());
    });
    addEventListener("beforeprint", () => this.outline.draw(true));
    addEventListener("afterprint", () => this.outline.draw());
  }

  open(at, chosen, kept) {
    this.at = at;
    this.search = this.searches[at];
    this.tree = treeOf(this.search);
    this.shown = new Shown(this.tree.nodes);
    if (kept) {
      const {folded, outcomes, text, only} = kept;
      Object.assign(this.shown, {folded, outcomes, text, only});
    }
    const pick = (index, reveal) => this.pick(index, reveal);
    this.outline = new Outline(this.shown, pick);
    this.map = new TreeMap(this.shown, pick);
    this.panel = new StepPanel(this.search, this.tree, pick);
    byId("file").textContent = this.search.file;
    drawSearches(byId("searches"), this.searches, at, (i) => this.open(i));
    drawResult(byId("result"), this.search, this.tree);
    drawCredit(byId("credit"), this.search);
    drawEnergy(byId("energy"), this.search);
    drawOrigin(byId("origin"), this.search);
    this.drawSteps();
    this.drawCharts();
    const first = chosen === undefined ? this.search.best || 0 : chosen;
    if (this.tree.nodes.length) this.pick(first);
  }

  drawCharts() {
    const pick = (index, reveal) => this.pick(index, reveal);
    drawProgress(byId("progress"), this.search, this.tree, this.progress, pick);
    drawRoofline(byId("roofline"), this.search, this.tree, pick);
    this.map.refresh();
    this.outline.later();
  }

  drawSteps() {
    this.said = el("p", {class: "quiet", role: "status", id: "shown"});
    const title = el("h2", {id: "steps-title"}, "Steps");
    if (!this.tree.nodes.length) {
      byId("steps").replaceChildren(title, el("p", {class: "quiet"}, "No step is recorded yet."));
      return;
    }
    byId("steps").replaceChildren(title,
      this.filters(), this.said, legend(this.tree), this.map.box,
      el("p", {class: "quiet hint"}, HINT),
      el("div", {class: "split"}, this.outline.box, this.panel.box));
    this.filtered();
  }

  filters() {
    const counts = new Map();
    for (const node of this.tree.nodes.slice(1)) {
      counts.set(node.outcome, (counts.get(node.outcome) || 0) + 1);
    }
    const boxes = [...counts].sort((a, b) => b[1] - a[1]).map(([outcome, count]) =>
      el("label", {class: "chip"}, el("input", {type: "checkbox", value: outcome,
        checked: !this.shown.outcomes || this.shown.outcomes.has(outcome),
        onchange: () => this.outcomesChosen()}), `${words(outcome)} `,
      el("span", {class: "count"}, count)));
    this.boxes = boxes.map((label) => label.firstChild);
    const fold = (title, act) => el("button", {type: "button", onclick: () => {
      act(this.shown.folded);
      this.filtered();
    }}, title);
    return el("div", {class: "filters"},
      el("fieldset", {}, el("legend", {class: "hidden"}, "Outcomes shown"), boxes),
      el("label", {}, el("span", {class: "hidden"}, "Only"),
        el("select", {id: "only", onchange: (event) => {
          this.shown.only = event.target.value;
          this.filtered();
        }}, [["all", "all steps"], ["faster", "faster than the baseline"],
          ["best", "path of the winner"]].map(([value, title]) =>
          el("option", {value, selected: this.shown.only === value}, title)))),
      el("input", {type: "search", id: "search", value: this.shown.text, placeholder: "Find: words, detector, #12",
        "aria-label": "Find steps by words, author, detector or number", oninput: (event) => {
          this.shown.text = event.target.value.trim().toLowerCase();
          this.filtered();
        }}),
      el("span", {class: "folds", role: "group", "aria-label": "Fold"},
        fold("Fold all", (folded) => this.tree.nodes.forEach((n) =>
          n.index && n.children.length && folded.add(n.index))),
        fold("Unfold all", (folded) => folded.clear())));
  }

  outcomesChosen() {
    const on = this.boxes.filter((box) => box.checked).map((box) => box.value);
    // The baseline is accepted too; without any filter nothing is dimmed.
    this.shown.outcomes = on.length === this.boxes.length ? null : new Set(on);
    this.filtered();
  }

  filtered() {
    this.shown.update();
    this.map.refresh();
    this.outline.draw();
    const {count, nodes, rows} = this.shown;
    this.said.textContent = count === nodes.length && rows.length === nodes.length ?
      `${plural(nodes.length, "step")}, the baseline first.` :
      `${count} of ${plural(nodes.length, "step")} match; ${rows.length} rows ` +
      "with what they were made from.";
  }

  pick(index, reveal) {
    if (reveal || !this.shown.place.has(index)) this.shown.reveal(index);
    this.map.arrange();
    this.chosen = index;
    this.outline.choose(index);
    this.map.choose(index);
    this.panel.show(index);
  }

  news(facts) {
    const steps = this.search.nodes.length;
    this.searches = facts.searches;
    const latest = this.chosen === this.search.best || this.chosen === undefined;
    const {scrollTop} = this.outline.box;
    this.open(this.at, latest ? undefined : this.chosen, this.shown);
    this.outline.box.scrollTop = scrollTop;
    byId("news").textContent = `live: ${plural(this.search.nodes.length - steps, "new step")}`;
  }
}

function legend(tree) {
  const from = [SAME[1], ...tree.shades];
  const names = {fail: "no time: failed or repeated", slow: "slower", same: "as fast",
    flag: "flagged", base: "baseline"};
  const used = new Set(tree.nodes.map((node) => node.shade));
  return el("ul", {class: "legend", "aria-label": "Colours"},
    SHADES.filter((shade) => used.has(shade)).map((shade) => el("li", {},
      el("span", {class: `dot ${shade}`, "aria-hidden": "true"}),
      names[shade] || `over ${times(from[Number(shade[1]) - 1])}`)));
}

async function watch(page) {
  // Only a page that its own server sent asks; the policy of a file allows no question at all.
  let tag = "";
  for (;;) {
    await new Promise((wake) => setTimeout(wake, LIVE_MS));
    try {
      const answer = await fetch("facts.json", {headers: {"If-None-Match": tag}, cache: "no-store"});
      if (answer.status === 304) continue;
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      tag = answer.headers.get("ETag") || "";
      page.news(await answer.json());
    } catch (error) {
      byId("news").textContent = `live: no answer from kernelpro serve (${error.message})`;
    }
  }
}

const page = new Page(JSON.parse(byId("facts").textContent));
if (document.body.dataset.live === "true") watch(page);
document.body.dataset.ready = "true";
