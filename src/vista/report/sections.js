// The sections of the page, one function each; `data` is the payload.
function legend(entries) {
  return html("div", { class: "legend" }, ...entries.map(({ name, more, index, fill, opacity, solid }) => {
    const sample = svg("svg", { width: 26, height: 12, "aria-hidden": "true" });
    if (fill) sample.append(svg("rect", { x: 6, width: 14, height: 12, rx: 2, fill, opacity: opacity ?? 1 }));
    else sample.append(svg("line", { x1: 0, x2: 26, y1: 6, y2: 6, stroke: colour(index), "stroke-width": 2, "stroke-dasharray": solid ? "" : dashes(index) }));
    if (!fill && hasMarker(index)) sample.append(svg("path", { d: marker(index, 13, 6), fill: colour(index) }));
    return html("span", {}, sample, html("span", {}, named(name), more ?? ""));
  }));
}

// Legend entries of a figure's areas or lines, and of its bands if it has any.
const marks = (id) => Object.values(style.sections[id].marks).map((mark) => ({ name: mark.label, index: mark.series, fill: mark.colour && `var(--${mark.colour})` }));
const bandEntry = (id) => (page.bands[id] ? [{ name: page.bands[id], fill: "var(--quiet)", opacity: 0.4 }] : []);

const tolerance = (p) => (p.tau ? `, τ = ${p.tau}` : "");

function panel(name, note, ...content) {
  const heading = html("h3", {}, named(name));
  if (note) heading.append(html("span", { class: "note" }, ...[note].flat()));
  return html("div", { class: "panel" }, heading, ...content);
}

function panels(list, wide = false) {
  return html("div", { class: wide ? "panels wide" : "panels" }, ...list);
}

function section(id, ...content) {
  const { title, caption } = style.sections[id];
  document.getElementById("contents").append(html("a", { href: `#${id}` }, title));
  document.getElementById("main").append(html("section", { id }, html("h2", {}, title), html("p", { class: "how" }, caption), ...content));
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
    const name = html("td", {}, named(row.name));
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
  const top = Math.min(1, largest(list.flatMap((p) => upper(p.accuracy))) * 1.04) || 1; // an axis even if no sample was ever right
  section("forgetting", legend([...marks("forgetting"), ...bandEntry("forgetting")]),
    panels(list.map((p) => panel(p.name, p.note, bars(p, top, "forgetting")))));
}

function timeline(data) {
  const list = data.figures.timeline, text = style.sections.timeline;
  const values = list.flatMap((p) => p.columns.flatMap(([, ...v]) => v.filter((w) => w > 0)));
  const low = Math.min(1, smallest(values));
  section("timeline",
    panels(list.map((p) => panel(p.name, [named(p.run), p.kept ? "" : `, ${style.replayed}`], heat({
      columns: p.columns, rows: p.columns.length, y0: 0.5, low, high: 1, xLabel: text.x, yLabel: text.y, label: `${text.title}: ${p.name}`, height: 280,
      tip: (s, r, w) => [[named(p.name), `: state of epoch ${s + 1}`], r < s ? "not trained yet" : `in the teacher after epoch ${r + 1}: ${w ? `weight ${w.toFixed(4)}` : "not an anchor"}`],
    }, "timeline")))), ...(values.length ? [rampLegend(`weight ${low.toPrecision(2)}`, "1")] : []));
}

function marginalCoverage(data) {
  section("marginal-coverage", legend(marks("marginal-coverage")),
    panels(data.figures["marginal-coverage"].map((p) => {
      const order = p.gained.map((g, i) => [g, i]).sort((a, b) => b[0] - a[0] || a[1] - b[1]).slice(0, style.anchors_shown).map(([, i]) => i).sort((a, b) => a - b);
      const hidden = p.states.length - order.length;
      const note = [named(p.run), `${p.kept ? tolerance(p) : `, ${style.replayed}`}${hidden ? `; ${hidden} more add ${p.gained.reduce((a, b) => a + b, 0) - order.reduce((a, i) => a + p.gained[i], 0)}` : ""}`, html("br"), p.weighting];
      return panel(p.name, note, order.length ? anchorRows(p, order) : html("p", { class: "how" }, "No state is an anchor at the end."));
    })));
}

