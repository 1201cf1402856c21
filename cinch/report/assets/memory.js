// Memory over time on a canvas: stacked by category, zoomed and read with mouse, fingers or keys.
const LEAST_EVENTS = 8;  // A view shows no fewer.

class MemoryChart {
  // `over`: a history with the same runs whose total is drawn dashed; or null.
  constructor(place, history, over) {
    Object.assign(this, {place, history, over, begin: 0, end: history.size, cursor: -1});
    this.limit = Number(place.dataset.limit) || 0;
    this.build();
    this.listen();
    this.resize();
  }

  build() {
    const bar = element(this.place, "div", {class: "tools", role: "toolbar", "aria-label": "Zoom"});
    const button = (text, label, act) => {
      element(bar, "button", {type: "button", "aria-label": label, title: label}, text).onclick = act;
    };
    button("+", "Zoom in", () => this.zoom(0.5));
    button("−", "Zoom out", () => this.zoom(2));
    button("◀", "Earlier", () => this.pan(-0.5));
    button("▶", "Later", () => this.pan(0.5));
    button("Peak", "Go to the peak", () => this.toPeak());
    button("All", "The whole trace", () => this.show(0, this.history.size));
    this.where = element(bar, "span", {class: "where"});
    this.frame = element(this.place, "div", {class: "frame"});
    const peak = this.history.describe(this.history.peak);
    this.canvas = element(this.frame, "canvas", {
      tabindex: "0", role: "img", "aria-label": "Live bytes over " + number(this.history.size) + " events; peak " +
        sizeText(peak.total) + " at event " + number(peak.event) + ". Arrow keys move along it, plus and minus zoom, " +
        "0 shows all, p goes to the peak."});
    this.hair = element(this.frame, "div", {class: "hairline", hidden: ""});
    this.band = element(this.frame, "div", {class: "band", hidden: ""});
    this.tip = element(this.frame, "div", {class: "tip live-tip", role: "status"});
    const phases = element(this.place, "div", {class: "legend", "aria-label": "Phases"});
    for (const phase of [...new Set(this.history.runs.phase)].sort((a, b) => a - b)) {
      const entry = element(phases, "span", {});
      element(entry, "i", {class: "swatch p-" + this.history.phases[phase]});
      entry.append(this.history.phases[phase]);
    }
    element(this.place, "p", {class: "hint"},
            "Drag over a part to zoom in; double click or 0 for all; Ctrl and wheel, or two fingers, zoom too.");
  }

  resize() {
    this.width = Math.max(240, this.place.clientWidth);
    const narrow = this.width < 560;
    this.height = narrow ? 320 : 400;
    this.left = narrow ? 46 : 62;
    this.right = this.width - 10;
    this.top = 24;
    this.bottom = this.height - 64;
    this.ratio = Math.min(2, window.devicePixelRatio || 1);
    this.canvas.width = Math.round(this.width * this.ratio);
    this.canvas.height = Math.round(this.height * this.ratio);
    this.canvas.style.height = this.height + "px";
    this.draw();
  }

  // Events [begin, end) fill the width. Kept within the trace, and to a least number of events.
  show(begin, end) {
    const size = this.history.size, span = Math.min(size, Math.max(LEAST_EVENTS, end - begin));
    const middle = (begin + end) / 2;
    this.begin = Math.max(0, Math.min(size - span, middle - span / 2));
    this.end = this.begin + span;
    this.draw();
    if (this.cursor >= 0) this.pointAt(this.cursor);
  }
  zoom(factor, around) {
    const fixed = around !== undefined ? around : this.cursor >= this.begin && this.cursor < this.end
                                         ? this.cursor + 0.5 : (this.begin + this.end) / 2;
    this.show(fixed - (fixed - this.begin) * factor, fixed + (this.end - fixed) * factor);
  }
  pan(part) {
    const by = part * (this.end - this.begin);
    this.show(this.begin + by, this.end + by);
  }
  toPeak() {
    const peak = this.history.peak, half = Math.min(this.end - this.begin, this.history.size / 8, 4000) / 2;
    this.show(peak - half, peak + half);
    this.pointAt(peak);
  }

