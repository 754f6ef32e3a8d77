"use strict";
// Charts. Elements are made only by createElement and textContent, so that untrusted names stay text.
const SVG = "http://www.w3.org/2000/svg";
const LINE_WIDTH = 1.8, MARKER_SIZE = 3.4; // pixels
const page = JSON.parse(document.getElementById("data").textContent);
const style = page.style; // colours, line styles and texts, from style.py
const redraws = [];

function html(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// An untrusted name, isolated because it may be written from right to left.
const named = (text) => html("bdi", {}, text);

function svg(tag, attributes = {}, text = null) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  if (text !== null) element.textContent = text;
  return element;
}

// Math.max(...list) fails on the long lists of a long run.
const largest = (list) => list.reduce((a, b) => Math.max(a, b), -Infinity);
const smallest = (list) => list.reduce((a, b) => Math.min(a, b), Infinity);
const colour = (series) => `var(--s${style.lines[series].colour})`;
const dashes = (series) => style.lines[series].dash.map((length) => (LINE_WIDTH * length).toFixed(1)).join(" ");
const hasMarker = (series) => style.lines[series].marker.length > 0;
const marker = (series, x, y) => `M${style.lines[series].marker.map(([dx, dy]) => `${(x + MARKER_SIZE * dx).toFixed(1)} ${(y + MARKER_SIZE * dy).toFixed(1)}`).join("L")}Z`;
const percent = (share, digits = 2) => `${(100 * share).toFixed(digits)} %`;
const withError = (value, se, show) => show(value) + (se === null ? "" : ` ± ${show(se).replace(" %", "")}`);
const spread = (band, i, show) => withError(band.mean[i], band.se ? band.se[i] : null, show);
const counted = (number, name) => `${number} ${name}${String(number) === "1" ? "" : "s"}`;
// The edges of a band: one standard error to either side of the mean.
const upper = (band) => band.mean.map((v, i) => v + (band.se ? band.se[i] : 0));
const lower = (band) => band.mean.map((v, i) => v - (band.se ? band.se[i] : 0));

function readable(bytes) {
  const units = ["B", "KB", "MB", "GB", "TB"];
  let unit = 0;
  while (bytes >= 999.5 && unit < units.length - 1) { bytes /= 1000; unit += 1; }
  return `${Number(bytes.toPrecision(3))} ${units[unit]}`;
}

// Width in pixels of a text in a chart, in the font of page.css, before it is on the page.
const measure = html("canvas").getContext("2d");
measure.font = `11px ${getComputedStyle(document.body).fontFamily}`;
const textWidth = (text) => measure.measureText(text).width;

function shorten(text, width) {
  if (textWidth(text) <= width) return text;
  const letters = [...text].slice(0, Math.ceil(width)); // a letter is at least one pixel wide
  while (letters.length > 1 && textWidth(`${letters.join("")}…`) > width) letters.pop();
  return `${letters.join("")}…`;
}

// ---------------------------------------------------------------- tooltip

let follow = null; // moves a tooltip opened by a key along with its chart when the page scrolls

// A line is a text or a list of texts and elements. A tooltip opened by a key is announced to screen readers.
function showTip(lines, x, y, again = null) {
  const tip = document.getElementById("tip");
  follow = again;
  tip.setAttribute("aria-live", again ? "polite" : "off");
  tip.replaceChildren(...lines.map((line) => html("div", {}, ...[line].flat())));
  tip.hidden = false;
  const box = tip.getBoundingClientRect();
  const left = x + 14 + box.width > innerWidth ? x - 14 - box.width : x + 14;
  tip.style.left = `${Math.max(4, Math.min(left, innerWidth - box.width - 4))}px`;
  tip.style.top = `${Math.max(4, Math.min(y - box.height - 10, innerHeight - box.height - 4))}px`;
}

function hideTip() {
  follow = null;
  document.getElementById("tip").hidden = true;
}

