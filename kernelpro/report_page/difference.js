// Differences of two sources, by lines: E. Myers, An O(ND) difference algorithm, 1986.

const MOST_EDITS = 1200; // beyond that two sources are shown as unlike

function difference(before, after) {
  // Rows [kind, line, place before, place after] with kind " ", "-" or "+".
  let head = 0;
  while (head < before.length && head < after.length && before[head] === after[head]) head++;
  let tail = 0;
  const most = Math.min(before.length, after.length) - head;
  while (tail < most && before[before.length - 1 - tail] === after[after.length - 1 - tail]) tail++;
  const a = before.slice(head, before.length - tail);
  const b = after.slice(head, after.length - tail);
  const middle = edits(a, b) || [...a.map((_, i) => ["-", i, 0]), ...b.map((_, i) => ["+", 0, i])];
  const rows = [];
  for (let i = 0; i < head; i++) rows.push([" ", before[i], i, i]);
  for (const [kind, i, j] of middle) {
    rows.push([kind, kind === "+" ? b[j] : a[i], head + i, head + j]);
  }
  for (let i = tail; i > 0; i--) {
    rows.push([" ", before[before.length - i], before.length - i, after.length - i]);
  }
  return rows;
}

function edits(a, b) {
  // The shortest script from a to b, or null when it has more than MOST_EDITS edits.
  const reach = [];
  let far = new Map([[1, 0]]);
  const limit = Math.min(a.length + b.length, MOST_EDITS);
  for (let d = 0; d <= limit; d++) {
    reach.push(new Map(far));
    for (let k = -d; k <= d; k += 2) {
      const down = k === -d || (k !== d && far.get(k - 1) < far.get(k + 1));
      let x = down ? far.get(k + 1) : far.get(k - 1) + 1;
      while (x < a.length && x - k < b.length && a[x] === b[x - k]) x++;
      far.set(k, x);
      if (x >= a.length && x - k >= b.length) return script(reach, a.length, b.length);
    }
  }
  return null;
}

function script(reach, x, y) {
  const found = [];
  for (let d = reach.length - 1; d >= 0; d--) {
    const far = reach[d];
    const k = x - y;
    const down = k === -d || (k !== d && far.get(k - 1) < far.get(k + 1));
    const from = down ? k + 1 : k - 1;
    const startX = far.get(from);
    const startY = startX - from;
    while (x > startX && y > startY && x > 0 && y > 0) found.push([" ", --x, --y]);
    if (d > 0) found.push(down ? ["+", x, --y] : ["-", --x, y]);
  }
  return found.reverse();
}
