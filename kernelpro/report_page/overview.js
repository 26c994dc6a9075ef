// What the page says before any step is opened, and of the search as a whole.

function drawResult(box, search, tree) {
  const best = search.best === null ? null : tree.nodes[search.best];
  const held = search.confirmations.filter((c) => c.step === search.best && c.timing).pop();
  const t = held ? held.timing : null;
  const speedup = t ? t.speedup : best && best.speedup;
  const us = t ? t.median_us : best && best.us;
  const machine = search.header.machine;
  const tile = (value, name, note) => el("div", {class: "tile"}, el("dd", {}, value),
    el("dt", {}, name, note && el("span", {class: "quiet"}, note)));
  const lines = (title, texts) => texts.length ? el("div", {}, el("h3", {}, title),
    el("ul", {}, texts.map((text) => el("li", {}, text)))) : null;
  const interval = t ? [t.speedup_low, t.speedup_high] : best ? [best.low, best.high] : null;
  box.replaceChildren(
    el("h1", {}, search.name),
    el("p", {class: "lead"}, search.headline),
    el("dl", {class: "tiles"},
      tile(best ? times(speedup) : "none", best ? "speed-up" : "faster kernel",
        interval && interval[0] && `95 %: ${short(interval[0])} to ${short(interval[1])}`),
      search.baseline && best && tile(duration(us), "a call",
        `${search.baseline.baseline} ${duration(t ? t.baseline_us : search.baseline.median_us)}`),
      search.sol_us && us && tile(times(us / search.sol_us), "of the least time",
        `speed of light ${duration(search.sol_us)}, by ${search.bound}`),
      tile(short(Math.max(0, tree.nodes.length - 1)), "candidates", search.counts),
      tile(machine.target === "cuda" ? "GPU" : "CPU", machine.device,
        machine.threads ? plural(machine.threads, "thread") : "")),
    el("div", {class: "pair plain"}, lines("Why it is faster", search.why),
      lines(best ? "What still holds it back" : "What holds the baseline back", search.holds)));
}

function drawSearches(box, searches, at, choose) {
  box.hidden = searches.length < 2;
  if (box.hidden) return;
  box.replaceChildren(el("h2", {}, `${searches.length} searches`),
    table("Searches of this run",
      [["problem"], ["baseline", 1], ["speed-up", 1], ["candidates", 1], ["result"]],
      searches.map((search, i) => {
        const held = search.confirmations.filter((c) => c.step === search.best && c.timing).pop();
        const row = search.best === null ? null : search.nodes[search.best];
        return [el("button", {type: "button", class: "link", "aria-pressed": String(i === at),
          onclick: () => choose(i)}, search.name),
        search.baseline ? duration(search.baseline.median_us) : "-",
        row ? times(held ? held.timing.speedup : row[2]) : "-",
        Math.max(0, search.nodes.length - 1),
        row ? held ? "judged again" : "as measured in the search" : "nothing faster"];
      })));
}

function drawCredit(box, search) {
  box.replaceChildren(el("h2", {id: "credit-title"}, "What each detector was worth"));
  if (!search.credit.length) {
    box.append(el("p", {class: "quiet"}, "No detector fired in this search."));
    return;
  }
  const most = largest(search.credit.map((c) => c.fires), 1);
  box.append(
    el("p", {class: "quiet"}, "Fires: steps in which it found something. Tries: candidates that " +
      "acted on one of its findings. Hits: those that were accepted and at least 1.02 times as " +
      "fast as their parent. Gain: geometric mean of the hits over their parents."),
    table("Credit of each detector",
      [["detector"], ["fires", 1], [""], ["tries", 1], ["hits", 1], ["gain", 1]],
      search.credit.map((c) => {
        const bar = el("span", {class: "bar", "aria-hidden": "true"}, el("span", {}));
        bar.firstChild.style.width = `${100 * c.fires / most}%`;
        return [el("code", {}, c.name), c.fires, bar, c.tries, c.hits, times(c.gain)];
      })));
}

function drawEnergy(box, search) {
  // Only what was recorded is shown; nothing is worked out from power and time.
  box.hidden = !search.energy.length;
  if (box.hidden) return;
  box.replaceChildren(el("h2", {id: "energy-title"}, "Energy"),
    table("Energy of a call", [["step"], ["energy", 1], ["mean power", 1], ["window", 1]],
      search.energy.map(([index, joules, watts, window]) =>
        [`#${index}`, `${short(joules)} J`, `${short(watts)} W`, seconds(window)])));
}

function drawOrigin(box, search) {
  const {problem, machine, environment, settings, seed, started_at: started} = search.header;
  const spec = (s) => `${s.name ? `${s.name} ` : ""}${s.dtype}[${s.shape.join(", ")}]`;
  const flops = Object.entries(machine.flops_per_s || {});
  const all = (values) => Object.entries(values || {}).map(([name, value]) => [words(name),
    typeof value === "object" ? JSON.stringify(value) : String(value)]);
  box.replaceChildren(el("h2", {id: "origin-title"}, "Where it comes from"),
    el("div", {class: "columns"},
      el("div", {}, el("h3", {}, "Problem"), listed([
        ["origin", problem.origin], ["inputs", problem.inputs.map(spec).join(", ")],
        ["outputs", problem.outputs.map(spec).join(", ")],
        ["parameters", problem.parameters.map(spec).join(", ")],
        ["least work of a call", `${amount(problem.flops, "FLOP")}, ` +
          amount(problem.min_bytes, "B")],
        ["precision", problem.precision],
        ["operators", Object.entries(problem.operators || {}).map(([n, c]) => `${c} ${n}`).join(", ")],
      ])),
      el("div", {}, el("h3", {}, "Machine, as measured"), listed([
        ["device", machine.device], ["threads", machine.threads || null],
        ["memory bandwidth", machine.bandwidth_bytes_per_s &&
          amount(machine.bandwidth_bytes_per_s, "B/s")],
        ...flops.map(([name, value]) => [words(name), amount(value, "FLOP/s")]),
        ["speed of light by datasheet", search.sheet_us && duration(search.sheet_us)],
        ...all(environment),
      ])),
      el("div", {}, el("h3", {}, "Search"), listed([
        ["memory file", search.file], ["began", started], ["seed", String(seed)],
        ...all(settings && settings.policy).map(([name, value]) =>
          [name === "name" ? "policy" : name, value]),
      ]))));
}