  scales() {
    const highest = Math.max(this.history.total[this.history.peak], this.over ? this.over.total[this.over.peak] : 0);
    this.near = this.limit > 0 && this.limit < 2 * highest;
    this.x = d3.scale.linear().domain([this.begin, this.end]).range([this.left, this.right]);
    this.y = d3.scale.linear().domain([0, 1.07 * (this.near ? Math.max(highest, this.limit) : highest)])
                 .range([this.bottom, this.top]);
  }

  // Left edges on the screen and, for each, the event shown there: every event where there is room, else of each
  // pixel's events the highest.
  columns(history, begin, end) {
    const wide = (this.right - this.left) * this.ratio, edges = [], events = [];
    const first = Math.floor(begin), last = Math.min(history.size, Math.ceil(end));
    const place = event => this.left + (event - begin) / (end - begin) * (this.right - this.left);
    if (end - begin <= wide) {
      for (let event = first; event < last; ++event) {
        edges.push(Math.max(this.left, place(event)));
        events.push(event);
      }
    } else {
      for (let c = 0, from = first; c < wide && from < last; ++c) {
        const to = Math.min(last, Math.max(from + 1, Math.floor(begin + (c + 1) / wide * (end - begin))));
        edges.push(this.left + c / this.ratio);
        events.push(history.highest(from, to));
        from = to;
      }
    }
    edges.push(this.right);
    return {edges, events};
  }

  draw() {
    this.scales();
    const pen = this.pen = this.canvas.getContext("2d"), style = getComputedStyle(this.place);
    const colours = new Map();
    this.colour = name => {
      if (!colours.has(name)) colours.set(name, style.getPropertyValue("--" + name).trim());
      return colours.get(name);
    };
    pen.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    pen.clearRect(0, 0, this.width, this.height);
    pen.font = "12px system-ui,-apple-system,\"Segoe UI\",Roboto,\"DejaVu Sans\",sans-serif";
    pen.lineWidth = 1;
    this.drawGrid();
    this.drawLayers();
    if (this.over) this.drawOutline();
    this.drawPhases();
    if (this.near) this.drawLimit();
    this.drawPeak();
    const all = this.end - this.begin >= this.history.size;
    this.where.textContent = all ? number(this.history.size) + " events"
      : "events " + number(Math.floor(this.begin)) + " to " + number(Math.ceil(this.end) - 1) + " of " +
        number(this.history.size);
    this.hair.hidden = true;
  }

  drawGrid() {
    const pen = this.pen, [unit, name] = bytesIn(this.y.domain()[1]);
    pen.textAlign = "right";
    pen.textBaseline = "middle";
    const inUnit = d3.scale.linear().domain([0, this.y.domain()[1] / unit]);
    for (const tick of inUnit.ticks(6)) {
      const y = Math.round(this.y(tick * unit)) + 0.5;
      pen.strokeStyle = this.colour("grid");
      pen.beginPath();
      pen.moveTo(this.left, y);
      pen.lineTo(this.right, y);
      pen.stroke();
      pen.fillStyle = this.colour("soft");
      pen.fillText(number(tick), this.left - 7, y);
    }
    pen.fillText(name, this.left - 7, this.top - 14);
  }

  drawLayers() {
    const history = this.history, count = history.categories.length, pen = this.pen;
    const {edges, events} = this.columns(history, this.begin, this.end);
    const sums = new Float64Array(count * events.length), live = new Float64Array(count);
    for (let i = 0; i < events.length; ++i) {
      if (i > 0 && events[i] === events[i - 1] + 1) {  // The next event: one step from here.
        const kind = history.events[events[i]];
        live[history.category[kind]] += history.change[kind];
      } else {
        history.liveAt(events[i], live);
      }
      for (let c = 0, sum = 0; c < count; ++c) sums[c * events.length + i] = sum += live[c];
    }
    const scale = (this.bottom - this.top) / this.y.domain()[1], crisp = y => Math.round(y * this.ratio) / this.ratio;
    const top = (c, i) => this.bottom - (c < 0 ? 0 : sums[c * events.length + i] * scale);
    for (let c = count; c-- > 0;) {
      if (!history.occurs[c]) continue;
      pen.fillStyle = this.colour(history.categories[c].key);
      if (events.length * 2 > this.right - this.left) {  // Dense: columns of whole pixels are far faster than an outline.
        for (let i = 0; i < events.length; ++i) {
          const high = crisp(top(c, i)), low = crisp(top(c - 1, i));
          if (low > high) pen.fillRect(crisp(edges[i]), high, crisp(edges[i + 1]) - crisp(edges[i]), low - high);
        }
        continue;
      }
      pen.beginPath();
      pen.moveTo(this.left, this.bottom);
      for (let i = 0; i < events.length; ++i) {
        pen.lineTo(edges[i], top(c, i));
        pen.lineTo(edges[i + 1], top(c, i));
      }
      pen.lineTo(this.right, this.bottom);
      pen.fill();
    }
  }