addEventListener("pointerdown", (event) => { if (!event.target.closest?.(".chart")) hideTip(); });
addEventListener("keydown", (event) => { if (event.key === "Escape") hideTip(); });
addEventListener("scroll", () => (follow ?? hideTip)(), { passive: true });

// ---------------------------------------------------------------- frame and axes

function ticks(low, high, count) {
  const raw = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].find((s) => s * power >= raw * 0.999) * power;
  const found = [];
  for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + step * 1e-9; v += step) found.push(Number(v.toPrecision(12)));
  return found;
}

function frame(width, height, options) {
  const margin = { left: 44, right: 8, top: options.yLabel ? 22 : 8, bottom: 36 };
  const inner = { width: Math.max(20, width - margin.left - margin.right), height: height - margin.top - margin.bottom };
  const [x0, x1] = options.x, [y0, y1] = options.y;
  const scale = {
    x: (v) => margin.left + ((v - x0) / (x1 - x0)) * inner.width,
    y: (v) => margin.top + (1 - (v - y0) / (y1 - y0)) * inner.height,
  };
  const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, "aria-hidden": "true" });
  for (const v of options.yTicks ?? ticks(y0, y1, 4)) {
    const y = scale.y(v);
    root.append(svg("line", { class: "grid", x1: margin.left, x2: margin.left + inner.width, y1: y, y2: y }));
    root.append(svg("text", { x: margin.left - 6, y: y + 4, "text-anchor": "end" }, options.yShow ? options.yShow(v) : String(v)));
  }
  const whole = ticks(x0, x1, Math.min(8, inner.width / 45)).filter((v) => !options.wholeX || Number.isInteger(v));
  for (const v of whole) {
    if (v < x0 || (options.wholeX && v < 1)) continue;
    root.append(svg("text", { x: scale.x(v), y: height - margin.bottom + 16, "text-anchor": "middle" }, String(v)));
  }
  if (options.yLabel) root.append(svg("text", { x: 2, y: 11 }, options.yLabel));
  if (options.empty) root.append(svg("text", { class: "empty", x: margin.left + inner.width / 2, y: margin.top + inner.height / 2, "text-anchor": "middle" }, options.empty));
  const base = margin.top + inner.height;
  root.append(svg("line", { class: "axis", x1: margin.left, x2: margin.left + inner.width, y1: base, y2: base }));
  root.append(svg("text", { x: margin.left + inner.width / 2, y: height - 4, "text-anchor": "middle" }, options.xLabel));
  return { root, margin, inner, scale };
}

// The index that an arrow key selects in a list; the first key selects one end.
function along(count, index, forward, back) {
  const last = count - 1;
  return (key, at) => {
    const to = { [forward]: at === null ? 0 : at + 1, [back]: at === null ? last : at - 1, Home: 0, End: last }[key];
    return to === undefined ? undefined : index(Math.min(last, Math.max(0, to)));
  };
}

// A chart that redraws at its own width and shows a tooltip on hover, touch and arrow keys.
function chart(draw, name, label) {
  const element = html("div", { class: "chart", tabindex: "0", role: "group", "aria-roledescription": "chart", "aria-label": `${label}; arrow keys show its values`, "data-figure": name });
  let drawn = null, at = null, width = 0;
  const redraw = (wide = element.clientWidth) => {
    width = wide;
    if (!width) return;
    drawn = draw(width, element);
    element.replaceChildren(...drawn.layers);
  };
  const point = (event) => {
    const box = element.getBoundingClientRect();
    const found = drawn?.at(event.clientX - box.left, event.clientY - box.top);
    if (!found) return hideTip();
    at = found.index ?? at;
    showTip(found.lines, event.clientX, event.clientY);
  };
  element.addEventListener("pointermove", point);
  element.addEventListener("pointerdown", point);
  element.addEventListener("pointerleave", (event) => {
    if (event.pointerType !== "mouse") return; // after a touch the tooltip stays open
    hideTip();
    drawn?.leave?.();
  });
  element.addEventListener("blur", () => {
    hideTip();
    drawn?.leave?.();
  });
  element.addEventListener("keydown", (event) => {
    if (event.key === "Escape") drawn?.leave?.();
    const found = drawn?.step(event.key, at);
    if (found === undefined) return;
    event.preventDefault();
    if (!found) return;
    at = found.index;
    const show = () => {
      const box = element.getBoundingClientRect();
      if (box.bottom < 0 || box.top > innerHeight) return hideTip();
      showTip(found.lines, box.left + found.x, box.top + found.y, show);
    };
    show();
  });
  new ResizeObserver(() => { if (element.clientWidth !== width) redraw(); }).observe(element);
  redraws.push({ element, redraw });
  return element;
}

