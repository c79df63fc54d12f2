// The page: the way in, the address, and the view that it names.

import { Locked, enter, get, hasSession, leave, watch } from "./api.js";
import { h, say, show } from "./dom.js";
import { model } from "./model.js";
import { population, processes } from "./population.js";
import { privacy } from "./privacy.js";
import { NOTE, head, list, rounds } from "./tasks.js";

const app = document.getElementById("app");

const page = {
  /** The newest event. */
  seen: null,
  /** The difference of the clock of the server to that of this machine. */
  skew: 0,
  /** `live`, or `lost` while the server does not answer. */
  connection: "lost",
  /** The answer for the view, and the address that it is for. */
  answer: null,
  answered: null,
  wrong: null,
};

function now() {
  return Date.now() + page.skew;
}

/** The view that the address names. */
function place() {
  const [view = "", name = "", tab = ""] = location.hash.replace(/^#\/?/, "").split("/").map(decodeURIComponent);
  if (view === "task") return { view, task: name, tab, path: `/api/tasks/${name}${tab === "" ? "" : `/${tab}`}` };
  if (view === "population") return { view, name, path: `/api/populations/${encodeURIComponent(name)}` };
  return { view: view === "processes" ? view : "tasks" };
}

/** The part of the overview whose change makes the answer stale. */
function watched(at) {
  const task = page.seen?.overview.tasks.find((one) => one.id === at.task);
  return at.view === "task" ? JSON.stringify(task) : `${page.seen?.now}`;
}

let loading = null;

async function load() {
  const at = place();
  if (at.path === undefined) return;
  const stamp = watched(at);
  if (loading === at.path) return;
  loading = at.path;
  try {
    const answer = await get(at.path);
    if (place().path === at.path) Object.assign(page, { answer, answered: at.path, stamp, wrong: null });
  } catch (error) {
    if (error instanceof Locked) return unlock(error.message);
    if (place().path === at.path) page.wrong = error.message;
  } finally {
    loading = null;
  }
  draw();
  if (place().path !== at.path || stamp !== watched(place())) setTimeout(load, 300);
}

function link(href, name, current) {
  return h("a", { href, "aria-current": current ? "page" : null }, name);
}

function bar(at) {
  const names = [...new Set(page.seen?.overview.tasks.map((task) => task.population) ?? [])];
  const live = page.connection === "live";
  return h("header", { class: "bar" }, h("div", { class: "inside" },
    h("a", { class: "brand", href: "#/" }, "Undertone"),
    h("nav", { "aria-label": "Main" },
      link("#/", "Tasks", at.view === "tasks" || at.view === "task"),
      names.map((name) => link(`#/population/${encodeURIComponent(name)}`, names.length === 1 ? "Population" : name, at.view === "population" && at.name === name)),
      link("#/processes", "Processes", at.view === "processes")),
    h("span", { class: `connection ${page.connection}` }, live ? "live" : "no answer"),
    h("button", { type: "button", class: "quiet", onClick: async () => { await leave(); unlock(); } }, "Leave")));
}

function content(at) {
  if (page.seen === null) return h("p", { class: "empty" }, "Reading the state of the service.");
  if (at.view === "tasks") return list(page.seen, now());
  if (at.view === "processes") return processes(page.seen, now());
  const fresh = page.answered === at.path ? page.answer : null;
  const waits = h("p", { class: page.wrong === null ? "empty" : "wrong" }, page.wrong ?? "Reading.");
  if (at.view === "population") return fresh === null ? waits : population(fresh);
  const task = page.seen.overview.tasks.find((one) => one.id === at.task);
  if (task === undefined) return h("p", { class: "wrong" }, "There is no task of this identifier.");
  const parts = { "": (answer) => rounds(task, answer, now()), privacy, model };
  return [head(task, at.tab), fresh === null ? waits : (parts[at.tab] ?? parts[""])(fresh), h("p", { class: "foot" }, NOTE)];
}

let drawing = false;

function draw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    if (!hasSession()) return;
    const at = place();
    document.title = title(at);
    show(app, bar(at), h("main", { id: "main", tabindex: "-1" }, content(at)));
  });
}

function title(at) {
  const task = page.seen?.overview.tasks.find((one) => one.id === at.task);
  const named = { tasks: "Tasks", processes: "Processes", population: at.name, task: task?.name }[at.view];
  return `${named ?? "Task"} · Undertone`;
}

/** The form for those without a session. */
function unlock(reason = "") {
  page.seen = null;
  document.title = "Undertone";
  const token = h("input", { id: "token", type: "password", autocomplete: "off", spellcheck: "false", required: true });
  const wrong = h("p", { class: "wrong", role: "alert" }, reason);
  const form = h("form", {
    class: "panel", onSubmit: async (event) => {
      event.preventDefault();
      try {
        await enter({ token: token.value.trim() });
        begin();
      } catch (error) {
        wrong.textContent = error.message;
      }
    },
  },
  h("h1", {}, "Undertone"),
  h("p", {}, "This page is for the operators of a service. Open it with the link that ", h("code", {}, "undertone serve"),
    " prints on a terminal, or with the token in the file ", h("code", {}, "admin.token"), " of the data folder."),
  h("label", { for: "token" }, "Token of operators"), token, wrong,
  h("div", { class: "acts" }, h("button", { type: "submit", class: "main" }, "Open")));
  app.replaceChildren(h("main", { id: "main", class: "way-in" }, form));
  token.focus();
}

function notice(event) {
  const before = page.seen?.overview.tasks ?? [];
  page.skew = event.now - Date.now();
  page.seen = event;
  for (const task of event.overview.tasks) {
    const old = before.find((one) => one.id === task.id);
    if (old !== undefined && old.state !== task.state) say(`${task.name} is ${task.state}.`);
  }
  draw();
  const at = place();
  if (at.path !== undefined && page.stamp !== watched(at)) load();
}

let watching = false;

async function begin() {
  draw();
  load();
  if (watching) return;
  watching = true;
  try {
    await watch({ onOverview: notice, onState: (state) => { page.connection = state; draw(); } });
  } catch (error) {
    unlock(error.message);
  } finally {
    watching = false;
  }
}

async function start() {
  const code = new URLSearchParams(location.hash.slice(1)).get("code");
  if (code !== null) {
    // The code is of no use to the history of the browser.
    history.replaceState(null, "", `${location.pathname}#/`);
    try {
      await enter({ code });
    } catch (error) {
      if (!hasSession()) return unlock(error.message);
    }
  }
  return hasSession() ? begin() : unlock();
}

window.addEventListener("hashchange", () => {
  if (location.hash.includes("code=")) return start();
  if (!hasSession()) return undefined;
  page.wrong = null;
  draw();
  load();
  document.getElementById("main")?.focus({ preventScroll: false });
  window.scrollTo(0, 0);
  return undefined;
});
window.addEventListener("resize", draw);
// Times since an event grow while nothing happens, and a population has no events of its own.
setInterval(() => {
  if (page.seen !== null && !document.hidden) draw();
}, 1000);
setInterval(() => {
  if (page.seen !== null && !document.hidden && place().view === "population") load();
}, 5000);
start();