  // The total of the other history, on this one's time axis.
  drawOutline() {
    const pen = this.pen, over = this.over, wide = Math.round(this.right - this.left);
    pen.strokeStyle = this.colour("line");
    pen.lineWidth = 1.4;
    pen.beginPath();
    let length = wide, before = this.bottom;
    for (let c = 0; c < wide; ++c) {
      const at = part => this.history.placeIn(over, this.begin + part / wide * (this.end - this.begin));
      const from = Math.max(0, Math.min(over.size - 1, Math.floor(at(c))));
      const to = Math.max(from + 1, Math.min(over.size, Math.floor(at(c + 1))));
      const y = this.y(over.total[over.highest(from, to)]);
      pen.lineTo(this.left + c, y);
      pen.lineTo(this.left + c + 1, y);
      length += Math.abs(y - before);
      before = y;
    }
    if (length < 20000) pen.setLineDash([4, 3]);  // Tens of thousands of dashes cannot be told apart, and take long.
    pen.stroke();
    pen.setLineDash([]);
    pen.lineWidth = 1;
  }

  // The strip of phases under the time axis, and the steps under the strip.
  drawPhases() {
    const {history, pen} = this, {begin, step, phase} = history.runs, strip = 16, y = this.bottom + 4;
    pen.textAlign = "center";
    const each = (this.right - this.left) / (this.end - this.begin);  // Not this.x: there may be many runs.
    const place = event => Math.max(this.left, Math.min(this.right, this.left + (event - this.begin) * each));
    const last = history.runOf(Math.min(history.size - 1, Math.ceil(this.end) - 1));
    let drawn = -1, labelled = -1e9, cut = -1e9;
    for (let run = history.runOf(Math.floor(this.begin)); run <= last; ++run) {
      const from = place(begin[run]), to = place(history.runEnd(run));
      if (run > 0 && step[run] !== step[run - 1] && begin[run] >= this.begin && from - cut > 24) this.drawCut(cut = from);
      const ends = run === last || step[run + 1] !== step[run];
      if (ends && to > labelled + 10) labelled = this.drawStep(run, to, labelled);
      if (to - drawn < 0.5) continue;
      drawn = to;
      const name = history.phases[phase[run]];
      pen.fillStyle = this.colour("p-" + name);
      pen.fillRect(from, y, Math.max(0.5, to - from), strip);
      if (to - from < pen.measureText(name).width + 8) continue;
      pen.fillStyle = this.colour("ink");
      pen.fillText(name, (from + to) / 2, y + strip / 2 + 0.5);
    }
    pen.fillStyle = this.colour("soft");
    pen.fillText("time, in allocations and frees", (this.left + this.right) / 2, this.height - 8);
  }
  drawCut(x) {
    this.pen.strokeStyle = this.colour("cut");
    this.pen.beginPath();
    this.pen.moveTo(Math.round(x) + 0.5, this.top);
    this.pen.lineTo(Math.round(x) + 0.5, this.bottom + 38);
    this.pen.stroke();
  }
  // The name of the step that ends with `run`, if it does not touch the one before, which ended at `labelled`.
  drawStep(run, to, labelled) {
    const {begin, step} = this.history.runs;
    let first = run;
    while (first > 0 && step[first - 1] === step[run] && begin[first] > this.begin) --first;
    const from = Math.max(this.left, this.x(begin[first]));
    if ((from + to) / 2 < labelled + 10) return labelled;
    const name = step[run] === 0 ? "start" : "step " + step[run], half = this.pen.measureText(name).width / 2;
    const middle = Math.max(this.left + half, Math.min(this.right - half, (from + to) / 2));
    if (middle - half < labelled + 10) return labelled;
    this.pen.fillStyle = this.colour("soft");
    this.pen.fillText(name, middle, this.bottom + 31);
    return middle + half;
  }

