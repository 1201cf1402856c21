// The peak opened: what lives there as a treemap by module, and as a table of tensors.

// A module: {name, path, bytes, count, parts (bytes by category), children, tensors (indices)}.
const moduleTree = history => {
  const {bytes, category, name, module} = history.tensors, count = history.categories.length;
  const parameters = parametersOf(history);
  const make = (label, path) => ({name: label, path, bytes: 0, count: 0, parts: new Float64Array(count),
                                  children: new Map(), tensors: []});
  const root = make("the whole peak", "");
  for (let i = 0; i < bytes.length; ++i) {
    let node = root;
    const add = () => {
      node.bytes += bytes[i];
      node.count += 1;
      node.parts[category[i]] += bytes[i];
    };
    add();
    const path = placeOf(history.names[name[i]], history.names[module[i]], parameters);
    let full = "";
    for (const part of path ? path.split(".") : []) {
      full = full ? full + "." + part : part;
      if (!node.children.has(part)) node.children.set(part, make(part, full));
      node = node.children.get(part);
      add();
    }
    node.tensors.push(i);
  }
  return root;
};
// The module of a tensor: of "layers.0.mlp.weight" and of its optimizer state "layers.0.mlp.weight.exp_avg" that which
// owns the parameter; of what has no name the one that made it.
const placeOf = (name, module, parameters) => {
  const owner = name.slice(0, Math.max(0, name.lastIndexOf(".")));
  if (parameters.has(owner)) return placeOf(owner, module, parameters);
  return owner || module;
};
const parametersOf = history => {
  const {category, name} = history.tensors;
  return new Set(name.filter((_, i) => history.categories[category[i]].key === "parameter").map(i => history.names[i]));
};
const alike = path => path.split(".").map(part => /^[0-9]+$/.test(part) ? "*" : part).join(".");

class Treemap {
  constructor(place, history, onChange) {
    Object.assign(this, {place, history, onChange, root: moduleTree(history)});
    this.trail = [this.root];
    this.path = element(place, "nav", {class: "trail", "aria-label": "Modules down to here"});
    this.map = element(place, "div", {class: "map", role: "group", "aria-label": "What lives at the peak, by module"});
    this.say = element(place, "p", {class: "hint", role: "status"});
    this.draw();
    new ResizeObserver(() => { if (this.map.clientWidth !== this.width) this.draw(); }).observe(this.map);
  }

  get here() { return this.trail[this.trail.length - 1]; }
  go(trail) {
    this.trail = trail;
    this.draw();
    this.onChange(this.here);
  }

  // What a module falls into: its modules, and the tensors that are its own. A lone module is passed through.
  entries(node) {
    const {bytes, category, name, op, shape} = this.history.tensors, names = this.history.names;
    const modules = [...node.children.values()].map(child => {
      let end = child, label = child.name;
      while (end.children.size === 1 && !end.tensors.length) {
        end = [...end.children.values()][0];
        label += "." + end.name;
      }
      return {label, bytes: end.bytes, node: end, parts: end.parts};
    });
    const own = new Map();
    for (const i of node.tensors) {
      const full = names[name[i]], label = full.slice(node.path && full.startsWith(node.path) ? node.path.length + 1 : 0) ||
                                           names[op[i]] || "tensor";
      const key = category[i] + label + names[shape[i]];
      if (!own.has(key)) {
        own.set(key, {label, bytes: 0, count: 0, shape: names[shape[i]], parts: new Float64Array(this.root.parts.length)});
      }
      const entry = own.get(key);
      entry.bytes += bytes[i];
      entry.count += 1;
      entry.parts[category[i]] += bytes[i];
    }
    return modules.concat([...own.values()]).filter(entry => entry.bytes > 0);
  }

  words(entry) {
    const parts = [...entry.parts].map((size, c) => [size, this.history.categories[c].label])
                      .filter(part => part[0] > 0).sort((a, b) => b[0] - a[0]);
    const kinds = parts.length > 1 ? parts.map(([size, label]) => label + " " + sizeText(size)).join(", ") : parts[0][1];
    const times = entry.count > 1 ? entry.count + " × " : "";
    return times + entry.label + (entry.shape ? ", " + entry.shape : "") + ": " + sizeText(entry.bytes) + ", " +
           shareText(entry.bytes, this.root.bytes) + " of the peak (" + kinds + ")";
  }

