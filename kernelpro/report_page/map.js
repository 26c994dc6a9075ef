// The whole tree as a drawing: generations downwards, leaves side by side.
// However many steps there are, it is one path of edges and one path of dots for each colour.

const SHADES = ["fail", "slow", "same", "s1", "s2", "s3", "s4", "s5", "flag", "base"];
const HINT = "Drag to move; Ctrl and wheel, or + and -, to zoom";
const MARGIN = 16;
const NEAR = 12; // pixels within which a click means a dot

class TreeMap {
  constructor(shown, pick) {
    this.shown = shown;
    this.pick = pick;
    this.chosen = 0;
    this.view = {zoom: 1, x: 0, y: 0};
    this.drawing = svg("svg", {class: "map", "aria-hidden": "true"});
    const button = (sign, name, act) =>
      el("button", {type: "button", "aria-label": name, title: name, onclick: act}, sign);
    this.box = el("div", {
      class: "map-box", tabindex: 0, role: "group",
      "aria-label": "Map of the tree; the list of steps says the same in words. " +
        "Arrows move, + and - zoom, 0 shows all",
      onkeydown: (event) => this.key(event),
    }, this.drawing, el("div", {class: "zoom"},
      button("+", "Zoom in", () => this.zoom(1.6)),
      button("\u2212", "Zoom out", () => this.zoom(1 / 1.6)),
      button("Fit", "Show the whole tree", () => this.fit())));
    this.listen();
  }

