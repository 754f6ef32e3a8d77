"use strict";
// Charts. Elements are made only by createElement and textContent, so that untrusted names stay text.
const SVG = "http://www.w3.org/2000/svg";
const LINE_WIDTH = 1.8, MARKER_SIZE = 3.4; // pixels
let page = JSON.parse(document.getElementById("data").textContent);
let style = page.style; // colours, line styles and texts, from style.py
let redraws = []; // functions that draw a chart again, with its element
let linked = { epoch: new Set(), class: new Set() }; // charts whose selections move together

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
const seriesOf = (name) => style.series[name] ?? 0;
// The ends of the whiskers: one standard error to either side of the mean.
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

// ---------------------------------------------------------------- frame and axes

function ticks(low, high, count) {
  const raw = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = (power >= 10 ? [1, 2, 2.5, 5, 10] : [1, 2, 5, 10]).find((s) => s * power >= raw * 0.999) * power;
  const found = [];
  for (let v = Math.ceil(low / step - 1e-9) * step; v <= high + step * 1e-9; v += step) found.push(Number(v.toPrecision(12)));
  return found;
}

function frame(width, height, options) {
  const margin = { left: 44, right: options.right ?? 8, top: options.yLabel ? 22 : 8, bottom: 36 };
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

// A chart that redraws at its own width. Its values are shown in the lines below it, so that they cover no data: those at
// the pointer or selected by the arrow keys, and otherwise those of `rest`. `draw` returns layers, and functions from a
// position or a key to an index and from an index to lines. Charts with the same `link` select the same index.
function chart(draw, name, label, link = null) {
  const element = html("div", { class: "chart", tabindex: "0", role: "group", "aria-roledescription": "chart", "aria-label": `${label}; arrow keys show its values`, "data-figure": name });
  const values = html("div", { class: "readout", role: "status", "aria-live": "off" });
  let drawn = null, at = null, width = 0;
  const write = (lines, rest = false) => {
    values.classList.toggle("rest", rest);
    values.replaceChildren(...lines.map((line) => html("span", {}, ...[line].flat())));
  };
  const show = (index) => {
    const lines = drawn?.show(index);
    if (!lines) return;
    at = index;
    write(lines);
  };
  const leave = () => {
    drawn?.leave();
    write(drawn?.rest ?? ["Hover, tap or use the arrow keys to see values."], true);
  };
  const everywhere = (index) => { for (const one of link ? linked[link] : [own]) one.show(index); };
  const nowhere = () => { for (const one of link ? linked[link] : [own]) one.leave(); };
  const own = { show, leave };
  if (link) linked[link].add(own);
  const redraw = (wide = element.clientWidth) => {
    width = wide;
    if (!width) return;
    drawn = draw(width, element);
    element.replaceChildren(...drawn.layers);
    leave();
  };
  const point = (event) => {
    const box = element.getBoundingClientRect();
    const found = drawn?.at(event.clientX - box.left, event.clientY - box.top) ?? null;
    values.setAttribute("aria-live", "off");
    if (found === null) nowhere();
    else everywhere(found);
  };
  element.addEventListener("pointermove", point);
  element.addEventListener("pointerdown", point);
  element.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") nowhere(); }); // after a touch the values stay
  element.addEventListener("blur", nowhere);
  element.addEventListener("keydown", (event) => {
    if (event.key === "Escape") return nowhere();
    const found = drawn?.step(event.key, at);
    if (found === undefined) return;
    event.preventDefault();
    values.setAttribute("aria-live", "polite");
    everywhere(found);
  });
  new ResizeObserver(() => { if (element.clientWidth !== width) redraw(); }).observe(element);
  redraws.push({ element, redraw });
  return html("div", { class: "figure" }, element, values);
}

// Reads all widths before drawing: reading a width after drawing would force another layout.
function redrawAll() {
  const widths = redraws.map(({ element }) => element.clientWidth);
  redraws.forEach(({ redraw }, k) => redraw(widths[k]));
}

// Selects one of the epochs 1..E along x and highlights it; at rest the values of the last epoch are shown.
function overEpochs(parts, count, lines) {
  const { root, margin, inner, scale } = parts;
  const mark = svg("rect", { class: "mark", y: margin.top, height: inner.height, width: Math.max(1.5, inner.width / count), visibility: "hidden" });
  root.append(mark);
  return {
    layers: [root],
    rest: lines(count - 1),
    step: along(count, (i) => i, "ArrowRight", "ArrowLeft"),
    at: (x) => {
      const i = Math.floor(((x - margin.left) / inner.width) * count);
      return i < 0 || i >= count ? null : i;
    },
    show: (i) => {
      if (i >= count) return null;
      mark.setAttribute("x", scale.x(i + 0.5));
      mark.setAttribute("visibility", "visible");
      return lines(i);
    },
    leave: () => mark.setAttribute("visibility", "hidden"),
  };
}

// Selects one of the rows, each `step` pixels high, and highlights it.
function overRows(root, width, count, step, lines) {
  const down = along(count, (i) => i, "ArrowDown", "ArrowUp"), right = along(count, (i) => i, "ArrowRight", "ArrowLeft");
  const mark = svg("rect", { class: "mark", x: 0, width, height: step, visibility: "hidden" });
  root.append(mark);
  return {
    layers: [root],
    step: (key, at) => down(key, at) ?? right(key, at),
    at: (_, y) => (y < 0 || y >= count * step ? null : Math.floor(y / step)),
    show: (i) => {
      if (i >= count) return null;
      mark.setAttribute("y", i * step);
      mark.setAttribute("visibility", "visible");
      return lines(i);
    },
    leave: () => mark.setAttribute("visibility", "hidden"),
  };
}

// ---------------------------------------------------------------- chart types

// Whiskers at the last epoch and at about ten before it; `shift` from 0 to 1 keeps those of several curves apart.
function whiskers(band, { inner, scale }, shift = 0, low = -Infinity) {
  const count = band.mean.length, every = Math.max(1, Math.ceil(count / Math.min(10, inner.width / 40)));
  const offset = Math.floor(shift * every);
  const cap = Math.min(3, inner.width / count / 2 + 1.5);
  return band.mean.map((_, i) => {
    if (band.se[i] === null || (i !== count - 1 && (count - 1 - i + offset) % every !== 0)) return "";
    if (i !== count - 1 && count - 1 - i < every / 2) return "";
    const [x, b, t] = [scale.x(i + 1), scale.y(Math.max(low, lower(band)[i])), scale.y(upper(band)[i])];
    return `M${(x - cap).toFixed(1)} ${b.toFixed(1)}h${(2 * cap).toFixed(1)}M${x.toFixed(1)} ${b.toFixed(1)}V${t.toFixed(1)}M${(x - cap).toFixed(1)} ${t.toFixed(1)}h${(2 * cap).toFixed(1)}`;
  }).join("");
}

function bars(panel, top, name) {
  const text = style.sections[name], own = colour(seriesOf(panel.name));
  const count = panel.accuracy.mean.length;
  return chart((width) => {
    const parts = frame(width, 240, { x: [0.5, count + 0.5], y: [0, top], xLabel: text.x, yLabel: `${text.y}, ${panel.against} labels`, wholeX: true,
      empty: largest(panel.accuracy.mean) > 0 ? "" : "no validation sample was ever right",
      yTicks: ticks(0, 100 * top, 4).map((v) => v / 100), yShow: (v) => String(Math.round(100 * v)) });
    const half = parts.inner.width / count > 4 ? 0.43 : 0.5;
    const boxes = (high) => high.map((v, i) => {
      const [l, r, b, t] = [parts.scale.x(i + 1 - half), parts.scale.x(i + 1 + half), parts.scale.y(0), parts.scale.y(v)];
      return `M${l.toFixed(1)} ${b.toFixed(1)}V${t.toFixed(1)}H${r.toFixed(1)}V${b.toFixed(1)}Z`;
    }).join("");
    for (const [key, mark] of Object.entries(text.marks)) parts.root.append(svg("path", { d: boxes(panel[key].mean), fill: own, opacity: mark.opacity }));
    for (const [band, shift] of [[panel.accuracy, 0], [panel.residual, 0.5]]) {
      if (band.se) parts.root.append(svg("path", { class: "whisker", d: whiskers(band, parts, shift, 0), stroke: "var(--ink)" }));
    }
    return overEpochs(parts, count, (i) => [`epoch ${i + 1}`, `right ${spread(panel.accuracy, i, percent)}`,
      `still right at the end ${spread(panel.residual, i, percent)}`, `gap ${spread(panel.gap, i, percent)}`]);
  }, name, `${text.title}: ${panel.name}`, "epoch");
}

// Positions of labels as near as possible to the values `ys`, at least `gap` apart and within `low` to `high`.
function apart(ys, gap, low, high) {
  const order = ys.map((y, i) => [y, i]).sort((a, b) => a[0] - b[0]), found = [];
  order.forEach(([y, i], k) => { found[i] = Math.max(y, k ? found[order[k - 1][1]] + gap : low); });
  for (let k = order.length - 1, top = high; k >= 0; k -= 1, top = found[order[k + 1][1]] - gap) found[order[k][1]] = Math.min(found[order[k][1]], top);
  return found;
}

function swatch(series) {
  const mark = html("i", { class: "swatch" });
  mark.style.background = colour(series);
  return mark;
}

// Curves over the epochs; a curve has the colour of its method. With `labels` each one is named at its end.
function curves(list, options, name) {
  const count = largest(list.map((s) => s.band.mean.length));
  const low = options.low ?? 0;
  const high = options.top ?? Math.max(largest(list.flatMap((s) => [...upper(s.band), s.final ? s.final.value : 0])), options.least ?? 0.01) * 1.04;
  const factor = options.factor ?? 1, dash = (s) => (s.dash ?? style.lines[s.series].dash).map((length) => (LINE_WIDTH * length).toFixed(1)).join(" ");
  const end = (s) => s.final?.value ?? s.band.mean[s.band.mean.length - 1];
  const named_ = (s) => `${s.name} ${(factor * end(s)).toFixed(1)}`;
  return chart((width) => {
    const room = options.labels ? Math.min(largest(list.map((s) => textWidth(named_(s)))) + 30, width * 0.38) : 8;
    const parts = frame(width, options.height ?? 250, { x: [0.5, count + 0.5], y: [low, high], xLabel: options.xLabel, yLabel: options.yLabel, wholeX: true, right: room,
      yTicks: ticks(factor * low, factor * high, 4).map((v) => v / factor), yShow: (v) => String(Number((factor * v).toPrecision(6))) });
    const { root, scale, margin, inner } = parts;
    (options.restarts ?? []).forEach((epoch, k) => {
      const x = scale.x(epoch - 0.5);
      root.append(svg("line", { class: "restart", x1: x, x2: x, y1: margin.top, y2: margin.top + inner.height }));
      if (!k) root.append(svg("text", { class: "restart-name", x: x + 4, y: margin.top + inner.height - 6 }, style.restart));
    });
    const path = (ys) => ys.map((v, i) => `${i ? "L" : "M"}${scale.x(i + 1).toFixed(1)} ${scale.y(v).toFixed(1)}`).join("");
    for (const s of list) {
      root.append(svg("path", { class: "curve", d: path(s.band.mean), fill: "none", stroke: colour(s.series), "stroke-width": LINE_WIDTH, "stroke-dasharray": dash(s), "stroke-linejoin": "round" }));
      if (!s.dash && hasMarker(s.series)) root.append(svg("path", { class: "marker", d: markers(s.band.mean, s.series, parts), fill: colour(s.series) }));
    }
    list.forEach((s, k) => {
      if (s.band.se) root.append(svg("path", { class: "whisker", d: whiskers(s.band, parts, k / list.length, low), stroke: colour(s.series) }));
    });
    if (options.labels) {
      const ys = list.map((s) => scale.y(end(s))), places = apart(ys, 15, margin.top + 4, margin.top + inner.height - 4);
      list.forEach((s, k) => {
        const x = scale.x(s.band.mean.length), edge = margin.left + inner.width;
        if (s.final) root.append(svg("path", { class: "fused", d: `M${x} ${ys[k] - 5}l5 5l-5 5l-5 -5Z`, stroke: colour(s.series) }));
        root.append(svg("path", { fill: "none", stroke: colour(s.series), "stroke-width": 2, d: `M${x + 3} ${ys[k]}L${edge + 8} ${places[k]}h8` }));
        const label = svg("text", { class: "value name label", x: edge + 20, y: places[k] + 4 }, shorten(named_(s), room - 22));
        label.append(svg("title", {}, named_(s)));
        root.append(label);
      });
    }
    return overEpochs(parts, count, (i) => [`epoch ${i + 1}`, ...list.filter((s) => i < s.band.mean.length).map((s) => [swatch(s.series), named(s.name), ` ${options.show(s, i)}`])]);
  }, name, options.label, "epoch");
}

// A marker about every 60 pixels, each series with its own offset so that coinciding curves stay distinguishable.
function markers(values, index, { inner, scale: at }) {
  const every = Math.max(1, Math.round((60 * values.length) / inner.width));
  return values.map((v, i) => (i % every === index % every ? marker(index, at.x(i + 1), at.y(v)) : "")).join("");
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

// A heat map of epochs x rows; `columns[s]` holds [first row, values...] of state s.
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
    element.style.height = `${options.height ?? 240}px`;
    const mark = html("i", { class: "cell" }), { margin, inner } = parts;
    mark.hidden = true;
    return {
      layers: [parts.root, canvas, mark],
      leave: () => { mark.hidden = true; },
      show: ([s, r]) => {
        const [first, ...values] = columns[s], [x, y] = [margin.left + (s / columns.length) * inner.width, margin.top + (1 - (r + 1) / rows) * inner.height];
        Object.assign(mark.style, { left: `${x}px`, top: `${y}px`, width: `${Math.max(3, inner.width / columns.length)}px`, height: `${Math.max(3, inner.height / rows)}px` });
        mark.hidden = false;
        return options.tip(s, r, values[r - first] ?? 0);
      },
      step: (key, at) => {
        const state = along(columns.length, (s) => s, "ArrowRight", "ArrowLeft")(key, at && at[0]);
        if (state !== undefined) return [state, Math.max(at ? at[1] : 0, columns[state][0])];
        if (key !== "ArrowUp" && key !== "ArrowDown") return undefined;
        const [s, r] = at ?? [0, columns[0][0] - 1];
        return [s, Math.min(rows - 1, Math.max(columns[s][0], key === "ArrowUp" ? r + 1 : r - 1))];
      },
      at: (x, y) => {
        const s = Math.floor(((x - margin.left) / inner.width) * columns.length);
        const r = Math.floor((1 - (y - margin.top) / inner.height) * rows);
        return s < 0 || s >= columns.length || r < 0 || r >= rows ? null : [s, r];
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
