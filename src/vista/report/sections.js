// One function per section of the page; `data` is what the page was written with.
function legend(entries) {
  return html("div", { class: "legend" }, ...entries.map(({ name, more, place, fill, opacity, dash }) => {
    const sample = svg("svg", { width: 26, height: 12, "aria-hidden": "true" });
    if (fill) sample.append(svg("rect", { x: 6, width: 14, height: 12, rx: 2, fill, opacity: opacity ?? 1 }));
    else sample.append(svg("line", { x1: 0, x2: 26, y1: 6, y2: 6, stroke: colour(place), "stroke-width": 2, "stroke-dasharray": dash ?? dashes(place) }));
    if (!fill && marker(place)) sample.append(svg("path", { d: marker(place)(13, 6), fill: colour(place) }));
    return html("span", {}, sample, html("span", {}, named(name), more ?? ""));
  }));
}

// What a band is, for the legend of a figure that has one.
function bandEntry(bands) {
  const seeds = bands.filter((band) => band?.se).map((band) => band.seeds);
  if (!seeds.length) return [];
  const [few, many] = [smallest(seeds), largest(seeds)];
  return [{ name: `mean ± standard error, ${few === many ? few : `${few} to ${many}`} seeds`, fill: "var(--quiet)", opacity: 0.4 }];
}

const tolerance = (p) => (p.tau ? `, τ = ${p.tau}` : "");

function panel(name, note, ...content) {
  const heading = html("h3", {}, named(name));
  if (note) heading.append(html("span", { class: "note" }, ...[note].flat()));
  return html("div", { class: "panel" }, heading, ...content);
}

function panels(list, wide = false) {
  return html("div", { class: wide ? "panels wide" : "panels" }, ...list);
}

function section(id, title, how, ...content) {
  document.getElementById("contents").append(html("a", { href: `#${id}` }, title));
  document.getElementById("main").append(html("section", { id }, html("h2", {}, title), html("p", { class: "how" }, how), ...content));
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
  section("comparison", "Comparison", data.how.comparison, ...scrolling(html("table", {}, html("thead", {}, head), html("tbody", {}, ...body))));
}

// A table, and a word above it where the window is too narrow for it.
function scrolling(table) {
  const box = html("div", { class: "scroll" }, table), hint = html("p", { class: "hint" }, "More columns to the right: scroll the table →");
  new ResizeObserver(() => { hint.hidden = box.scrollWidth <= box.clientWidth; }).observe(box);
  return [hint, box];
}

function forgetting(data) {
  const list = data.figures.forgetting;
  const top = Math.min(1, largest(list.flatMap((p) => upper(p.accuracy))) * 1.04) || 1; // never right: an axis all the same
  section("forgetting", "What was forgotten", data.how.forgetting,
    legend([{ name: "right at this epoch", fill: "var(--yellow)" }, { name: "of those, still right at the end", fill: "var(--blue)" }, ...bandEntry(list.map((p) => p.accuracy))]),
    panels(list.map((p) => panel(p.name, `mean deviation gap ${withError(p.mean_gap.value, p.mean_gap.se, percent)}`, bars(p, top, "forgetting")))));
}

function timeline(data) {
  const list = data.figures.timeline;
  const values = list.flatMap((p) => p.columns.flatMap(([, ...v]) => v.filter((w) => w > 0)));
  const low = Math.min(1, smallest(values));
  section("timeline", "The anchors over time", data.how.timeline,
    panels(list.map((p) => panel(p.name, [named(p.run), p.kept ? "" : ", had it kept anchors"], heat({
      columns: p.columns, rows: p.columns.length, y0: 0.5, low, high: 1, xLabel: "epoch of the state", yLabel: "teacher made after epoch", label: `anchors over time: ${p.name}`, height: 280,
      tip: (s, r, w) => [[named(p.name), `: state of epoch ${s + 1}`], r < s ? "not there yet" : `in the teacher after epoch ${r + 1}: ${w ? `weight ${w.toFixed(4)}` : "no anchor"}`],
    }, "timeline")))), ...(values.length ? [rampLegend(`weight ${low.toPrecision(2)}`, "1")] : []));
}