  drawLimit() {
    const y = this.y(this.limit), pen = this.pen;
    pen.strokeStyle = this.colour("bad");
    pen.lineWidth = 1.5;
    pen.setLineDash([6, 4]);
    pen.beginPath();
    pen.moveTo(this.left, y);
    pen.lineTo(this.right, y);
    pen.stroke();
    pen.setLineDash([]);
    pen.lineWidth = 1;
    this.words(this.place.dataset.limitName, this.left + 8, y - 10, "left", "bad");
  }
  drawPeak() {
    const {history, pen} = this, event = history.peak;
    if (event < this.begin || event >= this.end) return;
    const x = this.x(event + 0.5), y = this.y(history.total[event]), atRight = x > (this.left + this.right) / 2;
    pen.beginPath();
    pen.arc(x, y, 4.5, 0, 2 * Math.PI);
    pen.fillStyle = this.colour("card");
    pen.fill();
    pen.strokeStyle = this.colour("line");
    pen.lineWidth = 2;
    pen.stroke();
    pen.lineWidth = 1;
    this.words("peak " + sizeText(history.total[event]), atRight ? x - 11 : x + 11, y, atRight ? "right" : "left", "ink");
  }
  // Text over the drawing, on a rim of the background.
  words(text, x, y, align, colour) {
    const pen = this.pen, font = pen.font;
    pen.font = "600 " + font;
    pen.textAlign = align;
    pen.lineJoin = "round";
    pen.lineWidth = 4;
    pen.strokeStyle = this.colour("card");
    pen.strokeText(text, x, y);
    pen.fillStyle = this.colour(colour);
    pen.fillText(text, x, y);
    pen.lineWidth = 1;
    pen.font = font;
  }

  eventAt(x) {
    const at = this.x.invert(Math.max(this.left, Math.min(this.right - 1, x))), size = this.history.size;
    const each = (this.end - this.begin) / (this.right - this.left);
    const from = Math.max(0, Math.min(size - 1, Math.floor(at)));
    return each <= 1 ? from : this.history.highest(from, Math.min(size, Math.floor(at + each) + 1));
  }

  // Shows what is known of an event beside it.
  pointAt(event) {
    this.cursor = event;
    const x = this.x(event + 0.5);
    if (x < this.left || x > this.right) return this.leave();
    const seen = this.history.describe(event), tip = this.tip;
    tip.textContent = "";
    element(tip, "b", {}, (seen.step ? "step " + seen.step + ", " : "") + seen.phase +
                              (seen.recompute ? ", recomputation" : ""));
    element(tip, "small", {}, "event " + number(event) + " of " + number(this.history.size));
    if (seen.module) element(tip, "code", {}, seen.module);
    if (seen.op) element(tip, "code", {}, seen.op);
    if (seen.change) element(tip, "small", {}, (seen.change > 0 ? "allocates " : "frees ") +
                             number(Math.abs(seen.change)) + " B of " + seen.category);
    const table = element(tip, "table", {});
    const row = (name, size, key) => {
      const line = element(table, "tr", key ? {} : {class: "total"});
      const cell = element(line, "td", {});
      if (key) element(cell, "i", {class: "swatch c-" + key});
      cell.append(name);
      element(line, "td", {class: "n"}, sizeText(size, seen.total));
    };
    for (let c = seen.bytes.length; c-- > 0;) {
      if (seen.bytes[c]) row(this.history.categories[c].label, seen.bytes[c], this.history.categories[c].key);
    }
    row("live", seen.total);
    if (this.over) {
      const at = Math.floor(this.history.placeIn(this.over, event));
      row("predicted", this.over.total[Math.max(0, Math.min(this.over.size - 1, at))]);
    }
    this.hair.hidden = false;
    this.hair.style.cssText = `left:${x}px;top:${this.top}px;height:${this.bottom - this.top}px`;
    tip.style.visibility = "visible";
    const wide = tip.offsetWidth, left = x > this.width / 2 ? x - wide - 12 : x + 12;
    tip.style.left = Math.max(0, Math.min(this.width - wide, left)) + "px";
    tip.style.top = "30px";
  }
  leave() {
    this.cursor = -1;
    this.hair.hidden = true;
    this.tip.style.visibility = "hidden";
  }