function anchorRows(p, order) {
  const step = 22, left = 68, right = 84;
  return chart((width) => {
    const inner = Math.max(30, width - left - right), height = order.length * step + 6;
    const x = (count) => left + (count / p.samples) * inner;
    const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, "aria-hidden": "true" });
    order.forEach((i, row) => {
      const y = row * step + 3, end = p.before[i] + p.gained[i];
      root.append(svg("text", { x: left - 6, y: y + 12, "text-anchor": "end" }, `epoch ${p.states[i]}`));
      root.append(svg("rect", { x: left, y, width: x(p.before[i]) - left, height: 16, fill: "var(--covered)" }));
      root.append(svg("rect", { x: x(p.before[i]), y, width: Math.max(1, x(end) - x(p.before[i])), height: 16, fill: "var(--blue)" }));
      root.append(svg("rect", { x: left, y: y + 13, width: x(p.sizes[i]) - left, height: 3, fill: "var(--yellow)" }));
      root.append(svg("text", { class: "value", x: width - 2, y: y + 12, "text-anchor": "end" }, `+${p.gained[i]} · ${p.weights[i].toFixed(2)}`));
    });
    const index = (row) => {
      const i = order[row];
      return i === undefined ? null : { index: row, x: x(p.before[i]), y: row * step, lines: [[named(p.name), `: epoch ${p.states[i]}`], `right: ${p.sizes[i]} of ${p.samples}`, `already covered: ${p.before[i]}`, `added: ${p.gained[i]}`, `weight: ${p.weights[i].toFixed(4)}`] };
    };
    return overRows(root, order.length, step, index);
  }, "marginal-coverage", `${style.sections["marginal-coverage"].title}: ${p.name}`);
}

function lifeExpectancy(data) {
  const list = data.figures["life-expectancy"], text = style.sections["life-expectancy"];
  const share = (p, count) => count / (p.samples * p.seeds); // counts are summed over the seeds
  // The longest column of one seed may exceed the band of the mean.
  const rows = Math.max(1, Math.ceil(largest(list.flatMap((p) => [...upper(p.lifespans), ...p.columns.map((c) => c.length - 1)]))));
  const least = smallest(list.map((p) => share(p, 1)));
  const most = Math.max(0, largest(list.flatMap((p) => p.columns.flatMap(([, ...v]) => v.map((c) => share(p, c))))));
  const tenth = (v) => String(Number(v.toFixed(1)));
  const band = bandEntry("life-expectancy"), [line] = marks("life-expectancy");
  section("life-expectancy", ...(band.length ? [legend([{ ...line, solid: true }, ...band])] : []),
    panels(list.map((p) => panel(p.name, p.note, heat({
      columns: p.columns.map(([first, ...v]) => [first, ...v.map((c) => share(p, c))]), rows, y0: 0, low: least, high: most, xLabel: text.x, yLabel: text.y, label: `${text.title}: ${p.name}`, curve: p.lifespans, series: line.index,
      tip: (s, r, v) => [[named(p.name), `: state of epoch ${s + 1}`], `anchor for ${counted(spread(p.lifespans, s, tenth), "epoch")}`, ...(v ? [`after ${counted(r + 1, "epoch")}: ${counted(tenth(v * p.samples), "sample")}, ${percent(v)}`] : [])],
    }, "life-expectancy")))), ...(most > 0 ? [rampLegend(percent(least), `${percent(most)} of the validation samples`)] : []));
}

function lineSections(data) {
  const seriesOf = (list, key) => list.map((p, index) => ({ name: p.name, band: p[key], index, panel: p }));
  const labels = (id) => ({ xLabel: style.sections[id].x, yLabel: style.sections[id].y, label: style.sections[id].title });
  const ends = seriesOf(data.figures["end-of-training"], "share");
  section("end-of-training", legend([...ends, ...bandEntry("end-of-training")]),
    curves(ends, { ...labels("end-of-training"), factor: 100, show: (s, i) => spread(s.band, i, percent) }, "end-of-training"));
  const sets = seriesOf(data.figures["contributing-set"], "anchors");
  const size = (p, anchors) => (p.bytes_each === null ? "" : `, ${readable(anchors * p.bytes_each)}`);
  section("contributing-set", legend([...sets.map((s) => ({ ...s, more: s.panel.detail })), ...bandEntry("contributing-set")]),
    curves(sets, { ...labels("contributing-set"), least: 1, show: (s, i) => spread(s.band, i, (v) => String(Number(v.toFixed(2)))) + size(s.panel, s.band.mean[i]) }, "contributing-set"));
  testAgainstValidation(data);
}

