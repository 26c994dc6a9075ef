// The panel of one step: source, findings, counters, verdict, and what was not measured.

const CONTEXT = 3; // unchanged lines around a change
const MOST_LINES = 1500; // drawn at once
const MOST_METRICS = 60;

class StepPanel {
  constructor(search, tree, pick) {
    Object.assign(this, {search, tree, pick, details: new Details(search), whole: false});
    this.box = el("article", {id: "step", class: "step", tabindex: -1,
      "aria-label": "The chosen step"});
  }

  async show(index) {
    this.asked = index;
    const node = this.tree.nodes[index];
    try {
      const [table, own, parent] = await Promise.all([this.details.table(), this.details.of(index),
        node.parent >= 0 ? this.details.of(node.parent) : null]);
      if (this.asked === index) this.fill(node, table, own, parent);
    } catch (error) {
      this.box.replaceChildren(el("p", {}, `This step cannot be shown: ${error.message}`));
    }
  }

  fill(node, facts, own, parent) {
    const again = this.search.confirmations.filter((c) => c.step === node.index);
    this.box.replaceChildren(
      this.head(node, own),
      ...again.map((c) => el("p", {class: "again"},
        `Judged again from scratch: ${words(c.outcome)}${c.timing ? `, ${timingWords(c.timing)}` : ""}`)),
      this.part("Source", sourceOf(this, facts, own, parent, node), true),
      this.part("Findings", findingsOf(own), true, (own.findings || []).length),
      this.part("Verdict", verdictOf(own, again), true),
      this.part("Counters", countersOf(facts, own, parent), false,
        (own.metrics || []).filter((m) => m[1] !== null).length),
      this.part("Not measured", absentOf(facts, own), true),
      this.part("One call", callsOf(own), false, (own.calls || []).length),
      this.part("Build and time spent", buildOf(own), false));
  }

  head(node, own) {
    const link = (n) => el("button", {type: "button", class: "link",
      onclick: () => this.pick(n.index, true)}, `#${n.index}`);
    const parent = this.tree.nodes[node.parent];
    return el("header", {},
      el("h3", {}, `Step ${node.index}`, " ",
        el("span", {class: `badge ${node.shade}`}, node.index ? shortResult(node) : "baseline"),
        this.search.best === node.index && el("span", {class: "badge won"}, "winner")),
      own.timing && el("p", {class: "lead"}, timingWords(own.timing)),
      own.message && el("p", {class: "message"}, own.message),
      own.rationale && el("p", {class: "rationale"}, own.rationale),
      listed([
        ["made from", parent && link(parent)],
        ["led to", node.children.length ? [node.children.slice(0, 12).map((c) => [link(c), " "]),
          node.children.length > 12 && `and ${node.children.length - 12} more`] : null],
        ["author", node.author], ["asked for", own.asked], ["acts on", node.inspired],
        ["language", own.language], ["candidate", own.id && el("code", {}, own.id)],
        ["class", own.class && own.class.text],
        ["energy of a call", own.energy &&
          `${short(own.energy.joules)} J at ${short(own.energy.mean_watts)} W ` +
          `(window of ${seconds(own.energy.window_s)})`],
      ]));
  }

  part(title, content, open, count) {
    return content && el("details", {open},
      el("summary", {}, title, count ? el("span", {class: "count"}, count) : null), content);
  }
}

function timingWords(t) {
  const threads = t.threads ? `, ${plural(t.threads, "thread")}` : "";
  return `${times(t.speedup)} the speed of ${t.baseline} (95 % interval ${short(t.speedup_low)} to ` +
    `${short(t.speedup_high)}): ${duration(t.median_us)} a call against ` +
    `${duration(t.baseline_us)}; ${plural(t.runs, "timed call")}${threads}`;
}

// --- source ---