  listen() {
    const canvas = this.canvas, fingers = new Map();
    let from = null;  // Where a drag began, and the view then.
    const at = event => event.clientX - canvas.getBoundingClientRect().left;
    const begin = () => {
      const xs = [...fingers.values()];
      from = {xs, begin: this.begin, end: this.end, moved: false};
    };
    canvas.addEventListener("pointerdown", event => {
      if (event.button) return;
      canvas.setPointerCapture(event.pointerId);
      fingers.set(event.pointerId, at(event));
      begin();
      from.touch = event.pointerType === "touch";
    });
    canvas.addEventListener("pointermove", event => {
      if (!fingers.has(event.pointerId)) return this.pointAt(this.eventAt(at(event)));
      fingers.set(event.pointerId, at(event));
      const xs = [...fingers.values()];
      if (Math.abs(xs[0] - from.xs[0]) > 3 || xs.length > 1) from.moved = true;
      if (xs.length > 1 || from.touch) this.drag(from, xs);
      else this.select(from.xs[0], xs[0]);
    });
    const lift = event => {
      if (!fingers.has(event.pointerId)) return;
      const x = at(event);
      fingers.delete(event.pointerId);
      this.band.hidden = true;
      if (fingers.size) return begin();
      if (event.type === "pointercancel") return;
      if (!from.moved) return this.pointAt(this.eventAt(x));
      if (!from.touch) this.showBetween(from.xs[0], x);
    };
    canvas.addEventListener("pointerup", lift);
    canvas.addEventListener("pointercancel", lift);
    canvas.addEventListener("pointerleave", event => { if (event.pointerType === "mouse") this.leave(); });
    canvas.addEventListener("dblclick", () => this.show(0, this.history.size));
    canvas.addEventListener("wheel", event => {
      if (event.ctrlKey || event.metaKey) this.zoom(Math.pow(2, event.deltaY / 200), this.x.invert(at(event)));
      else if (event.shiftKey) this.pan((event.deltaY || event.deltaX) / 800);
      else return;
      event.preventDefault();
    }, {passive: false});
    canvas.addEventListener("keydown", event => this.key(event));
    canvas.addEventListener("blur", () => this.leave());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
    new ResizeObserver(() => { if (this.place.clientWidth && this.place.clientWidth !== this.width) this.resize(); })
        .observe(this.place);
  }
  select(a, b) {
    this.leave();
    this.band.hidden = Math.abs(a - b) <= 3;
    const left = Math.max(this.left, Math.min(a, b)), right = Math.min(this.right, Math.max(a, b));
    this.band.style.cssText = `left:${left}px;width:${Math.max(0, right - left)}px;top:${this.top}px;` +
                              `height:${this.bottom - this.top}px`;
  }
  showBetween(a, b) {
    const low = this.x.invert(Math.max(this.left, Math.min(a, b)));
    this.show(low, this.x.invert(Math.min(this.right, Math.max(a, b))));
  }
  // Fingers hold the events that were under them when they came down.
  drag(from, xs) {
    const wide = this.right - this.left, each = (from.end - from.begin) / wide;
    const held = from.xs.map(x => from.begin + (x - this.left) * each);
    const apart = xs.length > 1 ? Math.max(10, Math.abs(xs[1] - xs[0])) / Math.max(10, Math.abs(from.xs[1] - from.xs[0])) : 1;
    const now = each / apart, begin = held[0] - (xs[0] - this.left) * now;
    this.show(begin, begin + now * wide);
  }
  key(event) {
    const step = Math.max(1, Math.round((this.end - this.begin) / (this.right - this.left))) * (event.shiftKey ? 20 : 1);
    const here = this.cursor >= 0 ? this.cursor : Math.floor((this.begin + this.end) / 2);
    const move = to => {
      const event = Math.max(0, Math.min(this.history.size - 1, to)), span = this.end - this.begin;
      if (event < this.begin || event >= this.end) this.show(event - span / 2, event + span / 2);
      this.pointAt(event);
    };
    const acts = {ArrowLeft: () => move(here - step), ArrowRight: () => move(here + step), Home: () => move(0),
                  End: () => move(this.history.size - 1), "+": () => this.zoom(0.5), "=": () => this.zoom(0.5),
                  "-": () => this.zoom(2), "0": () => this.show(0, this.history.size), p: () => this.toPeak(),
                  Escape: () => this.leave()};
    if (!acts[event.key] || event.ctrlKey || event.metaKey || event.altKey) return;
    acts[event.key]();
    event.preventDefault();
  }
}
