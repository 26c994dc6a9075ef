// The tree of one search, and which of it is shown: folds and filters.

const ACCEPTED = "accepted";
const SAME = [0.98, 1.02]; // ratios that a timing cannot tell from one

function treeOf(search) {
  // Columns as facts.py writes them; a parent comes before its children.
  const text = (place) => search.words[place];
  const nodes = search.nodes.map((row, index) => ({
    index,
    parent: row[0],
    outcome: text(row[1]),
    speedup: row[2],
    low: row[3],
    high: row[4],
    us: row[5],
    clock: row[6],
    title: text(row[7]),
    author: text(row[8]),
    inspired: text(row[9]),
    detectors: row[10].map(text),
    children: [],
    below: 0, // descendants
    depth: 0,
    best: false,
  }));
  for (const node of nodes) {
    if (node.parent < 0) continue;
    nodes[node.parent].children.push(node);
    node.depth = nodes[node.parent].depth + 1;
  }
  for (let i = nodes.length - 1; i > 0; i--) nodes[nodes[i].parent].below += 1 + nodes[i].below;
  for (const index of search.path) nodes[index].best = true; // on the way to the winner
  if (search.best !== null) nodes[search.best].won = true;
  const top = largest(accepted(nodes).map((node) => node.speedup), 1.2);
  const shades = shadesUpTo(top);
  for (const node of nodes) node.shade = shadeOf(node, shades);
  return {nodes, shades};
}

function accepted(nodes) {
  return nodes.filter((node) => node.index && node.outcome === ACCEPTED && node.speedup !== null);
}

function shadesUpTo(top) {
  // Ends of five equal steps on a logarithmic scale from "no slower" to the fastest.
  const step = Math.log(top / SAME[1]) / 5;
  return [1, 2, 3, 4].map((n) => SAME[1] * Math.exp(n * step));
}

function shadeOf(node, shades) {
  if (node.index === 0) return "base";
  if (node.outcome === "flagged") return "flag";
  if (node.outcome !== ACCEPTED || node.speedup === null) return "fail";
  if (node.speedup < SAME[0]) return "slow";
  if (node.speedup <= SAME[1]) return "same";
  return `s${1 + shades.filter((end) => node.speedup > end).length}`;
}

class Shown {
  // Which nodes are shown; `rows` follows from folds and filters.
  constructor(nodes) {
    this.nodes = nodes;
    this.folded = new Set();
    this.outcomes = null; // all
    this.text = "";
    this.only = "all"; // or "best", "faster"
    this.update();
  }

  matches(node) {
    if (this.outcomes && !this.outcomes.has(node.outcome)) return false;
    if (this.only === "best" && !node.best) return false;
    if (this.only === "faster" &&
        !(node.outcome === ACCEPTED && node.index && node.low > SAME[1])) return false;
    if (!this.text) return true;
    const where = [`#${node.index}`, node.title, node.author, words(node.outcome), node.inspired,
      ...node.detectors];
    return where.some((part) => part.toLowerCase().includes(this.text));
  }

  update() {
    // A match keeps its ancestors, so that the tree stays joined.
    this.hits = this.nodes.map((node) => this.matches(node));
    this.kept = this.hits.slice();
    for (let i = this.nodes.length - 1; i > 0; i--) {
      if (this.kept[i]) this.kept[this.nodes[i].parent] = true;
    }
    this.rows = [];
    const stack = this.nodes.length && this.kept[0] ? [this.nodes[0]] : [];
    while (stack.length) {
      const node = stack.pop();
      this.rows.push(node);
      if (this.folded.has(node.index)) continue;
      for (let i = node.children.length - 1; i >= 0; i--) {
        if (this.kept[node.children[i].index]) stack.push(node.children[i]);
      }
    }
    this.place = new Map(this.rows.map((node, row) => [node.index, row]));
    this.count = this.hits.reduce((sum, hit) => sum + hit, 0);
  }

  reveal(index) {
    // Unfold what hides a node.
    for (let node = this.nodes[index]; node && node.parent >= 0;) {
      node = this.nodes[node.parent];
      this.folded.delete(node.index);
    }
    this.update();
  }
}
