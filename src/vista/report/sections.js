// The sections of the page, one function each; `data` is the payload.
function legend(entries) {
  return html("div", { class: "legend" }, ...entries.map(({ name, more, series, fill, opacity, dash, whisker }) => {
    const sample = svg("svg", { width: 26, height: 12, "aria-hidden": "true" }), stroke = series === undefined ? "var(--quiet)" : colour(series);
    if (fill) sample.append(svg("rect", { x: 6, width: 14, height: 12, rx: 2, fill, opacity: opacity ?? 1 }));
    else if (whisker) sample.append(svg("path", { d: "M10 1h6M13 1V11M10 11h6", stroke, "stroke-width": 1.4, fill: "none" }));
    else sample.append(svg("line", { x1: 0, x2: 26, y1: 6, y2: 6, stroke, "stroke-width": 2, "stroke-dasharray": dash ? dash.map((length) => 2 * length).join(" ") : dashes(series) }));
    if (!fill && series !== undefined && hasMarker(series)) sample.append(svg("path", { d: marker(series, 13, 6), fill: stroke }));
    return html("span", {}, sample, html("span", {}, named(name), more ?? ""));
  }));
}

// Legend entries of a figure's areas or lines, which have the colour of each method, and of its whiskers if it has any.
const marks = (id) => Object.values(style.sections[id].marks).map((mark) => (mark.dash
  ? { name: mark.label, dash: mark.dash } : { name: mark.label, fill: `var(--${mark.colour ?? "quiet"})`, opacity: mark.opacity }));
const whiskerEntry = (id) => (page.whiskers[id] ? [{ name: page.whiskers[id], whisker: true }] : []);

const tolerance = (p) => (p.tau ? `, τ = ${p.tau}` : "");

function panel(name, note, ...content) {
  const heading = html("h3", {}, ...(name in style.series ? [swatch(seriesOf(name))] : []), named(name));
  if (note) heading.append(html("span", { class: "note" }, ...[note].flat()));
  return html("div", { class: "panel" }, heading, ...content);
}

function panels(list, wide = false) {
  return html("div", { class: wide ? "panels wide" : "panels" }, ...list);
}

function section(id, ...content) {
  const { title, caption } = style.sections[id];
  document.getElementById("contents").append(html("a", { href: `#${id}` }, title));
  const own = html("section", { id }, html("h2", {}, title), ...(caption ? [html("p", { class: "how" }, caption)] : []), ...content);
  document.getElementById("main").append(own);
  return own;
}

// The first screen: four tiles, the accuracy of all methods on one axis, and the first labels to check.
function firstScreen(data) {
  const tiles = html("div", { class: "tiles" }, ...data.tiles.map((tile) => html("div", { class: "tile" },
    html("b", {}, tile.value), html("span", {}, named(tile.label)), html("small", {}, named(tile.note)))));
  if (!data.figures) return section("accuracy", tiles);
  const list = data.figures.accuracy, text = style.sections.accuracy;
  const what = list[0].against === "test" ? "Test accuracy" : `Validation accuracy, ${list[0].against} labels`;
  const restarts = [...new Set(list.flatMap((p) => p.restarts))].sort((a, b) => a - b);
  const lines = list.map((p) => ({ name: p.name, band: p.curve, series: seriesOf(p.name), final: p.final }));
  const notes = [...whiskerEntry("accuracy").map(({ name }) => name), ...(list.some((p) => p.final) ? [`◇ ${style.fused}`] : [])];
  const plot = html("div", {}, html("h3", {}, `${what} after each epoch`, ...(notes.length ? [html("span", { class: "note" }, notes.join("; "))] : [])),
    curves(lines, { factor: 100, labels: true, restarts, height: 320, xLabel: text.x, yLabel: `${what.toLowerCase()} (%)`, label: `${what} after each epoch`, show: (s, i) => spread(s.band, i, (v) => percent(v, 1)) }, "accuracy"));
  const many = list.length > 24 ? [legend(lines)] : [];
  section("accuracy", tiles, html("div", { class: "first" }, html("div", { class: "plot" }, plot, ...many), ...firstSuspects(data)));
}

function rampLegend(low, high) {
  const strip = html("i");
  const paint = () => { strip.style.background = `linear-gradient(90deg, ${[0, 0.33, 0.67, 1].map((s) => shade(ramp(), s)).join(", ")})`; };
  paint();
  redraws.push({ element: strip, redraw: paint });
  return html("div", { class: "ramp" }, low, strip, high);
}

