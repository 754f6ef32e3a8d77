// The labels to check: the first nine, the matrix, the filters and the cards; and one sample's path through training.
const NINE = 9, PAGE = 60, MATRIX = 12;

// Pages in one tab share its session storage, so keys of a single page contain its path.
function store(key, value) {
  try { sessionStorage.setItem(`vista-${key}`, value); } catch { /* a page opened from a file may lack storage */ }
}

function load(key) {
  try { return sessionStorage.getItem(`vista-${key}`); } catch { return null; }
}

const ofPage = (key) => `${key} ${location.pathname}`;

// What a card calls its sample: the file where there is one, else the id.
const sampleName = (row) => row.file ?? `#${row.id}`;

function suspectCard(row, rank, suspects, choose) {
  const name = (k) => named(suspects.classes[k]);
  const card = html("div", { class: "suspect", "data-id": row.id });
  if (row.image) card.append(html("img", { src: row.image, alt: `sample ${row.id}`, decoding: "async" }));
  card.append(html("div", { class: "change" }, html("s", {}, name(row.given)), " → ", html("b", {}, name(row.suggested))));
  card.append(html("div", { class: "quiet file", title: sampleName(row) }, named(sampleName(row))));
  card.append(html("div", { class: "quiet" }, `rank ${rank}, score ${row.score.toFixed(2)}`));
  if (row.true !== undefined) {
    const verdict = row.true === row.given ? "given is right" : row.true === row.suggested ? "suggestion is right" : ["true: ", name(row.true)];
    card.append(html("div", { class: row.true === row.suggested ? "quiet" : "wrong" }, ...[verdict].flat()));
  }
  if (row.path && choose) {
    const button = html("button", { type: "button", class: "path" }, "path");
    button.addEventListener("click", () => choose(row.id));
    card.append(button);
  }
  return card;
}

// The first nine labels to check, beside the result.
function firstSuspects(data) {
  const suspects = data.suspects;
  if (!suspects?.rows.length) return [];
  const cards = suspects.rows.slice(0, NINE).map((row) => {
    const link = html("a", { href: "#suspects", class: "nine", title: `${suspects.classes[row.given]} → ${suspects.classes[row.suggested]}, ${sampleName(row)}` });
    if (row.image) link.append(html("img", { src: row.image, alt: `sample ${row.id}`, decoding: "async" }));
    link.append(html("span", {}, html("s", {}, named(suspects.classes[row.given])), html("b", {}, named(suspects.classes[row.suggested]))), ...(row.image ? [] : [html("small", {}, named(sampleName(row)))]));
    return link;
  });
  const { length } = suspects.rows, isShort = length < suspects.estimated;
  const heading = cards.length < suspects.estimated ? `First ${cards.length} of ${suspects.estimated.toLocaleString("en")} labels to check` : `${counted(cards.length, "label")} to check`;
  return [html("div", { class: "check" }, html("h3", {}, heading, html("span", { class: "note" }, "given, crossed out, and suggested")), html("div", { class: "nines" }, ...cards),
    html("a", { href: "#suspects", class: "all" }, length > NINE ? `${isShort ? "The first" : "All"} ${length} labels to check →` : "Details →"))];
}

