// What internal/history_data.cc packed: live bytes after every event of a trace, and the tensors of its peak.
const BLOCK = 64;  // Events between two states that are kept, and branches of the tree of highest events.

class History {
  static async read(id) {
    const text = atob(document.getElementById("history-" + id).textContent);
    const bytes = new Uint8Array(text.length);
    for (let i = 0; i < text.length; ++i) bytes[i] = text.charCodeAt(i);
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    return new History(new Uint8Array(await new Response(stream).arrayBuffer()));
  }

  constructor(bytes) {
    const length = new DataView(bytes.buffer).getUint32(0, true);
    const data = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + length)));
    Object.assign(this, {names: data.names, phases: data.phases, categories: data.categories, size: data.events,
                         runs: data.runs, tensors: data.tensors, before: data.before});
    for (const column of ["begin", "step"]) {
      let sum = 0;
      this.runs[column] = this.runs[column].map(by => sum += by);
    }
    this.change = Float64Array.from(data.kinds.change);
    this.category = Uint8Array.from(data.kinds.category);
    this.kinds = data.kinds;
    this.readEvents(bytes, 4 + length);
    this.readTotals();
    this.buildTree();
    this.occurs = data.categories.map((_, c) => this.before[c] > 0 || this.category.includes(c) &&
                                      data.kinds.category.some((of, k) => of === c && this.change[k] > 0));
    this.peak = this.highest(0, this.size);
  }

  readEvents(bytes, at) {
    this.events = new Uint32Array(this.size);
    let kind = -1;
    for (let i = 0; i < this.size; ++i) {
      let value = 0, scale = 1, byte;
      do {
        byte = bytes[at++];
        value += (byte & 127) * scale;
        scale *= 128;
      } while (byte > 127);
      kind += 1 + (value % 2 ? -(value + 1) / 2 : value / 2);
      this.events[i] = kind;
    }
  }

  // The total after each event, and the bytes by category before each block of them.
  readTotals() {
    const count = this.categories.length, live = Float64Array.from(this.before);
    this.total = new Float64Array(this.size);
    this.states = new Float64Array(count * Math.ceil(this.size / BLOCK));
    let total = live.reduce((sum, part) => sum + part, 0);
    for (let i = 0; i < this.size; ++i) {
      if (i % BLOCK === 0) this.states.set(live, count * i / BLOCK);
      const kind = this.events[i];
      live[this.category[kind]] += this.change[kind];
      this.total[i] = total += this.change[kind];
    }
  }

  // Of each 64 events, 64 times 64, …: the first of the highest.
  buildTree() {
    this.tree = [];
    for (let below = null, size = this.size; size > 1;) {
      const level = new Uint32Array(Math.ceil(size / BLOCK));
      for (let i = 0; i < size; ++i) {
        const event = below ? below[i] : i, at = Math.floor(i / BLOCK);
        if (i % BLOCK === 0 || this.total[event] > this.total[level[at]]) level[at] = event;
      }
      this.tree.push(level);
      below = level;
      size = level.length;
    }
  }

  // The first event of [begin, end) with the most bytes.
  highest(begin, end) {
    let best = begin;
    for (let at = begin; at < end;) {
      let size = 1, level = -1;
      while (level + 1 < this.tree.length && at % (size * BLOCK) === 0 && at + size * BLOCK <= end) {
        size *= BLOCK;
        ++level;
      }
      const event = level < 0 ? at : this.tree[level][at / size];
      if (this.total[event] > this.total[best]) best = event;
      at += size;
    }
    return best;
  }

  // Bytes by category after an event, into `live`.
  liveAt(event, live) {
    const count = this.categories.length, block = Math.floor(event / BLOCK);
    for (let c = 0; c < count; ++c) live[c] = this.states[block * count + c];
    for (let i = block * BLOCK; i <= event; ++i) live[this.category[this.events[i]]] += this.change[this.events[i]];
    return live;
  }

  runOf(event) { return d3.bisectRight(this.runs.begin, event) - 1; }
  runEnd(run) { return run + 1 < this.runs.begin.length ? this.runs.begin[run + 1] : this.size; }

  // Where an event of this history lies in `other`, which has the same runs.
  placeIn(other, event) {
    const run = Math.min(this.runOf(Math.max(0, Math.min(event, this.size - 1))), other.runs.begin.length - 1);
    const begin = this.runs.begin[run], part = (event - begin) / (this.runEnd(run) - begin);
    return other.runs.begin[run] + part * (other.runEnd(run) - other.runs.begin[run]);
  }

  // All that is known of an event, as plain data.
  describe(event) {
    const kind = this.events[event], run = this.runOf(event), live = new Float64Array(this.categories.length);
    return {event, step: this.runs.step[run], phase: this.phases[this.runs.phase[run]],
            recompute: this.kinds.recompute[kind] === 1, module: this.names[this.kinds.module[kind]],
            op: this.names[this.kinds.op[kind]], change: this.change[kind],
            category: this.categories[this.category[kind]].label, total: this.total[event],
            bytes: Array.from(this.liveAt(event, live))};
  }
}

const number = d3.format(",");
const bytesIn = size => size >= 4294967296 ? [1073741824, "GiB", 2] : size >= 4194304 ? [1048576, "MiB", 1]
                      : size >= 4096 ? [1024, "KiB", 1] : [1, "B", 0];
const sizeText = (size, of) => {
  const [unit, name, digits] = bytesIn(of === undefined ? Math.abs(size) : of);
  return d3.format(",." + digits + "f")(size / unit) + " " + name;
};
const shareText = (part, whole) => {
  const percent = whole > 0 ? 100 * part / whole : 0;
  return part === 0 ? "" : percent < 0.5 ? "<1 %" : Math.round(percent) + " %";
};
// The only way this script writes an element: text is text, never markup.
const element = (parent, tag, attributes, text) => {
  const made = document.createElement(tag);
  for (const name in attributes) made.setAttribute(name, attributes[name]);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.appendChild(made);
  return made;
};
