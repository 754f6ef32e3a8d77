// The suspected labels, filtered by class and score, a screenful at a time; then the page itself.
// Pages that are opened in one tab share its storage: what is of one page carries its address.
function remember(key, value) {
  try { sessionStorage.setItem(`vista-${key}`, value); } catch { /* a page opened from a file may have no storage */ }
}

function remembered(key) {
  try { return sessionStorage.getItem(`vista-${key}`); } catch { return null; }
}

const ofPage = (key) => `${key} ${location.pathname}`;

function suspectCard(row, suspects) {
  const name = (k) => named(suspects.classes[k]);
  const card = html("div", { class: "suspect", "data-id": row.id });
  if (row.picture) card.append(html("img", { src: row.picture, alt: `sample ${row.id}`, decoding: "async" }));
  card.append(html("div", { class: "change" }, html("s", {}, name(row.given)), " → ", html("b", {}, name(row.suggested))));
  card.append(html("div", { class: "quiet" }, `#${row.id}, score ${row.score.toFixed(2)}`));
  if (row.true !== undefined) {
    const verdict = row.true === row.given ? "given is right" : row.true === row.suggested ? "suggested is right" : ["truly ", name(row.true)];
    card.append(html("div", { class: row.true === row.suggested ? "quiet" : "wrong" }, ...[verdict].flat()));
  }
  const level = html("i");
  level.style.width = `${100 * row.score}%`;
  card.append(html("div", { class: "bar" }, level));
  return card;
}

function gallery(data) {
  const suspects = data.suspects;
  if (!suspects) return section("suspects", "Suspected labels", data.how.no_suspects);
  if (!suspects.rows.length) return section("suspects", "Suspected labels", data.how.suspects, html("p", { class: "how" }, suspects.note));
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
    remember(ofPage("filters"), JSON.stringify([suspects.classes, ...controls.map((control) => control.value)]));
    least.textContent = Number(score.value).toFixed(2);
    const kept = chosen();
    count.textContent = `${Math.min(limit, kept.length)} shown of ${kept.length}`;
    grid.replaceChildren(...kept.slice(0, limit).map((row) => suspectCard(row, suspects)));
    more.hidden = kept.length <= limit;
  };
  for (const control of controls) control.addEventListener("input", () => { limit = PAGE; show(); });
  more.addEventListener("click", () => { limit += PAGE; show(); });
  section("suspects", "Suspected labels", data.how.suspects, html("p", { class: "how" }, suspects.note),
    html("div", { class: "filters" }, html("label", {}, "given", given), html("label", {}, "suggested", suggested), html("label", {}, "score from", score, least), count),
    grid, more);
  show();
}

// As they were when the page was last open, unless its classes are others or nothing would be left to see.
function restoreFilters(controls, classes, chosen) {
  const usual = controls.map((control) => control.value);
  const [known, ...before] = JSON.parse(remembered(ofPage("filters")) ?? "[]");
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
    remember("theme", name);
    redrawAll();
  };
  button.addEventListener("click", () => set(names[(names.indexOf(document.documentElement.dataset.theme ?? "") + 1) % names.length]));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
  set(names.includes(remembered("theme")) ? remembered("theme") : "");
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
    addEventListener("pagehide", () => remember(ofPage("scroll"), String(scrollY)));
    scrollTo(0, Number(remembered(ofPage("scroll")) ?? 0));
  }
  document.documentElement.dataset.ready = "true";
}

open(JSON.parse(document.getElementById("data").textContent));
