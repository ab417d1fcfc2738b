"use strict";
for (const root of document.querySelectorAll(".cutaway:not([data-ready])")) {
  root.dataset.ready = "";
  const $ = (what) => root.querySelector(what), $$ = (what) => [...root.querySelectorAll(what)];
  const source = $("script.cutaway-data").textContent, data = JSON.parse(source), said = $("output");
  const say = (text) => { said.textContent = text; };
  const show = (value) => Number.isFinite(value) ? String(+value.toPrecision(3)).replace("-", "−") : "–";

  const half = (bits) => {
    const sign = bits & 0x8000 ? -1 : 1, exponent = (bits >> 10) & 31, rest = bits & 1023;
    if (exponent === 31) return rest ? NaN : sign * Infinity;
    return sign * (exponent ? 2 ** (exponent - 15) * (1 + rest / 1024) : rest * 2 ** -24);
  };
  const unpack = async (packed) => {
    if (packed.numbers) return { shape: packed.shape, at: (i) => packed.numbers[i] === null ? NaN : Number(packed.numbers[i]) };
    const bytes = Uint8Array.from(atob(packed.float16), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
    const halves = new DataView(await new Response(stream).arrayBuffer());
    return { shape: packed.shape, at: (i) => half(halves.getUint16(2 * i, true)) * packed.scale };
  };

  // a number for the place under the pointer, or where the arrow keys went
  const readable = (view, rows, columns, value) => {
    const svg = view.querySelector("svg"), plot = svg && svg.querySelector(".plot");
    if (!plot) return;
    const [x, y, width, height] = ["x", "y", "width", "height"].map((name) => +plot.getAttribute(name));
    const cursor = svg.appendChild(plot.cloneNode());
    cursor.setAttribute("class", "cursor");
    cursor.setAttribute("style", "stroke:#d1242f;stroke-width:2;pointer-events:none;visibility:hidden");
    let row = 0, column = 0;
    const at = () => {
      const wide = width / columns.length, high = height / rows.length;
      const box = { x: x + column * wide, y: y + row * high, width: wide, height: high };
      for (const name in box) cursor.setAttribute(name, box[name]);
      cursor.style.visibility = "visible";
      say(`${rows[row]} (${row}) → ${columns[column]} (${column}): ${value(row, column)}`);
    };
    svg.addEventListener("pointermove", (event) => {
      const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
      const [c, r] = [Math.floor((point.x - x) / width * columns.length), Math.floor((point.y - y) / height * rows.length)];
      if (r < 0 || c < 0 || r >= rows.length || c >= columns.length) { cursor.style.visibility = "hidden"; return; }
      [row, column] = [r, c];
      at();
    });
    svg.addEventListener("pointerleave", () => { cursor.style.visibility = "hidden"; });
    view.addEventListener("keydown", (event) => {
      const step = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] }[event.key];
      if (event.key === "Escape") { cursor.style.visibility = "hidden"; say(""); }
      if (!step || event.altKey || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      row = Math.min(Math.max(row + step[0], 0), rows.length - 1);
      column = Math.min(Math.max(column + step[1], 0), columns.length - 1);
      at();
    });
    return at;
  };

  const matrix = async (view, packed, rows, columns) => {
    const values = await unpack(packed);
    readable(view, rows, columns, (r, c) => show(values.at(r * columns.length + c)));
  };

  const heads = async () => {
    const small = await unpack(data.small), [, n, down, across] = small.shape, whole = {};
    const buttons = $$(".heads button"), view = $(".view"), pixels = view.querySelector(".pixels");
    for (const name in data.whole) whole[name] = { ...await unpack(data.whole[name]), image: pixels.getAttribute("href") };
    let now = data.shown;
    const first = pixels.getAttribute("href"), steps = [Math.ceil(data.size[0] / down), Math.ceil(data.size[1] / across)];
    const pooled = steps[0] * steps[1] > 1;
    readable(view, data.queries, data.keys, (r, c) => {
      if (whole[now]) return show(whole[now].at(r * data.keys.length + c));
      const [layer, head] = now.split(".").map(Number);
      const value = small.at(((layer * n + head) * down + Math.floor(r / steps[0])) * across + Math.floor(c / steps[1]));
      return show(value) + (pooled ? `, the strongest of ${steps[0]} × ${steps[1]}` : "");
    });
    const choose = (button) => {
      now = button.dataset.at;
      for (const other of buttons) other.setAttribute("aria-pressed", other === button);
      pixels.setAttribute("href", now === data.shown ? first : button.firstChild.src);
      $(".which").textContent = button.getAttribute("aria-label") + (pooled && !whole[now] ? ", pooled as its thumbnail" : "");
    };
    for (const button of buttons) button.addEventListener("click", () => choose(button));
    $(".heads").addEventListener("keydown", (event) => {
      const step = { ArrowUp: -n, ArrowDown: n, ArrowLeft: -1, ArrowRight: 1, k: -n, j: n, h: -1, l: 1 }[event.key];
      const next = step && buttons[buttons.indexOf(document.activeElement) + step];
      if (!next || event.altKey || event.ctrlKey || event.metaKey) return;
      event.preventDefault();
      next.focus();
      choose(next);
    });
  };

  const words = async () => {
    const values = await unpack(data.values), place = $(".sources"), buttons = $$(".outputs button");
    const spans = [...place.querySelectorAll("bdi")], high = +place.dataset.high || 1, palette = place.dataset.palette;
    let locked = 0;
    const light = (i) => {
      spans.forEach((span, j) => {
        const value = values.at(i * spans.length + j);
        span.title = show(value);
        span.removeAttribute("style");
        if (!Number.isFinite(value)) { span.style.textDecoration = "line-through dotted"; return; }
        const step = Math.round((Math.min(Math.max(value / high, -1), 1) + 1) / 2 * 254);
        const colour = palette.slice(6 * step, 6 * step + 6);
        const [r, g, b] = [0, 2, 4].map((k) => (parseInt(colour.slice(k, k + 2), 16) / 255) ** 2.2);
        span.style.background = "#" + colour;
        span.style.color = 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.179 ? "#000000" : "#ffffff";
      });
      buttons.forEach((button, j) => button.setAttribute("aria-pressed", i === j));
      let best = -1;
      spans.forEach((_, j) => { const v = Math.abs(values.at(i * spans.length + j)); if (v > (best < 0 ? -1 : Math.abs(values.at(i * spans.length + best)))) best = j; });
      say(best < 0 ? "" : `${data.outputs[i]}: most by ${data.sources[best]}, ${show(values.at(i * spans.length + best))}`);
    };
    buttons.forEach((button, i) => {
      button.addEventListener("pointerenter", () => light(i));
      button.addEventListener("pointerleave", () => light(locked));
      button.addEventListener("focus", () => light(locked = i));
      button.addEventListener("click", () => light(locked = i));
    });
    for (const rows of $$("details:has(.rows)")) rows.open = false;
    const view = $(".view:has(.plot)");
    if (view) readable(view, data.outputs, data.sources, (r, c) => show(values.at(r * spans.length + c)));
  };

  const lens = async () => {
    const values = await unpack(data.values), table = $(".lens"), n = data.positions.length;
    table.addEventListener("pointerover", (event) => {
      const cell = event.target.closest("td");
      if (!cell) return;
      const layer = data.layers.length - 1 - [...table.tBodies[0].rows].indexOf(cell.parentElement), position = cell.cellIndex - 1;
      say(`layer ${data.layers[layer]}, ${data.positions[position]} (${position}): ${data.tokens[layer][position]} ${show(values.at(layer * n + position))}`);
    });
  };

  const graph = () => {
    const edges = $$(".edge"), dots = $$(".dot");
    const light = (node) => {
      const near = new Set([node]);
      for (const edge of edges) {
        const on = node === null || edge.dataset.from === node || edge.dataset.to === node;
        edge.style.opacity = on ? "" : "0.07";
        edge.lastChild.style.strokeOpacity = on && node !== null ? "0.9" : "";
        if (on) near.add(edge.dataset.from).add(edge.dataset.to);
      }
      for (const dot of dots) dot.style.opacity = node === null || near.has(dot.dataset.node) ? "" : "0.25";
    };
    for (const dot of dots) {
      const on = () => { light(dot.dataset.node); say(dot.getAttribute("aria-label")); }, off = () => { light(null); say(""); };
      for (const name of ["pointerenter", "focus"]) dot.addEventListener(name, on);
      for (const name of ["pointerleave", "blur"]) dot.addEventListener(name, off);
    }
  };

  const begin = {
    "heat map": () => matrix($(".view"), data.values, data.rows, data.columns),
    "heads": heads, "coloured text": words, "lens": lens, "circuit": graph,
  }[data.kind];
  if (begin) Promise.resolve(begin()).catch((error) => say(String(error)));

  const save = (name, kind, text) => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type: kind }));
    link.download = name;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  };
  const button = (label, work) => {
    const made = document.createElement("button");
    made.type = "button";
    made.className = "save";
    made.textContent = label;
    made.addEventListener("click", work);
    root.append(made);
  };
  button("Save the numbers (JSON)", () => save("picture.json", "application/json", source));
  if ($(".view svg")) button("Save the drawing (SVG)", () => {
    const copy = $(".view svg").cloneNode(true), style = document.createElementNS(copy.namespaceURI, "style");
    for (const cursor of copy.querySelectorAll(".cursor")) cursor.remove();
    style.textContent = $("style").textContent;
    copy.removeAttribute("style");
    copy.prepend(style);
    save("picture.svg", "image/svg+xml", new XMLSerializer().serializeToString(copy));
  });
}