// Given and suggested classes of the listed samples; a cell selects its samples.
function pairMatrix(suspects, choose) {
  const count = new Map(), rows = new Map(), columns = new Map();
  const add = (map, key) => map.set(key, (map.get(key) ?? 0) + 1);
  for (const { given, suggested } of suspects.rows) { add(count, `${given} ${suggested}`); add(rows, given); add(columns, suggested); }
  const most = (map) => [...map].sort((a, b) => b[1] - a[1] || a[0] - b[0]).slice(0, MATRIX).map(([k]) => k).sort((a, b) => a - b);
  const [given, suggested] = [most(rows), most(columns)], top = largest([...count.values()]);
  const name = (k) => named(suspects.classes[k]);
  const head = html("tr", {}, html("th", { class: "corner" }, "suggested →", html("br"), "given ↓"), ...suggested.map((k) => html("th", { scope: "col" }, html("span", {}, name(k)))));
  const body = given.map((g) => html("tr", {}, html("th", { scope: "row" }, name(g)), ...suggested.map((s) => {
    const n = count.get(`${g} ${s}`);
    if (!n) return html("td", {}, g === s ? html("i", { class: "same" }) : "");
    const level = html("i"), button = html("button", { type: "button", "data-pair": `${g} ${s}`, "aria-label": `${suspects.classes[g]} → ${suspects.classes[s]}: ${counted(n, "label")}`, "aria-pressed": "false" }, level, html("span", {}, String(n)));
    level.style.opacity = 0.12 + (0.38 * n) / top;
    button.addEventListener("click", () => choose(g, s));
    return html("td", {}, button);
  })));
  const hidden = Math.max(rows.size - given.length, columns.size - suggested.length);
  const short = suggested.every((k) => suspects.classes[k].length <= 3);
  return html("div", { class: short ? "matrix short" : "matrix" }, html("h3", {}, "Given → suggested", html("span", { class: "note" }, `number of listed labels; a cell shows its samples${hidden > 0 ? `; the ${MATRIX} most frequent classes` : ""}`)),
    ...scrolling(html("table", {}, html("thead", {}, head), html("tbody", {}, ...body))));
}

function gallery(data, choosePath) {
  const suspects = data.suspects;
  if (!suspects) return section("suspects", html("p", { class: "how" }, style.no_suspects));
  if (!suspects.rows.length) return section("suspects", html("p", { class: "how" }, named(suspects.note)));
  const used = (key) => [...new Set(suspects.rows.map((row) => row[key]))].sort((a, b) => a - b);
  const choice = (id, key) => html("select", { id }, html("option", { value: "" }, "all"), ...used(key).map((k) => html("option", { value: k }, suspects.classes[k])));
  const given = choice("filter-given", "given"), suggested = choice("filter-suggested", "suggested");
  const lowest = Math.floor(100 * smallest(suspects.rows.map((row) => row.score))) / 100;
  const score = html("input", { id: "filter-score", type: "range", min: lowest, max: 1, step: 0.01, value: lowest });
  const rankOf = (id, value) => html("input", { id, type: "number", min: 1, max: suspects.rows.length, value, inputmode: "numeric" });
  const from = rankOf("filter-from", 1), to = rankOf("filter-to", suspects.rows.length);
  const least = html("output"), count = html("span", { id: "suspect-count", role: "status" });
  const grid = html("div", { class: "gallery", id: "suspect-gallery" }), more = html("button", { type: "button", class: "more" });
  const clear = html("button", { type: "button", id: "filter-clear" }, "Clear filters");
  const controls = [given, suggested, score, from, to], usual = controls.map((control) => control.value);
  const ranked = suspects.rows.map((row, k) => [row, k + 1]);
  const chosen = () => ranked.filter(([row, rank]) => (given.value === "" || row.given === Number(given.value)) &&
    (suggested.value === "" || row.suggested === Number(suggested.value)) && row.score >= Number(score.value) &&
    rank >= Number(from.value || 1) && rank <= Number(to.value || Infinity));
  restoreFilters(controls, suspects.classes, chosen);
  let limit = PAGE;
  const show = () => {
    store(ofPage("filters"), JSON.stringify([suspects.classes, ...controls.map((control) => control.value)]));
    least.textContent = Number(score.value).toFixed(2);
    const kept = chosen();
    const isFiltered = controls.some((control, k) => control.value !== usual[k]), shown = Math.min(limit, kept.length);
    count.textContent = isFiltered ? `${shown} of ${kept.length} that match shown, ${ranked.length} on the page` : `${shown} of ${ranked.length} shown`;
    grid.replaceChildren(...kept.slice(0, limit).map(([row, rank]) => suspectCard(row, rank, suspects, choosePath)));
    more.textContent = `Show ${Math.min(PAGE, kept.length - shown)} more`;
    more.hidden = kept.length <= limit;
    clear.hidden = !isFiltered;
    for (const cell of matrix.querySelectorAll("button")) cell.setAttribute("aria-pressed", String(cell.dataset.pair === `${given.value} ${suggested.value}`));
  };
  const set = (values) => { controls.forEach((control, k) => { control.value = values[k]; }); limit = PAGE; show(); };
  const matrix = pairMatrix(suspects, (g, s) => set(given.value === String(g) && suggested.value === String(s) ? usual : [String(g), String(s), ...usual.slice(2)]));
  for (const control of controls) control.addEventListener("input", () => { limit = PAGE; show(); });
  more.addEventListener("click", () => { limit += PAGE; show(); });
  clear.addEventListener("click", () => set(usual));
  section("suspects", html("p", { class: "how" }, named(suspects.note)), matrix,
    html("div", { class: "filters" }, html("label", {}, "given", given), html("label", {}, "suggested", suggested), html("label", {}, "rank", from, "to", to), html("label", {}, "minimum score", score, least), count, clear),
    grid, more);
  show();
}