function testAgainstValidation(data) {
  const list = data.figures["test-vs-validation"], text = style.sections["test-vs-validation"];
  const known = Object.entries(text.marks).filter(([key]) => list.some((p) => p[key])).map(([key, mark]) => ({ key, name: mark.label, index: mark.series }));
  const all = list.flatMap((p) => known.flatMap(({ key }) => (p[key] ? [p[key]] : [])));
  const [low, top] = [Math.max(0, smallest(all.flatMap(lower)) - 0.03), Math.min(1, largest(all.flatMap(upper)) + 0.03)];
  section("test-vs-validation", legend([...known, ...bandEntry("test-vs-validation")]),
    panels(list.map((p) => panel(p.name, "", curves(known.filter(({ key }) => p[key]).map((mark) => ({ ...mark, band: p[mark.key] })),
      { factor: 100, low, top, height: 240, xLabel: text.x, yLabel: text.y, of: p.name, label: `${text.title}: ${p.name}`, show: (s, i) => spread(s.band, i, percent) }, "test-vs-validation")))));
}

function forgottenClasses(data) {
  const list = data.figures["forgotten-classes"].filter((p) => p.lost.some((n) => n > 0));
  if (!list.length) return;
  const step = 22, most = largest(list.flatMap((p) => upper(p.share)));
  const band = bandEntry("forgotten-classes");
  section("forgotten-classes", ...(band.length ? [legend(band)] : []), panels(list.map((p) => {
    const shown = p.classes.slice(0, style.classes_shown);
    const note = `by ${p.against} labels${p.classes.length > shown.length ? `; the ${shown.length} of ${p.classes.length} classes that lost most` : ""}`;
    return panel(p.name, note, chart((width) => {
      const values = shown.map((_, i) => spread(p.share, i, (v) => percent(v, 1)));
      const left = Math.min(130, width * 0.36, 10 + largest(shown.map(textWidth))), inner = width - left - 7 - largest(values.map(textWidth));
      const root = svg("svg", { viewBox: `0 0 ${width} ${shown.length * step}`, height: shown.length * step, "aria-hidden": "true" });
      shown.forEach((name, i) => {
        const at = (share) => Math.max(0, (share / most) * inner), y = i * step + 3;
        const [low, end, high] = [lower(p.share)[i], p.share.mean[i], upper(p.share)[i]].map(at);
        const label = svg("text", { class: "name", x: left - 6, y: i * step + 14, "text-anchor": "end" }, shorten(name, left - 8));
        label.append(svg("title", {}, name));
        root.append(label);
        root.append(svg("rect", { x: left, y, width: Math.max(1, end), height: 15, rx: 2, fill: "var(--yellow)" }));
        if (p.share.se) root.append(svg("rect", { class: "band", x: left + low, y, width: high - low, height: 15, fill: "var(--ink)", opacity: 0.35 }));
        root.append(svg("text", { class: "value", x: left + high + 5, y: y + 11 }, values[i]));
      });
      const index = (i) => (shown[i] === undefined ? null : { index: i, x: left, y: i * step, lines: [[named(shown[i])], `${p.lost[i]} of ${counted(p.samples[i], "sample")} were right at some epoch and are wrong at the end`, `${counted(p.times_lost[i], "change")} from right to wrong`] });
      return overRows(root, shown.length, step, index);
    }, "forgotten-classes", `${style.sections["forgotten-classes"].title}: ${p.name}`));
  })));
}

function descriptions(data) {
  const facts = (values) => html("table", { class: "facts" }, html("tbody", {}, ...Object.entries(values).map(([name, value]) =>
    html("tr", {}, html("td", {}, named(name)), html("td", {}, named(typeof value === "string" ? value : JSON.stringify(value)))))));
  section("runs", ...data.runs.map((run) =>
    html("details", {}, html("summary", {}, named(run.group), ": ", named(run.path)), facts({ ...run.config, ...Object.fromEntries(Object.entries(run.environment).map(([k, v]) => [`environment: ${k}`, v])) }))));
}