// Reads all widths before drawing: reading a width after drawing would force another layout.
function redrawAll() {
  const widths = redraws.map(({ element }) => element.clientWidth);
  redraws.forEach(({ redraw }, k) => redraw(widths[k]));
}

// Selects one of the epochs 1..E along x and highlights it.
function overEpochs(parts, count, lines) {
  const { root, margin, inner, scale } = parts;
  const mark = svg("rect", { class: "mark", y: margin.top, height: inner.height, width: Math.max(1, inner.width / count), visibility: "hidden" });
  root.append(mark);
  const index = (i) => {
    if (i < 0 || i >= count) return null;
    mark.setAttribute("x", scale.x(i + 0.5));
    mark.setAttribute("visibility", "visible");
    return { index: i, lines: lines(i), x: scale.x(i + 1), y: margin.top + inner.height / 3 };
  };
  return {
    layers: [root],
    step: along(count, index, "ArrowRight", "ArrowLeft"),
    at: (x) => index(Math.floor(((x - margin.left) / inner.width) * count)),
    leave: () => mark.setAttribute("visibility", "hidden"),
  };
}

// Selects one of the rows, each `step` pixels high.
function overRows(root, count, step, index) {
  const down = along(count, index, "ArrowDown", "ArrowUp"), right = along(count, index, "ArrowRight", "ArrowLeft");
  return { layers: [root], step: (key, at) => down(key, at) ?? right(key, at), at: (_, y) => index(Math.floor(y / step)) };
}

// ---------------------------------------------------------------- chart types

function bars(panel, top, name) {
  const text = style.sections[name];
  const count = panel.accuracy.mean.length;
  return chart((width) => {
    const parts = frame(width, 240, { x: [0.5, count + 0.5], y: [0, top], xLabel: text.x, yLabel: `${text.y}, ${panel.against} labels`, wholeX: true,
      empty: largest(panel.accuracy.mean) > 0 ? "" : "no validation sample was ever right",
      yTicks: ticks(0, 100 * top, 4).map((v) => v / 100), yShow: (v) => String(Math.round(100 * v)) });
    const gap = parts.inner.width / count > 4 ? 0.43 : 0.5;
    const boxes = (low, high, half) => low.map((v, i) => {
      const [l, r, b, t] = [parts.scale.x(i + 1 - half), parts.scale.x(i + 1 + half), parts.scale.y(v), parts.scale.y(high[i])];
      return `M${l.toFixed(1)} ${b.toFixed(1)}V${t.toFixed(1)}H${r.toFixed(1)}V${b.toFixed(1)}Z`;
    }).join("");
    const floor = panel.accuracy.mean.map(() => 0);
    for (const [key, mark] of Object.entries(text.marks)) parts.root.append(svg("path", { d: boxes(floor, panel[key].mean, gap), fill: `var(--${mark.colour})` }));
    for (const [band, fill] of [[panel.accuracy, "var(--ink)"], [panel.residual, "var(--on-blue)"]]) {
      if (band.se) parts.root.append(svg("path", { class: "band", d: boxes(lower(band), upper(band), 0.5), fill, opacity: 0.35 }));
    }
    return overEpochs(parts, count, (i) => [[named(panel.name), `, epoch ${i + 1}`], `right: ${spread(panel.accuracy, i, percent)}`,
      `still right at the end: ${spread(panel.residual, i, percent)}`, `gap: ${spread(panel.gap, i, percent)}`]);
  }, name, `${name}: ${panel.name}`);
}

