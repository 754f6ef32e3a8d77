"use strict";
// The page of `vista review`. Names and texts reach the document as text nodes only, never as markup.

const AHEAD = 12; // samples fetched before they are needed
const PAGE = 48; // samples in the grid
const LONGEST_PAUSE = 60; // seconds: a longer one is not counted as work on one sample
const KINDS = { a: "accept", k: "keep", x: "unlabel", s: "skip" };
const DONE = { accept: "accepted", keep: "kept", other: "set to", unlabel: "without a label", skip: "skipped" };
const at = (id) => document.getElementById(id);

let about; // what the server sends once
let rows = []; // fetched samples, by rank; the first is shown
let page = []; // samples in the grid
let pageAfter = -1; // the rank after which the grid begins
let counts = { matching: 0, total: 0, decided: 0, skipped: 0 };
let version = 0; // of the filters: answers to older ones are dropped
let inGrid = false;
let selected = new Set();
let lastClicked = null;
let trail = []; // samples shown before the first of rows, for a step back
let made = []; // decisions of this tab, for undo
let pauses = []; // seconds per decision
let lastTime = null;
let keys = Promise.resolve(); // typed keys are handled one after the other
let cancelled = 0; // keys typed before a failure are dropped
const images = new Map();

async function ask(path, body) {
  const options = body === undefined ? {} : {
    method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  let answer, text;
  try {
    answer = await fetch(path, options);
    text = await answer.text(); // fails where the server ends in the middle of its answer
  } catch {
    throw new Error("The server does not answer. Start `vista review` again and open the address that it prints; " +
      "every decision counted above is saved.");
  }
  let values;
  try { values = JSON.parse(text); } catch { values = { error: text }; }
  if (!answer.ok) throw Object.assign(new Error(values.error || `The server answered ${answer.status}.`), values);
  return values;
}

function say(text) {
  at("message").textContent = text || "";
  at("message").hidden = !text;
}

function element(tag, text, name) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (name) made.className = name;
  return made;
}

// ---------------------------------------------------------------- what is shown

function query(extra) {
  const values = { low: at("low").value || 0, high: at("high").value || 1, status: at("status").value,
    given: at("given").value, suggested: at("suggested").value, ...extra };
  return `rows?${new URLSearchParams(values)}`;
}

function take(answer) {
  const { matching, total, decided, skipped } = answer;
  counts = { matching, total, decided, skipped };
  return answer.rows;
}

function recount(before, after) {
  for (const [list, sign] of [[before, -1], [after, 1]]) {
    for (const row of list) {
      if (row.status !== "undecided") counts[row.status === "skip" ? "skipped" : "decided"] += sign;
    }
  }
}

async function reload(after = -1) {
  const mine = ++version;
  const found = await ask(query({ after, limit: inGrid ? PAGE : AHEAD }));
  if (mine !== version) return;
  if (after >= 0 && !found.rows.length) { await reload(); return; }
  if (inGrid) turn(take(found), after); else rows = take(found);
  show();
}

function turn(found, after) {
  page = found;
  pageAfter = after;
  selected = new Set();
  lastClicked = null;
}

async function refill() {
  const mine = version;
  if (rows.length >= AHEAD / 2 || !rows.length) return;
  const found = await ask(query({ after: rows[rows.length - 1].rank, limit: AHEAD }));
  if (mine !== version) return;
  const last = rows.length ? rows[rows.length - 1].rank : -1;
  rows.push(...take(found).filter((row) => row.rank > last));
  rows.slice(0, 4).forEach((row) => image(row, false));
  progress();
}

function image(row, small) {
  if (!about.is_image) return null;
  const path = `image/${row.id}${small ? "?size=small" : ""}`;
  if (!images.has(path)) {
    const made = new Image();
    made.alt = `sample ${row.id}`;
    made.addEventListener("error", () => { made.alt = `sample ${row.id}: its image cannot be read`; });
    made.src = path;
    images.set(path, made);
    if (images.size > 200) images.delete(images.keys().next().value);
  }
  return images.get(path);
}

function content(row, small) {
  if (about.is_image) return image(row, small);
  if (row.text !== undefined) return element("div", small && row.text.length > 200 ? `${row.text.slice(0, 200)}…` : row.text, "text");
  if (small) return element("span", row.values.slice(0, 6).map((each) => typeof each === "number" ? String(+each.toPrecision(4)) : each).join(", "));
  const table = element("table");
  row.values.forEach((value, column) => {
    const line = element("tr");
    line.append(element("th", row.columns ? row.columns[column] : String(column)), element("td", String(value)));
    table.append(line);
  });
  return table;
}