  layout(entries, width, height) {
    const treemap = d3.layout.treemap().size([width, height]).round(true).value(d => d.entry.bytes)
                        .sort((a, b) => a.value - b.value);
    return treemap.nodes({children: entries.map(entry => ({entry}))}).slice(1).filter(cell => cell.dx > 0 && cell.dy > 0);
  }

  draw() {
    this.width = this.map.clientWidth;
    const height = this.width < 560 ? 340 : 420;
    this.map.textContent = this.path.textContent = "";
    this.map.style.height = height + "px";
    this.trail.forEach((node, i) => {
      if (i) element(this.path, "span", {"aria-hidden": "true"}, "›");
      const label = i ? node.path.slice(this.trail[i - 1].path ? this.trail[i - 1].path.length + 1 : 0) : node.name;
      const step = element(this.path, "button", {type: "button"}, label);
      if (node === this.here) step.setAttribute("aria-current", "true");
      step.onclick = () => this.go(this.trail.slice(0, i + 1));
    });
    element(this.path, "small", {}, sizeText(this.here.bytes) + ", " + number(this.here.count) + " tensors");
    const entries = this.entries(this.here);
    for (const cell of this.layout(entries, this.width, height)) this.drawBlock(cell);
    this.hint = entries.some(entry => entry.node) ? "Colours are categories. Press a module to open it." : "Colours are categories.";
    this.say.textContent = this.hint;
  }

  drawBlock(cell) {
    const {entry} = cell, label = this.words(entry);
    const block = element(this.map, entry.node ? "button" : "div", {class: "block", title: label, "aria-label": label});
    if (entry.node) {
      block.type = "button";
      block.onclick = () => this.go(this.trail.concat(entry.node));
    } else {
      block.setAttribute("role", "img");
    }
    block.style.cssText = `left:${cell.x}px;top:${cell.y}px;width:${cell.dx}px;height:${cell.dy}px`;
    block.onpointerenter = block.onfocus = () => { this.say.textContent = label; };
    block.onpointerleave = block.onblur = () => { this.say.textContent = this.hint; };
    const head = cell.dx > 34 && cell.dy > 26 ? 18 : 0;
    if (head) element(block, "span", {class: "name"}, entry.label + "  " + sizeText(entry.bytes));
    this.fill(block, entry, 0, head, cell.dx - 2, cell.dy - 2 - head, 2);
  }

  // Some levels of what is inside, as long as there is room; then the categories.
  fill(block, entry, x, y, width, height, depth) {
    const inside = entry.node && depth > 0 && width * height > 1600 ? this.entries(entry.node) : [];
    if (inside.length > 1) {
      for (const cell of this.layout(inside, width, height)) {
        const left = x + cell.x, top = y + cell.y, head = cell.dx > 44 && cell.dy > 34 ? 15 : 0;
        if (head) {
          const label = element(block, "span", {class: "inner"}, cell.entry.label);
          label.style.cssText = `left:${left}px;top:${top}px;width:${cell.dx}px`;
        }
        this.fill(block, cell.entry, left, top + head, cell.dx, cell.dy - head, depth - 1);
      }
      return;
    }
    const parts = [...entry.parts].map((bytes, c) => ({bytes, category: this.history.categories[c].key}))
                      .filter(part => part.bytes > 0);
    for (const cell of this.layout(parts, width, height)) {
      const part = element(block, "span", {class: "part c-" + cell.entry.category});
      part.style.cssText = `left:${x + cell.x}px;top:${y + cell.y}px;width:${cell.dx}px;height:${cell.dy}px`;
    }
  }
}

const FEW_ROWS = 24;

class TensorTable {
  constructor(place, history) {
    Object.assign(this, {place, history, grouped: true, all: false, column: "bytes", up: false});
    this.parameters = parametersOf(history);
    this.whole = history.tensors.bytes.reduce((sum, size) => sum + size, 0);
    const bar = element(place, "div", {class: "tools"});
    const toggle = element(element(bar, "label", {}), "input", {type: "checkbox", checked: ""});
    toggle.parentNode.append(" alike tensors as one row");
    toggle.onchange = () => {
      this.grouped = toggle.checked;
      this.read();
    };
    this.scope = element(bar, "span", {class: "where"});
    this.table = element(element(place, "div", {class: "wide"}), "table", {class: "sortable"});
    this.more = element(place, "button", {type: "button", class: "more"});
    this.more.onclick = () => {
      this.all = !this.all;
      this.draw();
    };
    this.show({path: "", name: "the whole peak"});
  }

