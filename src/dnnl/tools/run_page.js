"use strict";
// A vertex of the graph, a row, a segment of the strip and points of plots belong together by their
// data-key. Names come from a model's file: they become text, never markup.
const run = JSON.parse(document.getElementById("run").textContent);
const canvas = document.getElementById("canvas");
const graph = document.getElementById("graph");
const steps = document.getElementById("steps");
const body = steps.querySelector("tbody");
const parts = new Map();
for (const own of document.querySelectorAll("[data-key]")) {
  const key = Number(own.dataset.key);
  if (!parts.has(key)) parts.set(key, []);
  parts.get(key).push(own);
}
const nodes = new Map([...graph.querySelectorAll(".node")].map((own) => [Number(own.dataset.key), own]));
const rows = new Map([...body.rows].map((own) => [Number(own.dataset.key), own]));
const edges = [...graph.querySelectorAll(".edge")];
const order = [...nodes.keys()];
let chosen = null;

function element(tag, text, ...children) {
  const made = document.createElement(tag);
  if (text !== null) made.textContent = text;
  made.append(...children);
  return made;
}

function bytes(count) {
  for (const [size, unit] of [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
    if (count >= size) return `${(count / size).toPrecision(3)} ${unit}`;
  }
  return `${count} B`;
}

function title(vertex) {
  return vertex.number ? `${vertex.number} ${vertex.name}` : `${vertex.kind} ${vertex.name}`;
}

function facts(vertex) {
  if (!vertex.number) return [];
  const found = [
    ["primitive", vertex.primitive],
    ["implementation", vertex.implementation],
    ["fused", vertex.fused.join(", ") || "nothing"],
    ["time", `${vertex.ms.toFixed(3)} ms, ${(100 * vertex.share).toFixed(1)} % of all steps`],
  ];
  if (vertex.gflop) {
    const rate = `${vertex.gflops.toPrecision(4)} GFLOP/s`;
    found.push(["arithmetic", `${vertex.gflop.toPrecision(4)} GFLOP, ${rate}`]);
  }
  if (vertex.nbytes) {
    let text = `${bytes(vertex.nbytes)}, ${vertex.gbytes.toPrecision(3)} GB/s`;
    if (vertex.intensity) text += `, ${vertex.intensity.toPrecision(3)} FLOP for each byte`;
    found.push(["memory", text]);
  }
  return found;
}

function origin(tensor) {
  if (tensor.constant) return "constant";
  if (tensor.source < 0) return "";
  const writer = title(run[tensor.source]);
  return tensor.role === "dst" ? `adds to ${writer}` : writer;
}

function describe(key) {
  const vertex = run[key];
  document.getElementById("details-title").textContent = title(vertex);
  const list = element("dl", null);
  for (const [name, text] of facts(vertex)) list.append(element("dt", name), element("dd", text));
  const head = element("tr", null);
  for (const name of ["tensor", "type", "sizes", "layout", "bytes", "from"]) {
    head.append(element("th", name));
  }
  const table = element("table", null, element("thead", null, head));
  const content = table.createTBody();
  for (const own of vertex.tensors) {
    const size = own.nbytes ? bytes(own.nbytes) : "";
    const cells = [own.role, own.data_type, own.sizes.join(" x "), own.layout, size, origin(own)];
    content.append(element("tr", null, ...cells.map((text) => element("td", text))));
  }
  const shown = vertex.tensors.length ? [list, table] : [list];
  document.getElementById("details").replaceChildren(...shown);
}

function ring(point, on) {
  const svg = point.ownerSVGElement;
  for (const old of svg.querySelectorAll("circle.ring")) old.remove();
  if (!on) return;
  const circle = document.createElementNS(svg.namespaceURI, "circle");
  circle.setAttribute("class", "ring");
  circle.setAttribute("cx", point.getAttribute("x"));
  circle.setAttribute("cy", point.getAttribute("y"));
  circle.setAttribute("r", 7);
  point.parentNode.append(circle);
}

function mark(key, name, on) {
  for (const own of parts.get(key) || []) {
    own.classList.toggle(name, on);
    if (own.localName === "use") ring(own, on);
  }
}

function nearEdges(key) {
  for (const own of edges) {
    own.classList.toggle("near", Number(own.dataset.from) === key || Number(own.dataset.to) === key);
  }
}

// Scrolls a box and not the page, so that what was clicked stays where it is.
function reveal(box, own) {
  if (!own) return;
  const outer = box.getBoundingClientRect(), inner = own.getBoundingClientRect();
  const head = box === steps ? steps.querySelector("thead").offsetHeight : 0;
  if (inner.top < outer.top + head || inner.bottom > outer.bottom) {
    box.scrollTop += (inner.top + inner.bottom - outer.top - outer.bottom - head) / 2;
  }
  if (inner.left < outer.left || inner.right > outer.right) {
    box.scrollLeft += (inner.left + inner.right - outer.left - outer.right) / 2;
  }
}

function choose(key, where) {
  if (chosen !== null) {
    mark(chosen, "chosen", false);
    nodes.get(chosen).setAttribute("aria-pressed", "false");
    for (const own of [nodes.get(chosen), rows.get(chosen)]) if (own) own.tabIndex = -1;
  }
  chosen = key;
  mark(key, "chosen", true);
  nearEdges(key);
  nodes.get(key).setAttribute("aria-pressed", "true");
  nodes.get(key).tabIndex = 0;
  if (rows.has(key)) rows.get(key).tabIndex = 0;
  describe(key);
  if (where !== "graph") reveal(canvas, nodes.get(key));
  if (where !== "table") reveal(steps, rows.get(key));
}

function keyOf(event) {
  const own = event.target.closest("[data-key]");
  return own ? Number(own.dataset.key) : null;
}

let hovered = null;
document.addEventListener("pointerover", (event) => {
  const key = keyOf(event);
  if (key === hovered || event.buttons) return;
  if (hovered !== null) mark(hovered, "hover", false);
  hovered = key;
  const shown = key === null ? chosen : key;
  if (key !== null) mark(key, "hover", true);
  if (chosen !== null) mark(chosen, "chosen", true);
  if (shown !== null) {
    describe(shown);
    nearEdges(shown);
  }
});
document.addEventListener("click", (event) => {
  const key = keyOf(event);
  if (key === null || moved) return;
  choose(key, canvas.contains(event.target) ? "graph" : steps.contains(event.target) ? "table" : "");
});

// Keys go through the vertices in the order of the run, and through the rows as they are sorted.
function next(keys, key) {
  const place = keys.indexOf(chosen);
  const last = keys.length - 1;
  if (key === "ArrowDown" || key === "ArrowRight") return keys[Math.min(place + 1, last)];
  if (key === "ArrowUp" || key === "ArrowLeft") return keys[Math.max(place - 1, 0)];
  return key === "Home" ? keys[0] : key === "End" ? keys[last] : undefined;
}
function walk(box, keysOf, elements, where) {
  box.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("thead")) return;
    const key = next(keysOf(), event.key);
    if (key === undefined) return;
    event.preventDefault();
    choose(key, "");
    elements.get(key).focus({ preventScroll: true });
  });
}
walk(canvas, () => order.filter((key) => !nodes.get(key).classList.contains("other")), nodes);
walk(steps, () => [...body.rows].filter((own) => !own.hidden).map((own) => Number(own.dataset.key)), rows);