function comparison(data) {
  const { columns, rows } = data.table;
  const head = html("tr", {}, html("th", {}, "method"), html("th", {}, "seeds"), ...columns.map((c) => html("th", {}, c.title)));
  const body = rows.map((row) => {
    const name = html("td", {}, swatch(seriesOf(row.name)), named(row.name));
    if (row.planned && row.epochs < row.planned) name.append(html("span", { class: "state" }, `epoch ${row.epochs} of ${row.planned}`));
    const cells = columns.map((column) => {
      const cell = row.cells[column.key];
      if (!cell) return html("td", {}, "–");
      const value = cell.mean.toFixed(column.digits);
      const shown = html("td", {}, cell.best ? html("b", {}, value) : value);
      if (cell.se !== null) shown.append(html("span", { class: "se" }, ` ± ${cell.se.toFixed(column.digits)}`));
      return shown;
    });
    return html("tr", {}, name, html("td", {}, String(row.seeds)), ...cells);
  });
  section("comparison", ...scrolling(html("table", {}, html("thead", {}, head), html("tbody", {}, ...body))));
}

// A table with a hint above it if the window is too narrow for it.
function scrolling(table) {
  const box = html("div", { class: "scroll" }, table), hint = html("p", { class: "hint" }, "Scroll the table to see more columns →");
  new ResizeObserver(() => { hint.hidden = box.scrollWidth <= box.clientWidth; }).observe(box);
  return [hint, box];
}

function forgetting(data) {
  const list = data.figures.forgetting;
  if (!list.length) return section("forgetting", html("p", { class: "how" }, data.not_shown));
  const top = Math.min(1, largest(list.flatMap((p) => upper(p.accuracy))) * 1.04) || 1; // an axis even if no sample was ever right
  section("forgetting", ...(data.not_shown ? [html("p", { class: "how" }, named(data.not_shown))] : []), legend([...marks("forgetting"), ...whiskerEntry("forgetting")]),
    panels(list.map((p) => panel(p.name, p.note, bars(p, top, "forgetting")))));
}

function timeline(data) {
  const list = data.figures.timeline, text = style.sections.timeline;
  if (!list.length) return;
  const values = list.flatMap((p) => p.columns.flatMap(([, ...v]) => v.filter((w) => w > 0)));
  const low = Math.min(1, smallest(values));
  section("timeline",
    panels(list.map((p) => panel(p.name, named(p.run), heat({
      columns: p.columns, rows: p.columns.length, y0: 0.5, low, high: 1, xLabel: text.x, yLabel: text.y, label: `${text.title}: ${p.name}`, height: 280,
      tip: (s, r, w) => [`state of epoch ${s + 1}`, r < s ? "not trained yet" : `in the teacher after epoch ${r + 1}: ${w ? `weight ${w.toFixed(4)}` : "not an anchor"}`],
    }, "timeline")))), ...(values.length ? [rampLegend(`weight ${low.toPrecision(2)}`, "1")] : []));
}

function marginalCoverage(data) {
  const list = data.figures["marginal-coverage"];
  if (!list.length) return;
  section("marginal-coverage", legend(marks("marginal-coverage")),
    panels(list.map((p) => {
      const order = p.gained.map((g, i) => [g, i]).sort((a, b) => b[0] - a[0] || a[1] - b[1]).slice(0, style.anchors_shown).map(([, i]) => i).sort((a, b) => a - b);
      const hidden = p.states.length - order.length;
      const note = [named(p.run), `${tolerance(p)}${hidden ? `; ${hidden} more add ${p.gained.reduce((a, b) => a + b, 0) - order.reduce((a, i) => a + p.gained[i], 0)}` : ""}`, html("br"), p.weighting];
      return panel(p.name, note, order.length ? anchorRows(p, order) : html("p", { class: "how" }, "No state is an anchor at the end."));
    })));
}

function anchorRows(p, order) {
  const step = 22, left = 68, right = 84, own = colour(seriesOf(p.name));
  return chart((width) => {
    const inner = Math.max(30, width - left - right), height = order.length * step + 6;
    const x = (count) => left + (count / p.samples) * inner;
    const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, "aria-hidden": "true" });
    order.forEach((i, row) => {
      const y = row * step + 3, end = p.before[i] + p.gained[i];
      root.append(svg("text", { x: left - 6, y: y + 12, "text-anchor": "end" }, `epoch ${p.states[i]}`));
      root.append(svg("rect", { x: left, y, width: x(p.before[i]) - left, height: 16, fill: "var(--covered)" }));
      root.append(svg("rect", { x: x(p.before[i]), y, width: Math.max(1, x(end) - x(p.before[i])), height: 16, fill: own }));
      root.append(svg("rect", { x: left, y: y + 14, width: x(p.sizes[i]) - left, height: 2, fill: "var(--ink)" }));
      root.append(svg("text", { class: "value", x: width - 2, y: y + 12, "text-anchor": "end" }, `+${p.gained[i]} · ${p.weights[i].toFixed(2)}`));
    });
    return overRows(root, width, order.length, step, (row) => {
      const i = order[row];
      return [`epoch ${p.states[i]}`, `right ${p.sizes[i]} of ${p.samples}`, `already covered ${p.before[i]}`, `added ${p.gained[i]}`, `weight ${p.weights[i].toFixed(4)}`];
    });
  }, "marginal-coverage", `${style.sections["marginal-coverage"].title}: ${p.name}`);
}