function show() {
  const nothing = !(inGrid ? page : rows).length;
  const done = counts.total > 0 && counts.decided + counts.skipped === counts.total && at("status").value === "undecided";
  const number = (count) => count.toLocaleString("en");
  at("empty").textContent = !done ? "No sample matches the filters." : (counts.skipped ?
    `${number(counts.decided)} decided, ${number(counts.skipped)} skipped: choose the status skipped above to come ` +
    "back. " : "All samples that match the filters are decided. ") +
    "Finish shows the commands that train again; a lower score above shows labels that look less wrong.";
  at("empty").hidden = !nothing;
  at("one").hidden = inGrid || nothing;
  at("grid").hidden = !inGrid || nothing;
  document.querySelectorAll(".bulk").forEach((each) => { each.hidden = !inGrid; });
  if (!nothing) { if (inGrid) showGrid(); else showOne(rows[0]); }
  progress();
}

function showOne(row) {
  const name = (number) => about.classes[number];
  at("one").dataset.id = row.id;
  at("sample").replaceChildren(content(row, false));
  const suggestion = element("b", name(row.suggested), "new");
  at("labels").replaceChildren(element("span", "given"), element("b", name(row.given)), element("span", "suggested"),
    suggestion);
  const facts = [`sample ${row.id}`, row.file, `score ${row.score.toFixed(3)}`,
    row.evidence && `judged by: ${row.evidence}`];
  at("facts").textContent = facts.filter(Boolean).join(" · ");
  at("decided").textContent = row.status === "undecided" ? "" :
    `Decided: ${DONE[row.status]}${row.status === "other" ? ` ${name(row.label)}` : ""}`;
  showHistory(row);
  rows.slice(1, 4).forEach((next) => image(next, false));
}

function showHistory(row) {
  const parts = [];
  if (row.history.length) parts.push(element("h2", `Predicted during training, epochs 1 to ${about.epochs}`));
  for (const each of row.history) {
    const kind = each.class === row.suggested ? " suggested" : each.class === row.given ? " given" : "";
    const line = element("div", undefined, `class${kind}`);
    const label = element("span", about.classes[each.class]);
    label.title = about.classes[each.class];
    const strip = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    strip.setAttribute("viewBox", `0 0 ${about.epochs} 1`);
    strip.setAttribute("preserveAspectRatio", "none");
    strip.setAttribute("role", "img");
    strip.setAttribute("aria-label", `epochs ${spans(each.epochs).map(([a, b]) => a === b ? a : `${a} to ${b}`).join(", ")}`);
    for (const [first, last] of spans(each.epochs)) {
      const box = document.createElementNS("http://www.w3.org/2000/svg", "rect");
      for (const [key, value] of Object.entries({ x: first - 1, y: 0, width: last - first + 1, height: 1 })) {
        box.setAttribute(key, value);
      }
      strip.append(box);
    }
    line.append(label, strip, element("span", `${each.epochs.length} ×`));
    parts.push(line);
  }
  if (!row.history.length && row.evidence === "held out") {
    parts.push(element("p", "This sample was not trained on: it has no history."));
  }
  at("history").replaceChildren(...parts);
}

function spans(epochs) {
  const found = [];
  for (const epoch of epochs) {
    if (found.length && found[found.length - 1][1] === epoch - 1) found[found.length - 1][1] = epoch;
    else found.push([epoch, epoch]);
  }
  return found;
}

function showGrid() {
  at("grid").replaceChildren(...page.map((row, index) => {
    const card = element("button", undefined, "card");
    card.type = "button";
    card.dataset.id = row.id;
    card.setAttribute("aria-pressed", selected.has(row.id));
    card.append(content(row, true), element("span", `${about.classes[row.given]} → `),
      element("b", about.classes[row.suggested]), element("span", ` ${row.score.toFixed(2)}`));
    if (row.status !== "undecided") card.append(element("span", ` (${DONE[row.status]})`));
    card.title = row.file || `sample ${row.id}`;
    card.addEventListener("click", (event) => choose(index, event.shiftKey));
    return card;
  }));
}

function choose(index, isRange) {
  const from = isRange && lastClicked !== null ? lastClicked : index;
  const on = isRange || !selected.has(page[index].id);
  for (let k = Math.min(from, index); k <= Math.max(from, index); k++) {
    if (on) selected.add(page[k].id); else selected.delete(page[k].id);
  }
  lastClicked = index;
  mark();
}

function mark() {
  for (const card of at("grid").children) card.setAttribute("aria-pressed", selected.has(+card.dataset.id));
  progress();
}