// Zoom changes the size of the drawing inside a box that scrolls.
const [width, height] = [Number(graph.getAttribute("width")), Number(graph.getAttribute("height"))];
let scale = 1;
function zoom(to, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) {
  const before = scale;
  scale = Math.min(4, Math.max(0.02, to));
  graph.setAttribute("width", width * scale);
  graph.setAttribute("height", height * scale);
  canvas.scrollLeft = (canvas.scrollLeft + x) * (scale / before) - x;
  canvas.scrollTop = (canvas.scrollTop + y) * (scale / before) - y;
}
function fit() {
  zoom(Math.min(canvas.clientWidth / width, 1));
}
document.getElementById("larger").addEventListener("click", () => zoom(scale * 1.25));
document.getElementById("smaller").addEventListener("click", () => zoom(scale / 1.25));
document.getElementById("fit").addEventListener("click", fit);
canvas.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey) return;
  if (event.key === "+" || event.key === "=") zoom(scale * 1.25);
  else if (event.key === "-") zoom(scale / 1.25);
  else if (event.key === "0") fit();
});
canvas.addEventListener("wheel", (event) => {
  if (!event.ctrlKey) return;
  event.preventDefault();
  const box = canvas.getBoundingClientRect();
  zoom(scale * Math.exp(-event.deltaY / 300), event.clientX - box.left, event.clientY - box.top);
}, { passive: false });

