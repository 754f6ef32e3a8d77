// The suspected labels with their filters, then the page itself.
// Pages in one tab share its session storage, so keys of a single page contain its path.
function store(key, value) {
  try { sessionStorage.setItem(`vista-${key}`, value); } catch { /* a page opened from a file may lack storage */ }
}

function load(key) {
  try { return sessionStorage.getItem(`vista-${key}`); } catch { return null; }
}

const ofPage = (key) => `${key} ${location.pathname}`;

function suspectCard(row, suspects) {
  const name = (k) => named(suspects.classes[k]);
  const card = html("div", { class: "suspect", "data-id": row.id });
  if (row.image) card.append(html("img", { src: row.image, alt: `sample ${row.id}`, decoding: "async" }));
  card.append(html("div", { class: "change" }, html("s", {}, name(row.given)), " → ", html("b", {}, name(row.suggested))));
  card.append(html("div", { class: "quiet" }, `#${row.id}, score ${row.score.toFixed(2)}`));
  if (row.true !== undefined) {
    const verdict = row.true === row.given ? "given is right" : row.true === row.suggested ? "suggestion is right" : ["true: ", name(row.true)];
    card.append(html("div", { class: row.true === row.suggested ? "quiet" : "wrong" }, ...[verdict].flat()));
  }
  const level = html("i");
  level.style.width = `${100 * row.score}%`;
  card.append(html("div", { class: "bar" }, level));
  return card;
}

function gallery(data) {
  const suspects = data.suspects;
  if (!suspects) return section("suspects", html("p", { class: "how" }, style.no_suspects));
  if (!suspects.rows.length) return section("suspects", html("p", { class: "how" }, suspects.note));
  const PAGE = 60;
  const used = (key) => [...new Set(suspects.rows.map((row) => row[key]))].sort((a, b) => a - b);
  const choice = (id, key) => html("select", { id }, html("option", { value: "" }, "all"), ...used(key).map((k) => html("option", { value: k }, suspects.classes[k])));
  const given = choice("filter-given", "given"), suggested = choice("filter-suggested", "suggested");
  const lowest = Math.floor(100 * smallest(suspects.rows.map((row) => row.score))) / 100;
  const score = html("input", { id: "filter-score", type: "range", min: lowest, max: 1, step: 0.01, value: lowest });
  const least = html("output"), count = html("span", { id: "suspect-count" });
  const grid = html("div", { class: "gallery", id: "suspect-gallery" }), more = html("button", { type: "button", class: "more" }, "Show more");
  const controls = [given, suggested, score];
  const chosen = () => suspects.rows.filter((row) => (given.value === "" || row.given === Number(given.value)) &&
    (suggested.value === "" || row.suggested === Number(suggested.value)) && row.score >= Number(score.value));
  restoreFilters(controls, suspects.classes, chosen);
  let limit = PAGE;
  const show = () => {
    store(ofPage("filters"), JSON.stringify([suspects.classes, ...controls.map((control) => control.value)]));
    least.textContent = Number(score.value).toFixed(2);
    const kept = chosen();
    count.textContent = `${Math.min(limit, kept.length)} shown of ${kept.length}`;
    grid.replaceChildren(...kept.slice(0, limit).map((row) => suspectCard(row, suspects)));
    more.hidden = kept.length <= limit;
  };
  for (const control of controls) control.addEventListener("input", () => { limit = PAGE; show(); });
  more.addEventListener("click", () => { limit += PAGE; show(); });
  section("suspects", html("p", { class: "how" }, suspects.note),
    html("div", { class: "filters" }, html("label", {}, "given", given), html("label", {}, "suggested", suggested), html("label", {}, "minimum score", score, least), count),
    grid, more);
  show();
}

// Restores the filters of the last visit, unless the classes have changed or no sample would match.
function restoreFilters(controls, classes, chosen) {
  const usual = controls.map((control) => control.value);
  const [known, ...before] = JSON.parse(load(ofPage("filters")) ?? "[]");
  if (JSON.stringify(known) !== JSON.stringify(classes)) return;
  controls.forEach((control, k) => { control.value = before[k]; });
  if (!chosen().length) controls.forEach((control, k) => { control.value = usual[k]; });
}

function themeSwitch() {
  const button = document.getElementById("theme"), names = ["", "light", "dark"];
  const set = (name) => {
    if (name) document.documentElement.dataset.theme = name;
    else delete document.documentElement.dataset.theme;
    button.textContent = { "": "◐ system", light: "☀ light", dark: "☾ dark" }[name];
    store("theme", name);
    redrawAll();
  };
  button.addEventListener("click", () => set(names[(names.indexOf(document.documentElement.dataset.theme ?? "") + 1) % names.length]));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
  set(names.includes(load("theme")) ? load("theme") : "");
}

function open(data) {
  document.getElementById("title").textContent = data.title;
  document.getElementById("subtitle").textContent = data.subtitle;
  document.getElementById("footer").textContent = data.footer;
  comparison(data);
  if (data.figures) {
    for (const draw of [forgetting, timeline, marginalCoverage, lifeExpectancy, lineSections, forgottenClasses]) draw(data);
  }
  gallery(data);
  descriptions(data);
  themeSwitch();
  if (data.watching) {
    addEventListener("pagehide", () => store(ofPage("scroll"), String(scrollY)));
    scrollTo(0, Number(load(ofPage("scroll")) ?? 0));
  }
  document.documentElement.dataset.ready = "true";
}

open(page);