// Restores the filters of the last visit, unless the classes have changed or no sample would match.
function restoreFilters(controls, classes, chosen) {
  const usual = controls.map((control) => control.value);
  const [known, ...before] = JSON.parse(load(ofPage("filters")) ?? "[]");
  if (JSON.stringify(known) !== JSON.stringify(classes) || before.length !== controls.length) return;
  controls.forEach((control, k) => { control.value = before[k]; });
  if (!chosen().length) controls.forEach((control, k) => { control.value = usual[k]; });
}

// ---------------------------------------------------------------- one sample's path

// Returns a function that selects a suspected sample and scrolls to its path.
function samplePaths(data) {
  const options = pathOptions(data);
  if (!options.length) return null;
  const groups = [...new Set(options.map((option) => option.group))];
  const select = html("select", { id: "path-sample" }, ...groups.map((group) => html("optgroup", { label: group },
    ...options.flatMap((option, k) => (option.group === group ? [html("option", { value: k }, option.name)] : [])))));
  const before = html("button", { type: "button", "aria-label": "previous sample" }, "←"), after = html("button", { type: "button", "aria-label": "next sample" }, "→");
  const box = html("div", { id: "path" }), keys = html("div");
  const show = () => {
    const option = options[Number(select.value)];
    keys.replaceChildren(legend(option.states.map(({ name, fill, opacity }) => ({ name, fill, opacity }))));
    box.replaceChildren(html("p", { class: "how" }, named(option.text)), pathChart(option));
    before.disabled = select.selectedIndex === 0;
    after.disabled = select.selectedIndex === options.length - 1;
  };
  select.addEventListener("input", show);
  const step = (by) => { select.selectedIndex = Math.min(options.length - 1, Math.max(0, select.selectedIndex + by)); show(); };
  before.addEventListener("click", () => step(-1));
  after.addEventListener("click", () => step(1));
  const own = section("paths", html("div", { class: "filters" }, html("label", {}, "sample", select), before, after), box, keys);
  show();
  return (id) => {
    select.value = String(options.findIndex((option) => option.suspect === id));
    show();
    own.scrollIntoView({ block: "start" });
  };
}

