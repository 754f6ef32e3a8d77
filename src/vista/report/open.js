// Draws the page: first what the first screen shows, then the rest. With `vista report --watch` it updates in place.
function themeSwitch() {
  const button = document.getElementById("theme"), names = ["", "light", "dark"];
  const set = (name) => {
    if (name) document.documentElement.dataset.theme = name;
    else delete document.documentElement.dataset.theme;
    button.replaceChildren({ "": "◐", light: "☀", dark: "☾" }[name], html("span", {}, ` ${name || "system"}`));
    store("theme", name);
  };
  button.addEventListener("click", () => {
    set(names[(names.indexOf(document.documentElement.dataset.theme ?? "") + 1) % names.length]);
    redrawAll();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redrawAll);
  set(names.includes(load("theme")) ? load("theme") : "");
}

function drawFirst(data) {
  page = data;
  style = data.style;
  redraws = [];
  linked = { epoch: new Set(), class: new Set() };
  document.getElementById("main").replaceChildren();
  document.getElementById("contents").replaceChildren();
  document.title = data.headline;
  for (const name of ["headline", "detail", "subtitle", "footer"]) document.getElementById(name).textContent = data[name];
  firstScreen(data);
}

function drawRest(data) {
  comparison(data);
  let choosePath = null;
  gallery(data, data.suspects?.rows.some((row) => row.path) ? (id) => choosePath(id) : null);
  if (data.figures) {
    choosePath = samplePaths(data);
    for (const draw of [forgetting, forgottenClasses, testAgainstValidation, timeline, marginalCoverage, contributingSet]) draw(data);
  }
  descriptions(data);
  markCurrent();
}

// Marks the section in view in the navigation.
function markCurrent() {
  const links = new Map([...document.querySelectorAll("#contents a")].map((link) => [link.hash.slice(1), link]));
  const seen = new Set();
  const observer = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) (isIntersecting ? seen.add(target.id) : seen.delete(target.id));
    const current = [...links.keys()].find((id) => seen.has(id));
    for (const [id, link] of links) link.toggleAttribute("aria-current", id === current);
  }, { rootMargin: "-90px 0px -50% 0px" });
  for (const own of document.querySelectorAll("section")) observer.observe(own);
}

// Reads the file of the page again, in a hidden frame that posts its data here: a page from a file may not fetch anything.
function watch() {
  if (!page.watching) return;
  const frame = html("iframe", { src: location.href.split("#")[0], title: "update", hidden: "" });
  const done = () => { removeEventListener("message", receive); frame.remove(); setTimeout(watch, 1000 * page.refresh_seconds); };
  const late = setTimeout(done, 20000); // the file may be unreadable for a moment
  const receive = (event) => {
    if (event.source !== frame.contentWindow || event.data?.vista !== "report") return;
    clearTimeout(late);
    if (JSON.stringify(event.data.page) !== JSON.stringify(page)) update(event.data.page);
    done();
  };
  addEventListener("message", receive);
  document.body.append(frame);
}

function update(data) {
  const [top, open] = [scrollY, [...document.querySelectorAll("details")].map((one) => one.open)];
  drawFirst(data);
  drawRest(data);
  document.querySelectorAll("details").forEach((one, k) => { one.open = open[k] ?? false; });
  scrollTo({ top, behavior: "instant" });
  document.documentElement.dataset.updates = String(1 + Number(document.documentElement.dataset.updates ?? 0));
}

if (parent !== window) {
  parent.postMessage({ vista: "report", page }, "*");
} else {
  themeSwitch();
  drawFirst(page);
  document.documentElement.dataset.first = "true";
  // After the first screen has been painted.
  requestAnimationFrame(() => setTimeout(() => {
    drawRest(page);
    if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView();
    document.documentElement.dataset.ready = "true";
    watch();
  }));
}
