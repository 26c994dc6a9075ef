// Inflates what is shown on demand: the table of source lines and the packs of steps.

const PACK_STEPS = 64; // as in packing.py

async function inflated(text) {
  if (!("DecompressionStream" in window)) {
    throw new Error("this browser has no DecompressionStream, which opening a step needs; " +
      "use one of 2023 or later");
  }
  const raw = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([raw]).stream().pipeThrough(new DecompressionStream("deflate-raw"));
  return JSON.parse(await new Response(stream).text());
}

class Details {
  constructor(search) {
    this.search = search;
    this.kept = new Map();
  }

  once(name, text) {
    if (!this.kept.has(name)) this.kept.set(name, inflated(text));
    return this.kept.get(name);
  }

  table() {
    return this.once("table", this.search.table);
  }

  async of(index) {
    const place = Math.floor(index / PACK_STEPS);
    return (await this.once(place, this.search.packs[place]))[index % PACK_STEPS];
  }
}

function lineNumbers(runs) {
  // Places of a source's lines in the table, from its runs.
  const found = [];
  for (let i = 0; i < runs.length; i += 2) {
    for (let k = 0; k < runs[i + 1]; k++) found.push(runs[i] + k);
  }
  return found;
}