// Every choice: its rows, and for each epoch one of its states.
function pathOptions(data) {
  const suspects = (data.suspects?.rows ?? []).filter((row) => row.path).map((row) => {
    const { classes } = data.suspects, names = [classes[row.given], classes[row.suggested]];
    const states = [{ name: `${names[0]} (given)`, fill: "var(--wrong)" }, { name: `${names[1]} (suggested)`, fill: "var(--accent)" }, { name: "another class", fill: "var(--covered)" }];
    const seen = [];
    for (let k = 0; k < row.path.length; k += 2) for (let n = 0; n < row.path[k + 1]; n += 1) seen.push(row.path[k]);
    const cells = seen.map((k) => (k === row.given ? 0 : k === row.suggested ? 1 : 2));
    const times = (state) => cells.filter((cell) => cell === state).length;
    return { group: "labels to check", name: `${sampleName(row)}: ${names.join(" → ")}`, suspect: row.id, states,
      text: `Predicted during training by ${data.suspects.run}: ${names[0]} in ${times(0)}, ${names[1]} in ${times(1)} of ${counted(cells.length, "epoch")}.`,
      rows: [{ name: "predicted", cells, describe: (i) => (seen[i] < 0 ? "no prediction" : classes[seen[i]]) }] };
  });
  const validation = (data.paths?.samples ?? []).map((sample) => {
    const states = [{ name: "wrong", fill: "var(--covered)" }, { name: "right, in the colour of the method", fill: "var(--quiet)" }];
    const rows = Object.entries(sample.methods).map(([name, lengths]) => ({ name, own: colour(seriesOf(name)),
      cells: lengths.flatMap((length, k) => Array(length).fill(k % 2)), describe: (i, cells) => (cells[i] ? "right" : "wrong") }));
    const label = [sample.given && `labelled ${sample.given}`, sample.true && sample.true !== sample.given && `truly ${sample.true}`].filter(Boolean).join(", ");
    return { group: `validation samples, lost most often first: ${data.paths.samples.length} of ${data.paths.total}`, name: `#${sample.id}${label ? `: ${label}` : ""}`, states, rows,
      text: `Validation sample ${sample.id}${label ? `, ${label}` : ""}${data.paths.seed === null ? "" : `, seed ${data.paths.seed}`}, judged by ${data.paths.labels} labels. It changed from right to wrong ${counted(sample.lost, "time")} in all.` };
  });
  return [...suspects, ...validation];
}

function pathChart(option) {
  const step = 26, count = largest(option.rows.map((row) => row.cells.length));
  return chart((width) => {
    const left = Math.min(130, width * 0.36, 12 + largest(option.rows.map((row) => textWidth(row.name)))), height = option.rows.length * step + 22;
    const inner = { width: Math.max(20, width - left - 8), height: option.rows.length * step }, margin = { left, top: 0 };
    const x = (epoch) => left + ((epoch - 0.5) / count) * inner.width;
    const root = svg("svg", { viewBox: `0 0 ${width} ${height}`, height, "aria-hidden": "true" });
    option.rows.forEach((row, k) => {
      const label = svg("text", { class: "name", x: left - 6, y: k * step + 17, "text-anchor": "end" }, shorten(row.name, left - 8));
      label.append(svg("title", {}, row.name));
      root.append(label);
      option.states.forEach((state, s) => {
        const d = row.cells.map((cell, i) => (cell === s ? `M${x(i + 0.5).toFixed(1)} ${k * step + 3}H${x(i + 1.5).toFixed(1)}v20H${x(i + 0.5).toFixed(1)}Z` : "")).join("");
        if (d) root.append(svg("path", { d, fill: s && row.own ? row.own : state.fill }));
      });
    });
    for (const v of ticks(1, Math.max(2, count), Math.min(8, inner.width / 45)).filter((v) => Number.isInteger(v) && v >= 1 && v <= count)) {
      root.append(svg("text", { x: x(v), y: height - 6, "text-anchor": "middle" }, String(v)));
    }
    return overEpochs({ root, margin, inner, scale: { x: (v) => left + ((v - 0.5) / count) * inner.width } }, count,
      (i) => [`epoch ${i + 1}`, ...option.rows.filter((row) => i < row.cells.length).map((row) => [named(row.name), ": ", named(row.describe(i, row.cells))])]);
  }, "paths", option.name, "epoch");
}