function curves(series, options, name) {
  const count = largest(series.map((s) => s.band.mean.length));
  const low = options.low ?? 0;
  const high = options.top ?? Math.max(largest(series.flatMap((s) => upper(s.band))), options.least ?? 0.01) * 1.04;
  const factor = options.factor ?? 1;
  return chart((width) => {
    const parts = frame(width, options.height ?? 250, { x: [0.5, count + 0.5], y: [low, high], xLabel: options.xLabel, yLabel: options.yLabel, wholeX: true,
      yTicks: ticks(factor * low, factor * high, 4).map((v) => v / factor), yShow: (v) => String(Number((factor * v).toPrecision(6))) });
    const path = (ys) => ys.map((v, i) => `${i ? "L" : "M"}${parts.scale.x(i + 1).toFixed(1)} ${parts.scale.y(v).toFixed(1)}`).join("");
    for (const { band, index } of series) {
      if (!band.se) continue;
      const back = lower(band).map((v, i) => `L${parts.scale.x(i + 1).toFixed(1)} ${parts.scale.y(Math.max(low, v)).toFixed(1)}`).reverse().join("");
      parts.root.append(svg("path", { class: "band", d: `${path(upper(band))}${back}Z`, fill: colour(index), opacity: 0.2 }));
    }
    for (const { band, index } of series) {
      parts.root.append(svg("path", { d: path(band.mean), fill: "none", stroke: colour(index), "stroke-width": LINE_WIDTH, "stroke-dasharray": dashes(index), "stroke-linejoin": "round" }));
      if (hasMarker(index)) parts.root.append(svg("path", { class: "marker", d: markers(band.mean, index, parts), fill: colour(index) }));
    }
    return overEpochs(parts, count, (i) => [options.of ? [named(options.of), `, epoch ${i + 1}`] : `epoch ${i + 1}`, ...series.filter((s) => i < s.band.mean.length).map((s) => [named(s.name), `: ${options.show(s, i)}`])]);
  }, name, options.label);
}

// A marker about every 60 pixels, each series with its own offset so that coinciding curves stay distinguishable.
function markers(values, index, { inner, scale: at }) {
  const every = Math.max(1, Math.round((60 * values.length) / inner.width));
  return values.map((v, i) => (i % every === index % every ? marker(index, at.x(i + 1), at.y(v)) : "")).join("");
}

// A mean and its band over the cells of a heat map, in a colour that no cell has.
function paintBand(paint, band, series, x, y, scale) {
  const line = (values) => values.forEach((v, s) => paint.lineTo(x(s), y(v)));
  paint.strokeStyle = paint.fillStyle = cssColour(`s${style.lines[series].colour}`);
  paint.beginPath();
  line(upper(band));
  lower(band).reverse().forEach((v, k) => paint.lineTo(x(band.mean.length - 1 - k), y(v)));
  paint.globalAlpha = 0.3;
  paint.fill();
  paint.globalAlpha = 1;
  paint.lineWidth = LINE_WIDTH * scale;
  paint.beginPath();
  line(band.mean);
  paint.stroke();
}

// A canvas with one pixel per cell and the first row at the bottom: scaling it is much faster than filling each cell.
function cells(columns, rows, strength) {
  const small = html("canvas", { width: columns.length, height: rows });
  const paint = small.getContext("2d"), image = paint.createImageData(columns.length, rows), fine = 63;
  const stops = ramp(), shades = new Uint32Array(fine + 1);
  const bytes = new Uint8Array(shades.buffer), pixels = new Uint32Array(image.data.buffer);
  for (let k = 0; k <= fine; k += 1) bytes.set([...mix(stops, k / fine), 255], 4 * k);
  columns.forEach((column, s) => {
    for (let i = 1; i < column.length; i += 1) { // column[0] is the first row
      const shade = Math.round(fine * Math.min(1, Math.max(0, strength(column[i]))));
      if (column[i]) pixels[(rows - column[0] - i) * columns.length + s] = shades[shade];
    }
  });
  paint.putImageData(image, 0, 0);
  return small;
}