function progress() {
  const left = counts.total - counts.decided - counts.skipped;
  let text = `${counts.decided.toLocaleString("en")} of ${counts.total.toLocaleString("en")} decided`;
  const [low, high] = [at("low").value || "0", at("high").value || "1"];
  if (+low > 0 || +high < 1) text += ` (score ${low} to ${high})`;
  if (counts.skipped) text += `, ${counts.skipped.toLocaleString("en")} skipped`;
  if (pauses.length >= 3 && left > 0) {
    const usual = pauses.reduce((sum, each) => sum + each, 0) / pauses.length;
    const minutes = Math.ceil((usual * left) / 60);
    text += minutes < 60 ? `, about ${minutes} min left` : `, about ${(minutes / 60).toFixed(1)} h left`;
  }
  if (inGrid && page.length) text += `, ${page.length} of ${counts.matching.toLocaleString("en")} shown`;
  if (inGrid && selected.size) text += `, ${selected.size} selected`;
  at("progress").textContent = text;
  at("bar").max = counts.total || 1;
  at("bar").value = counts.decided;
}

// ---------------------------------------------------------------- decisions

function clock(number) {
  const now = performance.now() / 1000;
  if (lastTime !== null) pauses.push(Math.min(now - lastTime, LONGEST_PAUSE) / number);
  pauses = pauses.slice(-30);
  lastTime = now;
}

async function decide(kind, label) {
  const chosen = inGrid ? page.filter((row) => selected.has(row.id)) : rows.slice(0, 1);
  if (!chosen.length) { if (inGrid) say("Select samples first: click them, or press E for all."); return; }
  const wanted = chosen.map((row) => ({ id: row.id, decision: kind, seen: row.seen, ...(label === undefined ? {} : { label }) }));
  const answer = await save(wanted);
  clock(chosen.length);
  made.push(answer.rows);
  recount(chosen, answer.rows);
  if (inGrid) return reload(pageAfter);
  rows.shift();
  trail.push(...answer.rows);
  if (!rows.length) return reload();
  show();
  refill().catch((error) => say(error.message));
}

async function save(wanted) {
  try {
    const answer = await ask("decide", { decisions: wanted });
    say("");
    return answer;
  } catch (error) {
    if (error.conflict) {
      for (const list of [rows, page]) {
        list.forEach((row, index) => { list[index] = error.conflict.find((each) => each.id === row.id) || row; });
      }
      show();
      error.message = "This sample was decided elsewhere, for example in another tab, and is shown as it is now: " +
        "decide again to replace that, or go to the next one.";
    }
    throw error;
  }
}

async function undo() {
  const current = inGrid ? null : rows[0];
  const last = current && current.status !== "undecided" ? [current] : made.pop();
  if (!last) { say("There is nothing to undo in this tab. Choose a status above to find earlier decisions."); return; }
  let answer;
  try {
    answer = await save(last.map((row) => ({ id: row.id, decision: "undo", seen: row.seen })));
  } catch (error) {
    if (!error.conflict && last[0] !== current) made.push(last);
    throw error;
  }
  recount(last, answer.rows);
  if (inGrid) return reload(Math.min(pageAfter, ...answer.rows.map((row) => row.rank - 1)));
  const back = new Set(answer.rows.map((row) => row.id));
  const others = (list) => list.filter((row) => !back.has(row.id));
  made = made.map(others).filter((list) => list.length);
  trail = others(trail);
  rows = [...answer.rows, ...others(rows)];
  show();
}

async function step(forward) {
  say("");
  if (inGrid) { await leaf(forward); return; }
  if (!forward && trail.length) {
    rows.unshift(trail.pop());
  } else if (!rows.length) {
    return;
  } else if (forward) {
    if (rows.length > 1) { trail.push(rows.shift()); show(); await refill(); return; }
    const found = take(await ask(query({ after: rows[0].rank, limit: AHEAD })));
    if (found.length) { trail.push(rows[0]); rows = found; } else say("This is the last sample that matches the filters.");
  } else {
    const found = take(await ask(query({ before: rows[0].rank, limit: 1 })));
    if (found.length) rows.unshift(...found); else say("This is the first sample that matches the filters.");
  }
  show();
}

async function leaf(forward) {
  if (!page.length) return;
  const last = page[page.length - 1].rank;
  const found = take(await ask(query(forward ? { after: last, limit: PAGE } : { before: page[0].rank, limit: PAGE })));
  if (!found.length) { say(`These are the ${forward ? "last" : "first"} samples that match the filters.`); return; }
  turn(found, forward ? last : found[0].rank - 1);
  show();
  scrollTo(0, 0);
}

// ---------------------------------------------------------------- another class

function search() {
  if (inGrid && !selected.size) { say("Select samples first: click them, or press E for all."); return; }
  at("query").value = "";
  list();
  at("search").showModal();
}