  listen() {
    const box = this.drawing;
    box.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      this.zoom(Math.exp(-event.deltaY / 300), event.offsetX, event.offsetY);
    }, {passive: false});
    box.addEventListener("pointerdown", (event) => {
      this.drag = {x: event.clientX, y: event.clientY, moved: false};
      box.setPointerCapture(event.pointerId);
    });
    box.addEventListener("pointermove", (event) => {
      if (!this.drag) return this.hover(event);
      const [dx, dy] = [event.clientX - this.drag.x, event.clientY - this.drag.y];
      if (Math.abs(dx) + Math.abs(dy) > 3) this.drag.moved = true;
      if (!this.drag.moved) return;
      this.view.x += dx;
      this.view.y += dy;
      Object.assign(this.drag, {x: event.clientX, y: event.clientY});
      this.draw();
    });
    box.addEventListener("pointerup", (event) => {
      const moved = this.drag && this.drag.moved;
      this.drag = null;
      const node = moved ? null : this.nearest(event);
      if (node) this.pick(node.index);
    });
    box.addEventListener("pointerleave", () => tip(0, 0, ""));
  }

  hover(event) {
    const node = this.nearest(event);
    tip(event.clientX, event.clientY, node ? `#${node.index}: ${resultOf(node)}. ${node.title}` : "");
  }

  nearest(event) {
    let found = null;
    let least = NEAR ** 2;
    for (const [node, x, y] of this.spots || []) {
      const distance = (x - event.offsetX) ** 2 + (y - event.offsetY) ** 2;
      if (distance < least) [found, least] = [node, distance];
    }
    return found;
  }

  arrange() {
    // Leaves get the next place across; a parent stands over the middle of its children.
    const {rows} = this.shown;
    this.across = new Map();
    this.leaves = 0;
    this.deepest = 0;
    const ends = new Map();
    for (let i = rows.length - 1; i >= 0; i--) {
      const node = rows[i];
      this.deepest = Math.max(this.deepest, node.depth);
      const span = ends.get(node.index);
      const x = span ? (span[0] + span[1]) / 2 : this.leaves++;
      this.across.set(node.index, x);
      const above = ends.get(node.parent);
      if (above) above[1] = x;
      else ends.set(node.parent, [x, x]);
    }
  }

  place(node) {
    // Later rows were placed first, so the order across is turned round here.
    const width = this.width - 2 * MARGIN;
    const part = this.leaves > 1 ? 1 - this.across.get(node.index) / (this.leaves - 1) : 0.5;
    const level = this.deepest ? node.depth / this.deepest : 0.5;
    return [
      MARGIN + part * width * this.view.zoom + this.view.x,
      MARGIN + level * (this.height - 2 * MARGIN) * this.view.zoom + this.view.y,
    ];
  }

  draw() {
    // However often it is asked for, it is drawn once a frame.
    if (this.asked) return;
    this.asked = requestAnimationFrame(() => {
      this.asked = 0;
      this.drawNow();
    });
  }

  drawNow() {
    this.width = this.drawing.clientWidth || 600;
    this.height = this.drawing.clientHeight || 220;
    const {rows, nodes, hits} = this.shown;
    const apart = (this.width * this.view.zoom) / Math.max(1, this.leaves);
    const size = Math.max(2, Math.min(5, apart / 2.2));
    const inside = (x, y) => x > -20 && y > -20 && x < this.width + 20 && y < this.height + 20;
    const spots = rows.map((node) => [node, ...this.place(node)]);
    const at = new Map(spots.map(([node, x, y]) => [node.index, [x, y]]));
    const edges = {plain: [], best: []};
    const dots = Object.fromEntries(SHADES.map((shade) => [shade, []]));
    const rings = [];
    this.spots = [];
    for (const spot of spots) {
      const [node, x, y] = spot;
      const above = at.get(node.parent);
      if (above && (inside(x, y) || inside(...above))) {
        const curved = apart > 3 || node.best;
        edges[node.best && nodes[node.parent].best ? "best" : "plain"]
          .push(edge(above, [x, y], curved));
      }
      if (!inside(x, y)) continue;
      this.spots.push(spot);
      if (hits[node.index]) dots[node.shade].push(`M${x.toFixed(1)} ${y.toFixed(1)}h0`);
      if (node.index === this.chosen) rings.push([x, y]);
    }
    this.drawing.replaceChildren(
      svg("path", {class: "edge", d: edges.plain.join("")}),
      svg("path", {class: "edge best", d: edges.best.join("")}),
      ...SHADES.map((shade) => svg("path", {
        class: `dots ${shade}`, d: dots[shade].join(""),
        "stroke-width": (2 * size * (shade === "fail" ? 0.75 : 1)).toFixed(1),
      })),
      ...rings.map(([x, y]) => svg("circle", {class: "ring", cx: x, cy: y, r: size + 4})));
  }

  fit() {
    this.view = {zoom: 1, x: 0, y: 0};
    this.draw();
  }

  zoom(factor, x = this.width / 2, y = this.height / 2) {
    const before = this.view.zoom;
    const zoom = Math.max(1, Math.min(400, before * factor));
    const real = zoom / before;
    this.view = {
      zoom,
      x: zoom === 1 ? 0 : (x - MARGIN) * (1 - real) + this.view.x * real,
      y: zoom === 1 ? 0 : (y - MARGIN) * (1 - real) + this.view.y * real,
    };
    this.draw();
  }

  choose(index) {
    this.chosen = index;
    this.draw();
  }

  refresh() {
    this.arrange();
    this.draw();
  }

  key(event) {
    const move = {ArrowLeft: [60, 0], ArrowRight: [-60, 0], ArrowUp: [0, 60], ArrowDown: [0, -60]};
    if (event.ctrlKey || event.metaKey || event.target !== this.box) return;
    if (event.key === "+" || event.key === "=") this.zoom(1.6);
    else if (event.key === "-") this.zoom(1 / 1.6);
    else if (event.key === "0") this.fit();
    else if (move[event.key]) {
      this.view.x += move[event.key][0];
      this.view.y += move[event.key][1];
      this.draw();
    } else return;
    event.preventDefault();
  }
}

function edge([fromX, fromY], [x, y], curved) {
  // Where leaves lie closer than a few pixels a straight line looks the same and is drawn sooner.
  const [a, b, c, d] = [fromX, fromY, x, y].map((value) => value.toFixed(1));
  if (!curved) return `M${a} ${b}L${c} ${d}`;
  const middle = ((fromY + y) / 2).toFixed(1);
  return `M${a} ${b}C${a} ${middle} ${c} ${middle} ${c} ${d}`;
}
