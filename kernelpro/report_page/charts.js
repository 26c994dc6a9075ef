// Axes that the charts share, and progress: speed-up over time or over steps.

const CHART = {height: 280, left: 56, right: 16, top: 14, bottom: 40};

function scale(low, high, from, to, logarithmic) {
  const map = logarithmic ? Math.log : (value) => value;
  const [a, b] = [map(low), map(high)];
  return (value) => from + (b > a ? (map(value) - a) / (b - a) : 0.5) * (to - from);
}

function ticks(low, high, logarithmic, most = 6) {
  // Round numbers between low and high.
  const found = [];
  if (logarithmic) {
    const decades = Math.log10(high / low);
    const steps = decades > 4 ? [1] : decades > 1.2 ? [1, 2, 5] :
      decades > 0.5 ? [1, 1.5, 2, 3, 5, 7] : [1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 4, 5, 6, 8];
    for (let n = Math.floor(Math.log10(low)); n <= Math.ceil(Math.log10(high)); n++) {
      for (const step of steps) found.push(step * 10 ** n);
    }
  } else {
    const raw = (high - low) / most || 1;
    const size = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((n) => n * size).find((s) => s >= raw);
    for (let value = Math.ceil(low / step) * step; value <= high; value += step) found.push(value);
  }
  return found.filter((value) => value >= low * 0.999 && value <= high * 1.001);
}

class Axes {
  constructor(width, x, y) {
    // x, y: {low, high, log, title, tick: function from a number to its text}
    Object.assign(this, {width, x, y, height: CHART.height});
    this.right = width - CHART.right;
    this.bottom = CHART.height - CHART.bottom;
    this.atX = scale(x.low, x.high, CHART.left, this.right, x.log);
    this.atY = scale(y.low, y.high, this.bottom, CHART.top, y.log);
  }

  drawn() {
    const xs = ticks(this.x.low, this.x.high, this.x.log, this.width / 90);
    const ys = ticks(this.y.low, this.y.high, this.y.log);
    return [
      svg("path", {class: "grid", d: ys.map((v) =>
        `M${CHART.left} ${this.atY(v)}H${this.right}`).join("")}),
      ...ys.map((v) => this.text(CHART.left - 7, this.atY(v) + 4, this.y.tick(v), "end")),
      ...xs.map((v) => this.text(this.atX(v), this.bottom + 17, this.x.tick(v), "middle")),
      svg("path", {class: "axis", d: `M${CHART.left} ${this.bottom}H${this.right}`}),
      this.text((CHART.left + this.right) / 2, this.height - 5, this.x.title, "middle", "named"),
    ];
  }

  text(x, y, text, anchor = "start", kind = "") {
    return svg("text", {x, y, "text-anchor": anchor, class: kind}, text);
  }
}

function pickable(box, drawing, spots, pick) {
  // Steps at places of a drawing: the nearest one is told on hover and picked on a click.
  const nearest = (event) => {
    let [found, least] = [null, 14 ** 2];
    for (const [node, x, y] of spots) {
      const distance = (x - event.offsetX) ** 2 + (y - event.offsetY) ** 2;
      if (distance < least) [found, least] = [node, distance];
    }
    return found;
  };
  drawing.addEventListener("pointermove", (event) => {
    const node = nearest(event);
    tip(event.clientX, event.clientY, node ? `#${node.index}: ${resultOf(node)}. ${node.title}` : "");
  });
  drawing.addEventListener("pointerleave", () => tip(0, 0, ""));
  drawing.addEventListener("click", (event) => {
    const node = nearest(event);
    if (node) pick(node.index, true);
  });
  box.append(drawing);
}

function dotPaths(spots, size) {
  const found = Object.fromEntries(SHADES.map((shade) => [shade, ""]));
  for (const [node, x, y] of spots) found[node.shade] += `M${x.toFixed(1)} ${y.toFixed(1)}h0`;
  return SHADES.filter((shade) => found[shade]).map((shade) =>
    svg("path", {class: `dots ${shade}`, d: found[shade], "stroke-width": size}));
}

function clockOf(node) {
  return node.clock || 0;
}