function marginalCoverage(data) {
  const ROWS = 14;
  section("marginal-coverage", "What each anchor adds", data.how["marginal-coverage"],
    legend([{ name: "all that it gets right", fill: "var(--yellow)" }, { name: "covered by better-ranked anchors", fill: "var(--covered)" }, { name: "added by this one", fill: "var(--blue)" }]),
    panels(data.figures["marginal-coverage"].map((p) => {
      const order = p.gained.map((g, i) => [g, i]).sort((a, b) => b[0] - a[0] || a[1] - b[1]).slice(0, ROWS).map(([, i]) => i).sort((a, b) => a - b);
      const hidden = p.states.length - order.length;
      const note = [named(p.run), `${p.kept ? tolerance(p) : ", had it kept anchors"}${hidden ? `; ${hidden} more add ${p.gained.reduce((a, b) => a + b, 0) - order.reduce((a, i) => a + p.gained[i], 0)}` : ""}`, html("br"), p.reading];
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
      return i === undefined ? null : { index: row, x: x(p.before[i]), y: row * step, lines: [[named(p.name), `: epoch ${p.states[i]}`], `right: ${p.sizes[i]} of ${p.samples}`, `covered before: ${p.before[i]}`, `added: ${p.gained[i]}`, `weight: ${p.weights[i].toFixed(4)}`] };
    };
    return overRows(root, order.length, step, index);
  }, "marginal-coverage", `what each anchor adds: ${p.name}`);
}

function lifeExpectancy(data) {
  const list = data.figures["life-expectancy"];
  const share = (p, count) => count / (p.samples * p.seeds); // counts are summed over the seeds
  // A seed's longest bar may reach beyond the mean of all and its error.
  const rows = Math.max(1, Math.ceil(largest(list.flatMap((p) => [...upper(p.lifespans), ...p.columns.map((c) => c.length - 1)]))));
  const least = smallest(list.map((p) => share(p, 1)));
  const most = Math.max(0, largest(list.flatMap((p) => p.columns.flatMap(([, ...v]) => v.map((c) => share(p, c))))));
  const tenth = (v) => String(Number(v.toFixed(1)));
  const band = bandEntry(list.map((p) => p.lifespans));
  section("life-expectancy", "How long a state stays needed", data.how["life-expectancy"],
    ...(band.length ? [legend([{ name: "mean lifespan of a state", place: 1, dash: "" }, ...band])] : []),
    panels(list.map((p) => panel(p.name, `${p.seeds > 1 ? `${p.seeds} seeds; ` : ""}mean lifespan ${withError(p.mean_lifespan.value, p.mean_lifespan.se, (v) => v.toFixed(1))} epochs`, heat({
      columns: p.columns.map(([first, ...v]) => [first, ...v.map((c) => share(p, c))]), rows, y0: 0, low: least, high: most, xLabel: "epoch of the state", yLabel: "epochs as anchor", label: `life expectancy: ${p.name}`, curve: p.lifespans,
      tip: (s, r, v) => [[named(p.name), `: state of epoch ${s + 1}`], `an anchor for ${counted(spread(p.lifespans, s, tenth), "epoch")}`, ...(v ? [`after ${counted(r + 1, "epoch")}: ${counted(tenth(v * p.samples), "sample")}, ${percent(v)}`] : [])],
    }, "life-expectancy")))), ...(most > 0 ? [rampLegend(percent(least), `${percent(most)} of the validation samples`)] : []));
}

function lineSections(data) {
  const seriesOf = (list, key) => list.map((p, place) => ({ name: p.name, band: p[key], place, panel: p }));
  const ends = seriesOf(data.figures["end-of-training"], "share");
  section("end-of-training", "Which epochs still hold something at the end", data.how["end-of-training"], legend([...ends, ...bandEntry(ends.map((s) => s.band))]),
    curves(ends, { factor: 100, xLabel: "epoch of the state", yLabel: "marginal coverage, % of the validation samples", label: "end-of-training coverage", show: (s, i) => spread(s.band, i, percent) }, "end-of-training"));
  const sets = seriesOf(data.figures["contributing-set"], "anchors");
  const size = (p, anchors) => (p.bytes_each === null ? "" : `, ${readable(anchors * p.bytes_each)}`);
  const told = sets.map((s) => ({ ...s, more: `: at most ${s.panel.most}${size(s.panel, s.panel.most)}${s.panel.kept ? tolerance(s.panel) : ", had it kept them"}` }));
  section("contributing-set", "How many states must be kept", data.how["contributing-set"], legend([...told, ...bandEntry(sets.map((s) => s.band))]),
    curves(sets, { least: 1, xLabel: "epoch", yLabel: "anchors in the contributing set", label: "contributing set", show: (s, i) => spread(s.band, i, (v) => String(Number(v.toFixed(2)))) + size(s.panel, s.band.mean[i]) }, "contributing-set"));
  testAgainstValidation(data);
}

function testAgainstValidation(data) {
  const list = data.figures["test-vs-validation"];
  const kinds = [["test", "test", 0], ["validation, true labels", "validation_true", 1], ["validation, given labels", "validation", 2]];
  const known = kinds.filter(([, key]) => list.some((p) => p[key]));
  const all = list.flatMap((p) => known.flatMap(([, key]) => (p[key] ? [p[key]] : [])));
  const [low, top] = [Math.max(0, smallest(all.flatMap(lower)) - 0.03), Math.min(1, largest(all.flatMap(upper)) + 0.03)];
  section("test-vs-validation", "Test against validation", data.how["test-vs-validation"],
    legend([...known.map(([name, , place]) => ({ name, place })), ...bandEntry(all)]),
    panels(list.map((p) => panel(p.name, "", curves(known.filter(([, key]) => p[key]).map(([name, key, place]) => ({ name, place, band: p[key] })),
      { factor: 100, low, top, height: 240, xLabel: "epoch", yLabel: "accuracy (%)", of: p.name, label: `test against validation: ${p.name}`, show: (s, i) => spread(s.band, i, percent) }, "test-vs-validation")))));
}

function forgottenClasses(data) {
  const list = data.figures["forgotten-classes"].filter((p) => p.lost.some((n) => n > 0));
  if (!list.length) return;
  const ROWS = 12, step = 22, most = largest(list.flatMap((p) => upper(p.share)));
  const band = bandEntry(list.map((p) => p.share));
  section("forgotten-classes", "Which classes were forgotten", data.how["forgotten-classes"], ...(band.length ? [legend(band)] : []), panels(list.map((p) => {
    const shown = p.classes.slice(0, ROWS);
    const note = `by ${p.against} labels${p.classes.length > ROWS ? `; the ${ROWS} of ${p.classes.length} classes that lost most` : ""}`;
    return panel(p.name, note, chart((width) => {
      const values = shown.map((_, i) => spread(p.share, i, (v) => percent(v, 1)));
      const left = Math.min(130, width * 0.36, 10 + largest(shown.map(textWidth))), inner = width - left - 7 - largest(values.map(textWidth));
      const root = svg("svg", { viewBox: `0 0 ${width} ${shown.length * step}`, height: shown.length * step, "aria-hidden": "true" });
      shown.forEach((name, i) => {
        const at = (share) => Math.max(0, (share / most) * inner), y = i * step + 3;
        const [low, end, high] = [lower(p.share)[i], p.share.mean[i], upper(p.share)[i]].map(at);
        const label = svg("text", { class: "name", x: left - 6, y: i * step + 14, "text-anchor": "end" }, shortened(name, left - 8));
        label.append(svg("title", {}, name));
        root.append(label);
        root.append(svg("rect", { x: left, y, width: Math.max(1, end), height: 15, rx: 2, fill: "var(--yellow)" }));
        if (p.share.se) root.append(svg("rect", { class: "band", x: left + low, y, width: high - low, height: 15, fill: "var(--ink)", opacity: 0.35 }));
        root.append(svg("text", { class: "value", x: left + high + 5, y: y + 11 }, values[i]));
      });
      const index = (i) => (shown[i] === undefined ? null : { index: i, x: left, y: i * step, lines: [[named(shown[i])], `${p.lost[i]} of ${counted(p.samples[i], "sample")} once right, wrong at the end`, `${counted(p.times_lost[i], "change")} from right to wrong on the way`] });
      return overRows(root, shown.length, step, index);
    }, "forgotten-classes", `forgotten classes: ${p.name}`));
  })));
}

function descriptions(data) {
  const facts = (values) => html("table", { class: "facts" }, html("tbody", {}, ...Object.entries(values).map(([name, value]) =>
    html("tr", {}, html("td", {}, named(name)), html("td", {}, named(typeof value === "string" ? value : JSON.stringify(value)))))));
  section("runs", "Configuration and environment", data.how.runs, ...data.runs.map((run) =>
    html("details", {}, html("summary", {}, named(run.group), ": ", named(run.path)), facts({ ...run.config, ...Object.fromEntries(Object.entries(run.environment).map(([k, v]) => [`environment: ${k}`, v])) }))));
}