// A heat map of epochs x rows; `columns[s]` holds [first row, values...] of state s. A `curve` is drawn over the cells.
function heat(options, name) {
  const { columns, rows, low, high } = options;
  const empty = columns.some((column) => column.length > 1) ? "" : "no state became an anchor";
  const strength = (v) => (high > low ? Math.log(v / low) / Math.log(high / low) : 1);
  return chart((width, element) => {
    const parts = frame(width, options.height ?? 240, { x: [0.5, columns.length + 0.5], y: [options.y0, rows + options.y0], xLabel: options.xLabel, yLabel: options.yLabel, wholeX: true, empty });
    const canvas = html("canvas"), scale = devicePixelRatio || 1;
    canvas.width = Math.round(parts.inner.width * scale);
    canvas.height = Math.round(parts.inner.height * scale);
    Object.assign(canvas.style, { left: `${parts.margin.left}px`, top: `${parts.margin.top}px`, width: `${parts.inner.width}px`, height: `${parts.inner.height}px` });
    const paint = canvas.getContext("2d"), [w, h] = [canvas.width / columns.length, canvas.height / rows];
    paint.imageSmoothingEnabled = w < 1 || h < 1; // a long run has more cells than pixels
    paint.drawImage(cells(columns, rows, strength), 0, 0, canvas.width, canvas.height);
    if (options.curve?.se) paintBand(paint, options.curve, options.series, (s) => (s + 0.5) * w, (v) => canvas.height - v * h, scale);
    element.style.height = `${options.height ?? 240}px`;
    const mark = html("i", { class: "cell" }), { margin, inner } = parts;
    mark.hidden = true;
    const cell = (s, r) => {
      const [first, ...values] = columns[s], [x, y] = [margin.left + (s / columns.length) * inner.width, margin.top + (1 - (r + 1) / rows) * inner.height];
      return { index: [s, r], x, y, lines: options.tip(s, r, values[r - first] ?? 0) };
    };
    const marked = (s, r) => {
      const found = cell(s, r);
      Object.assign(mark.style, { left: `${found.x}px`, top: `${found.y}px`, width: `${Math.max(3, inner.width / columns.length)}px`, height: `${Math.max(3, inner.height / rows)}px` });
      mark.hidden = false;
      return found;
    };
    const leave = () => { mark.hidden = true; };
    return {
      layers: [parts.root, canvas, mark],
      leave,
      step: (key, at) => {
        const state = along(columns.length, (s) => s, "ArrowRight", "ArrowLeft")(key, at && at[0]);
        if (state !== undefined) return marked(state, Math.max(at ? at[1] : 0, columns[state][0]));
        if (key !== "ArrowUp" && key !== "ArrowDown") return undefined;
        const [s, r] = at ?? [0, columns[0][0] - 1];
        return marked(s, Math.min(rows - 1, Math.max(columns[s][0], key === "ArrowUp" ? r + 1 : r - 1)));
      },
      at: (x, y) => {
        const s = Math.floor(((x - margin.left) / inner.width) * columns.length);
        const r = Math.floor((1 - (y - margin.top) / inner.height) * rows);
        leave();
        return s < 0 || s >= columns.length || r < 0 || r >= rows ? null : cell(s, r);
      },
    };
  }, name, options.label);
}

const cssColour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// The colours of a heat map from low to high, as [red, green, blue].
function ramp() {
  return Array.from({ length: style.ramp }, (_, k) => [1, 3, 5].map((at) => parseInt(cssColour(`r${k}`).slice(at, at + 2), 16)));
}

function mix(stops, strength) {
  const at = Math.min(0.9999, Math.max(0, strength)) * (stops.length - 1), k = Math.floor(at);
  return stops[k].map((v, c) => Math.round(v + (stops[k + 1][c] - v) * (at - k)));
}

const shade = (stops, strength) => `rgb(${mix(stops, strength).join(" ")})`;