function sourceOf(panel, facts, own, parent, node) {
  const mine = lineNumbers(own.source || []);
  const box = el("div", {});
  const draw = () => {
    const whole = panel.whole || !parent;
    const rows = whole ? mine.map((line, i) => [" ", line, i, i]) :
      difference(lineNumbers(parent.source || []), mine);
    const changed = rows.filter(([kind]) => kind !== " ").length;
    box.replaceChildren(
      parent && el("div", {class: "switch", role: "group", "aria-label": "What of the source"},
        [[false, `Changes to #${node.parent}`], [true, "Whole source"]].map(([all, title]) =>
          el("button", {type: "button", "aria-pressed": String(all === whole), onclick: () => {
            panel.whole = all;
            draw();
          }}, title))),
      !whole && !changed ? el("p", {class: "quiet"}, "The same source as its parent's.") :
        codeOf(facts.lines, whole ? rows : null, whole ? null : rows));
  };
  draw();
  return box;
}

function codeOf(lines, whole, changes) {
  const shown = whole ? whole.map((row) => ({row})) : hunks(changes);
  const box = el("pre", {class: "code", tabindex: 0, role: "region",
    "aria-label": whole ? "Whole source" : "Changes to the parent's source"});
  const draw = (most) => {
    box.replaceChildren(...shown.slice(0, most).map((item) => item.row ?
      lineOf(lines, item.row) : el("span", {class: "gap"}, `${plural(item.gap, "equal line")}\n`)));
    if (shown.length > most) {
      box.append(el("button", {type: "button", onclick: () => draw(Infinity)},
        `Show all ${shown.length} lines`));
    }
  };
  draw(MOST_LINES);
  return box;
}

function hunks(rows) {
  // Changes with a few lines around them; what is left out between is counted.
  const near = new Uint8Array(rows.length);
  rows.forEach(([kind], i) => {
    if (kind === " ") return;
    near.fill(1, Math.max(0, i - CONTEXT), i + CONTEXT + 1);
  });
  const found = [];
  let gap = 0;
  rows.forEach((row, i) => {
    if (!near[i]) gap += 1;
    if (gap && (near[i] || i === rows.length - 1)) {
      found.push({gap});
      gap = 0;
    }
    if (near[i]) found.push({row});
  });
  return found;
}

function lineOf(lines, [kind, line, before, after]) {
  const name = {" ": "", "+": "added", "-": "removed"}[kind];
  return el("span", {class: `line ${name}`},
    el("span", {class: "number", "aria-hidden": "true"}, (kind === "-" ? before : after) + 1),
    el("span", {class: "sign"}, kind), `${lines[line]}\n`);
}

// --- findings ---

function findingsOf(own) {
  if (!own.findings) return el("p", {class: "quiet"}, "No detector found anything here.");
  const sorted = own.findings.slice().sort((a, b) => b.gain * b.confidence - a.gain * a.confidence);
  return el("ol", {class: "findings"}, sorted.map((d) => el("li", {},
    el("p", {}, el("b", {}, d.bottleneck)),
    el("p", {}, d.why),
    gainOf(d),
    el("p", {class: "quiet"}, [d.detector, d.level && `${d.level} level`, d.kernel, d.where]
      .filter(Boolean).join(" \u00b7 ")),
    (d.actions || []).length ? el("ul", {}, d.actions.map((a) => el("li", {}, a.instruction))) : null,
    d.guard && el("p", {class: "quiet"}, `Not when: ${d.guard}`))));
}

function gainOf(d) {
  const bar = el("span", {class: "bar", "aria-hidden": "true"}, el("span", {}));
  bar.firstChild.style.width = `${100 * d.gain}%`;
  return el("p", {class: "gain"}, bar,
    `estimated to save up to ${percent(d.gain)} of the time; confidence ${percent(d.confidence)}`);
}

// --- verdict ---

function verdictOf(own, again) {
  const verdict = (again.length ? again[again.length - 1].verdict : null) || own.verdict;
  if (!verdict) return el("p", {class: "quiet"}, "It was not judged.");
  const checks = verdict.checks || [];
  const limit = (error, most) => most > 0 && error !== null ? `${short(100 * error / most)} %` : "-";
  return el("div", {},
    listed([
      ["decision", again.length ? `${verdict.decision} (judged again)` : verdict.decision],
      ["reasons", (verdict.reasons || []).map(words).join(", ")],
      ["calls compared", verdict.calls_compared], ["isolation", verdict.isolation],
      ...Object.entries(verdict.evidence || {}),
      ["clock", own.timing && own.timing.clock],
    ]),
    checks.length ? table("Outputs against the float64 reference",
      [["inputs"], ["output", 1], ["rms error", 1], ["of its limit", 1], ["largest error", 1],
        ["of its limit", 1], ["agrees"]],
      checks.map((c) => [c.inputs, c.output, short(c.rms_error), limit(c.rms_error, c.rms_limit),
        short(c.max_error), limit(c.max_error, c.max_limit),
        c.ok ? "yes" : `no${c.note ? `: ${c.note}` : ""}`])) : null);
}

