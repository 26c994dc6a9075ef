// The roofline: what the machine allows at each intensity, and where the candidates stand.

const TRAFFIC = {
  measured: "full dots: DRAM traffic that counters showed",
  derived: "the baseline: operands of its operators, each once",
  least: "hollow dots: the least a call must move, since its traffic was not measured",
};

function drawRoofline(box, search, tree, pick) {
  box.replaceChildren(el("h2", {id: "roofline-title"}, "Roofline"));
  const roof = search.roofline;
  if (!roof) {
    box.append(el("p", {class: "quiet"},
      "There is nothing to draw: the problem counts no floating-point operations, no bandwidth " +
      "was measured, or nothing was timed."));
    return;
  }
  const points = roof.points.filter(([index]) => index === 0 ||
    tree.nodes[index].outcome === ACCEPTED);
  const all = roof.peaks.slice().sort((a, b) => a[1] - b[1]);
  const main = all.find(([name]) => name === roof.dtype) || all[all.length - 1];
  const reached = largest(points.map((p) => p[2]), main ? main[1] : 0) * 2.5;
  const peaks = all.filter(([, peak]) => peak < reached); // roofs far above all are left out
  const ridges = peaks.map(([, peak]) => peak / roof.bandwidth);
  const xs = points.map((p) => p[1]).concat(ridges);
  const low = smallest(xs, Infinity) / 2.5;
  const high = largest(xs, 0) * 4;
  const top = reached;
  const bottom = smallest(points.map((p) => p[2]), Infinity) / 2;
  const axes = new Axes(Math.max(300, box.clientWidth - 32),
    {low, high, log: true, title: "FLOP per byte", tick: short},
    {low: bottom, high: top, log: true, title: "", tick: (v) => amount(v, "").trim()});
  const under = (x) => Math.max(bottom, Math.min(roof.bandwidth * x, top));
  const first = Math.max(low, bottom / roof.bandwidth);
  const highest = peaks.length ? peaks[peaks.length - 1][1] : top;
  const bend = Math.min(high, highest / roof.bandwidth);
  const middle = Math.sqrt(first * bend);
  const hollow = points.filter((p) => p[3] === "least").map(([, x, y]) =>
    `M${axes.atX(x)} ${axes.atY(y)}h0`).join("");
  const place = ([index, x, y]) => [tree.nodes[index], axes.atX(x), axes.atY(y)];
  const spots = points.map(place);
  const at = new Map(points.map((point) => [point[0], point]));
  const way = search.path.filter((index) => at.has(index)).map((index) => place(at.get(index)));
  const hows = [...new Set(points.map((p) => p[3]))];
  const say = roofWords(search, tree, roof, main, at);
  const drawing = svg("svg", {class: "chart", role: "img", "aria-label": say,
    width: axes.width, height: axes.height},
    ...axes.drawn(),
    svg("path", {class: "roof", d: `M${axes.atX(first)} ${axes.atY(under(first))}` +
      `L${axes.atX(bend)} ${axes.atY(under(bend))}`}),
    axes.text(axes.atX(middle) - 10, axes.atY(under(middle)) - 4,
      amount(roof.bandwidth, "B/s"), "end", "roofed"),
    ...peaks.flatMap(([name, peak], i) => [
      svg("path", {class: `roof ${name === main[0] ? "" : "other"}`,
        d: `M${axes.atX(peak / roof.bandwidth)} ${axes.atY(peak)}H${axes.right}`}),
      crowded(peaks, i, main, axes) ? null : axes.text(axes.right - 2, axes.atY(peak) - 5,
        `${words(name)} ${amount(peak, "FLOP/s")}`, "end", "roofed")]),
    svg("path", {class: "way", d: way.map(([, x, y], i) => `${i ? "L" : "M"}${x} ${y}`).join("")}),
    ...dotPaths(spots, 7),
    svg("path", {class: "dots hole", d: hollow, "stroke-width": 3}),
    ...way.slice(-1).map(([, x, y]) => svg("circle", {class: "ring", cx: x, cy: y, r: 7})));
  pickable(box, drawing, spots, pick);
  box.append(el("p", {class: "quiet caption"}, say, " Bytes of ",
    hows.map((how) => TRAFFIC[how]).join("; "), "."));
}

function crowded(peaks, i, main, axes) {
  // A label that would lie on the one above it, or on the main roof's, is left out.
  if (peaks[i] === main) return false;
  const near = (other) => other && Math.abs(axes.atY(peaks[i][1]) - axes.atY(other[1])) < 13;
  return near(main) || near(peaks[i + 1]);
}

function roofWords(search, tree, roof, main, at) {
  const best = search.best === null ? null : at.get(search.best);
  const base = at.get(0);
  const share = ([, x, y]) => y / Math.min(main ? main[1] : Infinity, roof.bandwidth * x);
  const parts = [];
  if (base) parts.push(`the baseline reached ${percent(share(base))} of its roof`);
  if (best) parts.push(`the best ${percent(share(best))}`);
  const text = parts.join(", ");
  return text ? `${text[0].toUpperCase()}${text.slice(1)} ` +
    `(${main ? words(main[0]) : "bandwidth"} and memory, as measured on this machine).` : "";
}