function list() {
  const wanted = at("query").value.trim().toLowerCase();
  const found = about.classes.map((name, number) => ({ name, number, place: name.toLowerCase().indexOf(wanted) }))
    .filter((each) => each.place >= 0).sort((a, b) => (a.place > 0) - (b.place > 0) || a.number - b.number).slice(0, 50);
  at("found").replaceChildren(...found.map((each, index) => {
    const line = element("li", each.name);
    line.setAttribute("role", "option");
    line.setAttribute("aria-selected", index === 0);
    line.dataset.number = each.number;
    line.addEventListener("click", () => pick(line));
    return line;
  }));
}

function pick(line) {
  at("search").close();
  queue(() => decide("other", +line.dataset.number));
}

at("query").addEventListener("input", list);
at("query").addEventListener("keydown", (event) => {
  const current = at("found").querySelector("[aria-selected=true]");
  if (event.key === "Enter" && current) { event.preventDefault(); pick(current); }
  if (event.key !== "ArrowDown" && event.key !== "ArrowUp") return;
  event.preventDefault();
  const next = current && (event.key === "ArrowDown" ? current.nextElementSibling : current.previousElementSibling);
  if (!next) return;
  current.setAttribute("aria-selected", false);
  next.setAttribute("aria-selected", true);
  next.scrollIntoView({ block: "nearest" });
});

// ---------------------------------------------------------------- keys, buttons and filters

function queue(work) {
  const mine = cancelled;
  keys = keys.then(async () => {
    if (mine !== cancelled) return;
    try { await work(); } catch (error) { cancelled++; say(error.message); }
  });
}

function press(key) {
  const move = { ArrowRight: "n", ArrowLeft: "p" }[key] || key.toLowerCase();
  if (KINDS[move]) queue(() => decide(KINDS[move]));
  else if (move === "u") queue(undo);
  else if (move === "n" || move === "p") queue(() => step(move === "n"));
  else if (move === "o" || move === "/") queue(async () => search());
  else if (move === "g") queue(toggle);
  else if (move === "e" && inGrid) {
    selected = selected.size === page.length ? new Set() : new Set(page.map((row) => row.id));
    mark();
  } else return false;
  return true;
}

async function toggle() {
  const after = inGrid ? pageAfter : rows.length ? rows[0].rank - 1 : -1;
  inGrid = !inGrid;
  trail = [];
  say("");
  at("grid-button").setAttribute("aria-pressed", inGrid);
  await reload(after);
}

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  // A dialog that has just closed may still hold the focus: only the filters keep their keys.
  if (["INPUT", "SELECT"].includes(event.target.tagName) && at("filters").contains(event.target)) return;
  if (press(event.key)) event.preventDefault();
});
document.querySelectorAll("#buttons button").forEach((button) => button.addEventListener("click", () => {
  press(button.dataset.key);
  button.blur();
}));
at("grid-button").addEventListener("click", () => { press("g"); at("grid-button").blur(); });
at("filters").addEventListener("submit", (event) => event.preventDefault());
at("filters").addEventListener("change", (event) => {
  if (event.target.id === "pair") {
    const [given, suggested] = at("pair").value ? at("pair").value.split(",") : ["", ""];
    at("given").value = given;
    at("suggested").value = suggested;
  } else if (event.target.id === "given" || event.target.id === "suggested") at("pair").value = "";
  event.target.blur();
  trail = [];
  say("");
  queue(() => reload());
});
at("finish").addEventListener("click", () => queue(async () => {
  const answer = await ask("finish", {});
  at("end-text").textContent = `${answer.decided.toLocaleString("en")} decisions are saved in ${answer.file}.` +
    (answer.skipped ? ` Skipped, label unchanged: ${answer.skipped.toLocaleString("en")}.` : "");
  at("commands").replaceChildren(...answer.commands.map((command) => element("pre", command)));
  at("end").showModal();
}));

at("more").open = !matchMedia("(max-width: 40rem)").matches;

async function start() {
  about = await ask("start");
  document.title = `Label review: ${about.run}`;
  at("title").textContent = `${about.run}: about ${about.estimated.toLocaleString("en")} of ` +
    `${about.samples.toLocaleString("en")} labels look wrong (${about.interval[0].toLocaleString("en")} to ` +
    `${about.interval[1].toLocaleString("en")})`;
  at("caution").textContent = about.caution ? `Caution: ${about.caution}` : "";
  at("caution").hidden = !about.caution;
  for (const id of ["given", "suggested"]) {
    at(id).replaceChildren(new Option("all", ""), ...about.classes.map((name, number) => new Option(name, number)));
  }
  at("pair").replaceChildren(new Option("all", ""), ...about.pairs.map((pair) => new Option(
    `${about.classes[pair.given]} → ${about.classes[pair.suggested]} (${pair.count})`, `${pair.given},${pair.suggested}`)));
  await reload();
}
start().catch((error) => say(error.message));