  // Tensors of one module alone, and of those in it.
  show(node) {
    this.node = node;
    this.read();
  }

  read() {
    const {names, tensors, categories} = this.history, rows = new Map(), path = this.node.path;
    for (let i = 0; i < tensors.bytes.length; ++i) {
      const name = names[tensors.name[i]], module = names[tensors.module[i]], op = names[tensors.op[i]];
      const place = placeOf(name, module, this.parameters);
      if (path && place !== path && !place.startsWith(path + ".")) continue;
      const full = name || [module, op].filter(Boolean).join(", ") || "tensor";
      const what = this.grouped ? name ? alike(name) : [alike(module), op].filter(Boolean).join(", ") || "tensor" : full;
      const category = categories[tensors.category[i]], shape = names[tensors.shape[i]];
      const key = this.grouped ? category.key + "\n" + what + "\n" + shape : i;
      if (!rows.has(key)) rows.set(key, {category: category.label, key: category.key, what, shape, count: 0, bytes: 0,
                                         shrink: category.shrink});
      const row = rows.get(key);
      row.count += 1;
      row.bytes += tensors.bytes[i];
    }
    this.rows = [...rows.values()];
    this.sort();
  }

  sort() {
    const by = this.column, sign = this.up ? 1 : -1;
    this.rows.sort((a, b) => sign * (typeof a[by] === "number" ? a[by] - b[by] : a[by] < b[by] ? -1 : a[by] > b[by] ? 1 : 0) ||
                             b.bytes - a.bytes);
    this.draw();
  }

  draw() {
    const sum = this.rows.reduce((bytes, row) => bytes + row.bytes, 0), count = this.rows.reduce((n, row) => n + row.count, 0);
    this.scope.textContent = (this.node.path || this.node.name) + ": " + number(count) + " tensors, " + sizeText(sum);
    this.table.textContent = "";
    this.drawHead();
    const body = element(this.table, "tbody", {}), shown = this.all ? this.rows.length : Math.min(FEW_ROWS, this.rows.length);
    for (const row of this.rows.slice(0, shown)) {
      const line = element(body, "tr", {}), kind = element(element(line, "td", {}), "span", {class: "kind"});
      element(kind, "i", {class: "swatch c-" + row.key});
      kind.append(row.category);
      element(line, "td", {class: "code"}, row.what);
      element(line, "td", {class: "code"}, row.shape);
      element(line, "td", {class: "n"}, number(row.count));
      element(line, "td", {class: "n"}, number(row.bytes));
      element(line, "td", {class: "n"}, shareText(row.bytes, this.whole));
      element(line, "td", {class: "advice"}, row.shrink);
    }
    this.more.hidden = this.rows.length <= FEW_ROWS;
    this.more.textContent = this.all ? "Show fewer" : "Show all " + number(this.rows.length) + " rows";
  }

  drawHead() {
    const line = element(element(this.table, "thead", {}), "tr", {});
    const columns = [["category", "category"], ["what", "what, or where it was made"], ["shape", "shape"],
                     ["count", "count"], ["bytes", "bytes"], ["bytes", "share"], ["shrink", "what can shrink it"]];
    columns.forEach(([column, label], i) => {
      const numeric = column === "count" || column === "bytes", sorted = column === this.column && label !== "share";
      const head = element(line, "th", {class: numeric ? "n" : "", scope: "col",
                                        "aria-sort": sorted ? this.up ? "ascending" : "descending" : "none"});
      const button = element(head, "button", {type: "button"}, label + (sorted ? this.up ? " ▲" : " ▼" : ""));
      button.onclick = () => {
        this.up = this.column === column ? !this.up : !numeric;
        this.column = column;
        this.sort();
        this.table.querySelectorAll("th button")[i].focus();
      };
    });
  }
}