let grip = null;
let moved = false;
canvas.addEventListener("pointerdown", (event) => {
  moved = false;
  if (event.button !== 0 || event.pointerType === "touch") return;
  grip = [event.clientX, event.clientY, canvas.scrollLeft, canvas.scrollTop];
});
window.addEventListener("pointermove", (event) => {
  if (grip === null) return;
  const [x, y] = [event.clientX - grip[0], event.clientY - grip[1]];
  if (!moved && Math.hypot(x, y) < 4) return;
  moved = true;
  canvas.classList.add("dragged");
  canvas.scrollLeft = grip[2] - x;
  canvas.scrollTop = grip[3] - y;
});
window.addEventListener("pointerup", () => {
  grip = null;
  canvas.classList.remove("dragged");
});

// A step is found by anything that its details say.
const texts = new Map(run.map((own, key) => {
  const layouts = own.tensors.map((tensor) => tensor.layout);
  const said = [title(own), own.primitive, own.implementation, ...(own.fused || []), ...layouts];
  return [key, said.join(" ").toLowerCase()];
}));
const search = document.getElementById("search");
function hits() {
  const wanted = search.value.trim().toLowerCase();
  return order.filter((key) => texts.get(key).includes(wanted));
}
search.addEventListener("input", () => {
  const found = new Set(hits());
  for (const [key, own] of nodes) own.classList.toggle("other", !found.has(key));
  for (const [key, own] of rows) own.hidden = !found.has(key);
  const text = search.value.trim() ? `${found.size} of ${order.length}` : "";
  document.getElementById("found").textContent = text;
  if (found.size && search.value.trim()) reveal(canvas, nodes.get([...found][0]));
});
search.addEventListener("keydown", (event) => {
  if (event.key !== "Enter") return;
  const found = hits();
  if (found.length) choose(found[(found.indexOf(chosen) + 1) % found.length], "");
});

// Numbers are sorted from the largest on first, except for the order of the run.
const heads = [...steps.querySelectorAll("thead th")];
heads.forEach((head, column) => head.querySelector("button").addEventListener("click", () => {
  const before = head.getAttribute("aria-sort");
  const falls = before ? before === "ascending" : column > 2;
  for (const other of heads) other.removeAttribute("aria-sort");
  head.setAttribute("aria-sort", falls ? "descending" : "ascending");
  const value = (row) => row.cells[column].dataset.value;
  const compare = head.classList.contains("number")
    ? (a, b) => Number(value(a)) - Number(value(b))
    : (a, b) => value(a).localeCompare(value(b), "en", { numeric: true });
  const sorted = [...body.rows].sort((a, b) => (falls ? compare(b, a) : compare(a, b)));
  body.append(...sorted);
}));

const slowest = order.filter((key) => run[key].number).sort((a, b) => run[b].ms - run[a].ms)[0];
zoom(Math.max(0.6, Math.min(canvas.clientWidth / width, 1)));  // smaller letters cannot be read
choose(slowest === undefined ? order[0] : slowest, "graph");
canvas.scrollTop = 0;