function contributingSet(data) {
  const list = data.figures["contributing-set"], text = style.sections["contributing-set"];
  if (!list.length) return;
  const lines = list.map((p) => ({ name: p.name, band: p.anchors, series: seriesOf(p.name), panel: p }));
  const size = (p, anchors) => (p.bytes_each === null ? "" : `, ${readable(anchors * p.bytes_each)}`);
  section("contributing-set", legend([...lines.map((s) => ({ ...s, more: s.panel.detail })), ...whiskerEntry("contributing-set")]),
    curves(lines, { xLabel: text.x, yLabel: text.y, label: text.title, least: 1, show: (s, i) => spread(s.band, i, (v) => String(Number(v.toFixed(2)))) + size(s.panel, s.band.mean[i]) }, "contributing-set"));
}

function testAgainstValidation(data) {
  const list = data.figures["test-vs-validation"], text = style.sections["test-vs-validation"];
  const known = Object.entries(text.marks).filter(([key]) => list.some((p) => p[key])).map(([key, mark]) => ({ key, name: mark.label, dash: mark.dash }));
  const all = list.flatMap((p) => known.flatMap(({ key }) => (p[key] ? [p[key]] : [])));
  const [low, top] = [Math.max(0, smallest(all.flatMap(lower)) - 0.03), Math.min(1, largest(all.flatMap(upper)) + 0.03)];
  section("test-vs-validation", legend([...known, ...whiskerEntry("test-vs-validation")]),
    panels(list.map((p) => panel(p.name, "", curves(known.filter(({ key }) => p[key]).map((mark) => ({ ...mark, series: seriesOf(p.name), band: p[mark.key] })),
      { factor: 100, low, top, height: 240, xLabel: text.x, yLabel: text.y, label: `${text.title}: ${p.name}`, show: (s, i) => spread(s.band, i, percent) }, "test-vs-validation")))));
}

// The same classes in the same order in every panel, so that a row can be read across the methods.
function forgottenClasses(data) {
  const list = data.figures["forgotten-classes"];
  if (!list.some((p) => p.lost.some((n) => n > 0))) return;
  const step = 22, most = largest(list.flatMap((p) => upper(p.share)));
  const all = list[0].classes, shown = all.slice(0, style.classes_shown);
  section("forgotten-classes", ...(whiskerEntry("forgotten-classes").length ? [legend(whiskerEntry("forgotten-classes"))] : []), panels(list.map((p) => {
    const note = `by ${p.against} labels${all.length > shown.length ? `; ${shown.length} of ${all.length} classes` : ""}`;
    return panel(p.name, note, chart((width) => {
      const values = shown.map((_, i) => spread(p.share, i, (v) => percent(v, 1)));
      const left = Math.min(130, width * 0.36, 10 + largest(shown.map(textWidth))), inner = width - left - 10 - largest(values.map(textWidth));
      const root = svg("svg", { viewBox: `0 0 ${width} ${shown.length * step}`, height: shown.length * step, "aria-hidden": "true" });
      shown.forEach((name, i) => {
        const at = (share) => Math.max(0, (share / most) * inner), y = i * step + 3;
        const [low, end, high] = [lower(p.share)[i], p.share.mean[i], upper(p.share)[i]].map(at);
        const label = svg("text", { class: "name", x: left - 6, y: i * step + 14, "text-anchor": "end" }, shorten(name, left - 8));
        label.append(svg("title", {}, name));
        root.append(label);
        root.append(svg("rect", { x: left, y, width: Math.max(1, end), height: 15, rx: 2, fill: colour(seriesOf(p.name)), opacity: 0.8 }));
        if (p.share.se && p.share.se[i] !== null) root.append(svg("path", { class: "whisker", d: `M${left + low} ${y + 4}v7M${left + low} ${y + 7.5}H${left + high}M${left + high} ${y + 4}v7`, stroke: "var(--ink)" }));
        root.append(svg("text", { class: "value", x: left + high + 7, y: y + 11 }, values[i]));
      });
      return overRows(root, width, shown.length, step, (i) => [[named(shown[i])], `${p.lost[i]} of ${counted(p.samples[i], "sample")} were right at some epoch and are wrong at the end`, `${counted(p.times_lost[i], "change")} from right to wrong`]);
    }, "forgotten-classes", `${style.sections["forgotten-classes"].title}: ${p.name}`, "class"));
  })));
}

function descriptions(data) {
  const facts = (values) => html("table", { class: "facts" }, html("tbody", {}, ...Object.entries(values).map(([name, value]) =>
    html("tr", {}, html("td", {}, named(name)), html("td", {}, named(typeof value === "string" ? value : JSON.stringify(value)))))));
  section("runs", ...data.runs.map((run) =>
    html("details", {}, html("summary", {}, named(run.group), ": ", named(run.path)), facts({ ...run.config, ...Object.fromEntries(Object.entries(run.environment).map(([k, v]) => [`environment: ${k}`, v])) }))));
}