function drawProgress(box, search, tree, state, pick) {
  const timed = tree.nodes.filter((n) => n.speedup > 0);
  const good = accepted(tree.nodes).filter((n) => n.speedup > 0);
  const light = search.sol_us && search.baseline ? search.baseline.median_us / search.sol_us : null;
  const byStep = state.by === "steps" || !tree.nodes.some(clockOf);
  const where = byStep ? (n) => n.index : clockOf;
  box.replaceChildren(
    el("div", {class: "heading"}, el("h2", {id: "progress-title"}, "Progress"),
      el("div", {class: "switch", role: "group", "aria-label": "Axis of the progress chart"},
        [["time", "time"], ["steps", "steps"]].map(([by, title]) => el("button", {
          type: "button", "aria-pressed": String((by === "steps") === byStep),
          onclick: () => {
            state.by = by;
            drawProgress(box, search, tree, state, pick);
          },
        }, title)))));
  if (!good.length) {
    box.append(el("p", {class: "quiet"}, "No candidate was accepted and timed."));
    return;
  }
  const least = smallest(good.map((n) => n.speedup), 1) * 0.94;
  const most = largest(good.map((n) => n.speedup), Math.max(light || 1, 1)) * 1.08;
  const last = largest(tree.nodes.map(where), 0) || 1;
  const low = Math.max(least, most / 200); // one very slow candidate must not flatten the rest
  const axes = new Axes(Math.max(300, box.clientWidth - 32),
    {low: 0, high: last, log: false, title: byStep ? "step" : "wall time of the search",
      tick: byStep ? short : seconds},
    {low, high: most, log: true, title: "", tick: (v) => `${short(v)}x`});
  const spots = timed.filter((n) => n.index && n.speedup >= low && n.speedup <= most)
    .map((n) => [n, axes.atX(where(n)), axes.atY(n.speedup)]);
  const failed = tree.nodes.filter((n) => n.index && n.speedup === null);
  const line = (ratio, kind, text, below) => [
    svg("path", {class: `line ${kind}`, d: `M${CHART.left} ${axes.atY(ratio)}H${axes.right}`}),
    axes.text(axes.right - 4, axes.atY(ratio) + (below ? 14 : -5), text, "end", kind)];
  let best = 1;
  let way = `M${axes.atX(0)} ${axes.atY(1)}`;
  for (const node of good) {
    if (node.speedup <= best) continue;
    best = node.speedup;
    way += `H${axes.atX(where(node)).toFixed(1)}V${axes.atY(best).toFixed(1)}`;
  }
  const baseline = search.baseline ? search.baseline.baseline : "baseline";
  const held = search.confirmations.filter((c) => c.timing && c.timing.speedup > low);
  const say = `Best of ${plural(good.length, "accepted candidate")} by ` +
    `${byStep ? "step" : "time"}: ${times(best)} the speed of ${baseline}` +
    (light ? `; the speed of light is ${times(light)}` : "");
  const drawing = svg("svg", {class: "chart", role: "img", "aria-label": say,
    width: axes.width, height: axes.height},
    ...axes.drawn(),
    svg("path", {class: "ticks", d: failed.map((n) =>
      `M${axes.atX(where(n)).toFixed(1)} ${axes.bottom - 5}v5`).join("")}),
    ...line(1, "baseline", `${baseline} 1x`, false),
    ...(light ? line(light, "light", `speed of light ${times(light)}`, true) : []),
    svg("path", {class: "best-so-far", d: `${way}H${axes.right}`}),
    ...dotPaths(spots, 7),
    ...held.map((c) => confirmed(axes, c, where(tree.nodes[c.step]))));
  pickable(box, drawing, spots, pick);
  box.append(el("p", {class: "quiet caption"}, `${say}. `,
    failed.length ? `${plural(failed.length, "mark")} at the foot: candidates without a time. ` : "",
    held.length ? "Diamond: judged again from scratch, with its 95 % interval." : ""));
}

function confirmed(axes, confirmation, at) {
  const t = confirmation.timing;
  const [x, y] = [axes.atX(at), axes.atY(t.speedup)];
  const low = axes.atY(Math.max(t.speedup_low || t.speedup, axes.y.low));
  return svg("path", {class: "confirmed",
    d: `M${x} ${low}V${axes.atY(t.speedup_high || t.speedup)}M${x - 6} ${y}l6 -6l6 6l-6 6z`},
  svg("title", {}, `step ${confirmation.step} judged again: ${times(t.speedup)}`));
}