// --- counters ---

function countersOf(facts, own, parent) {
  const rows = (own.metrics || []).filter(([, value]) => value !== null);
  if (!rows.length) return null;
  const before = new Map((parent && parent.metrics || []).map(([place, value]) => {
    const [name, , , , kernel] = facts.metrics[place];
    return [`${name}\n${kernel}`, value];
  }));
  const filter = el("input", {type: "search", placeholder: "Filter counters",
    "aria-label": "Filter counters", oninput: () => draw(MOST_METRICS)});
  const box = el("div", {});
  const draw = (most) => {
    const text = filter.value.toLowerCase();
    const found = rows.map(([place, value]) => [...facts.metrics[place], value])
      .filter(([name, , , , kernel]) => `${name} ${kernel}`.toLowerCase().includes(text));
    box.replaceChildren(table("Counters",
      [["counter"], ["value", 1], ["parent's", 1], ["how"], ["note"]],
      found.slice(0, most).map(([name, unit, how, note, kernel, value]) => [
        el("code", {}, name, kernel && ` (${kernel})`), `${short(value)} ${unit}`,
        short(before.get(`${name}\n${kernel}`)), how, note])));
    if (found.length > most) {
      box.append(el("button", {type: "button", onclick: () => draw(Infinity)},
        `Show all ${found.length}`));
    }
  };
  draw(MOST_METRICS);
  return el("div", {}, rows.length > 12 && filter, box);
}

function absentOf(facts, own) {
  const reasons = new Map();
  for (const [place, value] of own.metrics || []) {
    if (value !== null) continue;
    const [name, , , note] = facts.metrics[place];
    const why = note || "no reason was given";
    reasons.set(why, [...(reasons.get(why) || []), name]);
  }
  const lines = [...reasons].map(([why, names]) => el("li", {},
    `${why}: `, el("span", {class: "quiet"}, names.slice(0, 12).join(", "),
      names.length > 12 && ` and ${names.length - 12} more`)));
  if (!own.timing) lines.push(el("li", {}, "time: it was not timed"));
  if (!own.metrics) lines.push(el("li", {}, "counters: none were collected of this step"));
  if (!own.energy) lines.push(el("li", {}, "energy: none was recorded"));
  return el("ul", {}, lines);
}

// --- one call, build ---

function callsOf(own) {
  const calls = own.calls || [];
  if (!calls.length) return null;
  const most = largest(calls.map((c) => c[1]), 1e-9);
  const shape = (grid, block) => grid.some(Boolean) ? `${grid.join("x")} of ${block.join("x")}` : "";
  return el("div", {},
    table("What one call launches, in order",
      [["kernel or operator"], ["time", 1], ["share of the longest"], ["grid"]],
      calls.slice(0, 200).map(([name, us, grid, block]) => {
        const bar = el("span", {class: "bar"}, el("span", {}));
        bar.firstChild.style.width = `${100 * us / most}%`;
        return [el("code", {}, name), duration(us), bar, shape(grid, block)];
      })),
    calls.length > 200 && el("p", {class: "quiet"}, `and ${calls.length - 200} more`));
}

function buildOf(own) {
  const build = own.build;
  const resources = Object.entries(build && build.resources || {});
  const phases = Object.entries(own.phases || {});
  if (!build && !phases.length) return null;
  return el("div", {},
    listed([
      ["build", build && (build.ok ? build.cached ? "from the cache" : `took ${seconds(build.seconds)}`
        : "refused by the compiler")],
      ...resources.map(([name, value]) => [words(name), short(value)]),
      ["machine code", build && build.machine_code && el("code", {}, build.machine_code)],
      ...phases.map(([name, value]) => [`${name} took`, seconds(value)]),
      ["reward", own.reward],
    ]),
    build && build.log && el("pre", {class: "code", tabindex: 0, role: "region",
      "aria-label": "The compiler's words"}, build.log));
}
