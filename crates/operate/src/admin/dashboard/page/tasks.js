// The list of tasks, and one task: its state in a sentence, its funnel, its rounds and its history.

import { buttons } from "./acts.js";
import { bars, figure, funnel, lines, meter } from "./charts.js";
import { h } from "./dom.js";
import { ago, cell, grouped, moment, several, span, upper } from "./text.js";

const STATES = {
  selecting: "is taking devices",
  reporting: "is waiting for reports",
  releasing: "is being released",
};

const STAGES = {
  assigned: "assigned", joined: "trained and joined", reported: "reported", included: "in a release",
};

const REASONS = {
  few: "too few devices came or reported", deadline: "it took too long", crash: "its process was lost",
  fence: "another process took over", store: "the store failed", network: "the network failed",
  duplicate: "a subject stood twice in the sum", protocol: "a message of the secure sum was wrong", operator: "an operator ended it",
};

const RESULTS = {
  ASSIGNED: "got a place", FULL: "the round had its devices", TOO_SOON: "took part too recently", TOO_OFTEN: "took part often enough",
  NO_TASK: "no round was open", UPGRADE: "their app was too old", BUSY: "the server was busy", GONE: "their session was over",
};

/** The state of a task in one sentence. */
function headline(task) {
  const rounds = `${grouped(task.released)} of ${several(task.rounds, "round")}`;
  switch (task.state) {
    case "draft": return "A draft that no device sees.";
    case "completed":
      return task.released === task.rounds ? `Complete: all ${several(task.rounds, "round")} are released.` : `Stopped after ${rounds}.`;
    case "paused": return `Paused after ${rounds}.`;
    case "halted": return `Halted after ${rounds}. Nothing goes on without a person.`;
    default: break;
  }
  const open = task.attempt;
  if (open === null) return `Between two rounds: ${rounds} are released.`;
  const repeated = open.attempt > 0 ? `, attempt ${open.attempt + 1},` : "";
  return `Round ${grouped(open.round + 1)} of ${grouped(task.rounds)}${repeated} ${STATES[open.state] ?? "is open"}.`;
}

/** The state of a task as a small sign. */
export function sign(task) {
  return h("span", { class: `state ${task.state}` }, task.state);
}

function alert(task) {
  if (task.alert === null) return null;
  const { level, happened, advice, at } = task.alert;
  return h("div", { class: `alert ${level}`, role: level === "halted" || level === "paused" ? "alert" : "note" },
    h("p", { class: "happened" }, happened, at === null ? null : h("span", { class: "muted" }, ` (${moment(at)})`)),
    h("p", {}, h("strong", {}, "What to do: "), advice));
}

function facts(task, now) {
  const epsilon = task.epsilon === null ? null : task.epsilon[1];
  const planned = task.planned;
  return h("dl", { class: "figures" },
    fact("Rounds released", grouped(task.released), `of ${grouped(task.rounds)}`),
    fact("Epsilon so far", epsilon === null ? "0" : upper(epsilon), planned === null ? "" : `of ${upper(planned)} planned`,
      planned === null ? null : meter({
        share: (epsilon ?? 0) / planned, label: `Epsilon so far is ${epsilon === null ? 0 : upper(epsilon)} of ${upper(planned)} planned`,
      })),
    fact("Last release", ago(task.last_release, now), task.round_seconds === null ? "" : `${span(task.round_seconds)} per round`),
    fact("Open round", ...opened(task, now)));
}

// The reports of the open round, or its state while there are none to count.
function opened(task, now) {
  const open = task.attempt;
  if (open === null) return ["none", ""];
  const since = `open for ${span(Math.round(Math.max(0, now - open.opened) / 1000)).replace(".0", "")}`;
  const count = Object.fromEntries(open.stages).reported;
  return open.stages.length === 0 ? ["releasing", since] : [cell(count), `of ${grouped(open.goal)} reports, ${since}`];
}

function fact(name, value, more, below = null) {
  return h("div", {}, h("dt", {}, name), h("dd", {}, h("strong", {}, value), " ", h("span", { class: "muted" }, more), below));
}

function progress(task) {
  return meter({
    share: task.rounds === 0 ? 0 : task.released / task.rounds, kind: "long",
    label: `${grouped(task.released)} of ${several(task.rounds, "round")} are released`,
  });
}

/** All tasks. */
export function list({ overview }, now) {
  const { tasks } = overview;
  if (tasks.length === 0) {
    return [h("h1", {}, "Tasks"), h("p", { class: "empty" }, "There is no task. Create one with: ", h("code", {}, "undertone task create"))];
  }
  const troubled = tasks.filter((task) => task.state === "paused" || task.state === "halted").length;
  const active = tasks.filter((task) => task.state === "active").length;
  const state = [`${several(active, "task")} active`, troubled === 0 ? "none needs you" : `${several(troubled, "task")} need${troubled === 1 ? "s" : ""} you`];
  return [
    h("header", { class: "title" }, h("h1", {}, "Tasks"), h("p", { class: "muted" }, `${state.join(", ")}.`)),
    h("div", { class: "cards" }, tasks.map((task) => h("article", { class: `card ${task.state}`, "aria-labelledby": `t${task.id.slice(0, 12)}` },
      h("div", { class: "head" },
        h("h2", { id: `t${task.id.slice(0, 12)}` }, h("a", { href: `#/task/${task.id}` }, task.name)), sign(task),
        h("span", { class: "muted" }, `${task.kind === "evaluate" ? "evaluation" : "training"} · ${task.population}`)),
      h("p", { class: "headline" }, headline(task)), progress(task), alert(task), facts(task, now)))),
    h("p", { class: "foot" }, NOTE),
  ];
}

export const NOTE = "Counts of devices move in steps of ten, and are hidden below ten. Epsilon is an upper bound on what all released models "
  + "together can tell about one person's text; smaller is better.";

const TABS = [["", "Rounds"], ["privacy", "Privacy"], ["model", "Model"]];

/** The head of the pages of a task. */
export function head(task, tab) {
  return [
    h("p", { class: "back" }, h("a", { href: "#/" }, "All tasks")),
    h("header", { class: "title" }, h("div", { class: "head" }, h("h1", {}, task.name), sign(task), buttons(task)),
      h("p", { class: "headline" }, headline(task)), progress(task)),
    alert(task),
    h("nav", { class: "tabs", "aria-label": `Pages of ${task.name}` }, TABS.map(([path, name]) => h("a", {
      href: `#/task/${task.id}${path === "" ? "" : `/${path}`}`, "aria-current": path === tab ? "page" : null,
    }, name))),
  ];
}

/** The rounds of a task. */
export function rounds(task, view, now) {
  const { settings, funnel: way } = view;
  const part = ([name, count]) => ({ name: STAGES[name] ?? name, value: count, text: cell(count) });
  const lost = way.lost.filter(([, count]) => count !== null);
  const stages = [{ name: "board read", value: null, text: cell(way.boards) }, ...way.stages.map(part)];
  const ended = view.attempts.filter((attempt) => attempt.closed !== null);
  return [
    facts(task, now),
    h("section", {}, h("h2", {}, "From the board to a release"),
      h("p", { class: "muted" }, `Devices of ${several(way.attempts, "attempt")} that ended since this process began.`),
      h("div", { class: "split thirds" },
        figure("Devices by the stage they reached", null, funnel(stages.slice(1)),
          h("p", { class: "muted small" }, `The board was read ${cell(way.boards)} times; reading it needs no place in a round.`)),
        figure("Where devices were lost", "Each point with fewer than ten devices is left out.",
          lost.length === 0 ? h("p", { class: "empty" }, "No point has lost ten devices.") : funnel(lost.map(part))),
        way.results.length === 0 ? null : figure("Answers to check-ins", "Check-ins of devices that asked for this task.",
          funnel(way.results.map(([name, count]) => ({ name: RESULTS[name] ?? name.toLowerCase().replaceAll("_", " "), value: count, text: cell(count) })))))),
    h("section", {}, h("h2", {}, "Rounds"), h("div", { class: "split" },
      lines({
        title: "Seconds per round", about: "From the opening of the attempt that was released to its release.", xName: "round", xFormat: (at) => grouped(Math.round(at)),
        series: [{ name: "seconds", kind: "first", points: view.rounds.map((round) => [round.round + 1, round.seconds]) }],
      }),
      lines({
        title: "Devices per release", about: "Each number stands in the ledger.", xName: "round", xFormat: (at) => grouped(Math.round(at)),
        series: [{ name: "included", kind: "first", points: view.rounds.map((round) => [round.round + 1, round.included]) }],
        levels: [{ name: `goal ${grouped(settings.goal)}`, value: settings.goal, kind: "second" }],
      }))),
    h("section", {}, h("h2", {}, "Attempts"), abandoned(view), attempts(ended)),
    h("section", {}, h("h2", {}, "Settings and history"), h("div", { class: "split" }, terms(task, view), history(view.acts))),
  ];
}

function abandoned(view) {
  const all = view.abandoned.reduce((sum, [, number]) => sum + number, 0);
  if (all === 0 && view.quarantined === 0) return h("p", { class: "muted" }, "No attempt in the ledger was abandoned.");
  const why = view.abandoned.map(([reason, number]) => `${grouped(number)}: ${REASONS[reason] ?? reason}`);
  return h("p", { class: "muted" }, all === 0 ? "" : `${several(all, "abandoned attempt")} in the ledger (${why.join("; ")}). `,
    view.quarantined === 0 ? "" : `${several(view.quarantined, "round")} released as quarantined: noise was spent, and the model stayed.`);
}

function attempts(rows) {
  if (rows.length === 0) return h("p", { class: "empty" }, "No attempt has ended yet.");
  return h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Attempts, newest first" }, h("table", {},
    h("thead", {}, h("tr", {}, ["round", "attempt", "end", "devices", "took", "ended"].map((name, place) =>
      h("th", { scope: "col", class: place === 2 ? "" : "number" }, name)))),
    h("tbody", {}, rows.slice(0, 20).map((row) => h("tr", {},
      h("td", { class: "number" }, grouped(row.round + 1)), h("td", { class: "number" }, row.attempt + 1),
      h("td", {}, row.reason === null ? row.state : `${row.state}: ${REASONS[row.reason] ?? row.reason}`),
      h("td", { class: "number" }, row.included === null ? "–" : grouped(row.included)),
      h("td", { class: "number" }, span((row.closed - row.opened) / 1000)),
      h("td", { class: "number" }, moment(row.closed)))))));
}

function terms(task, { settings }) {
  const rows = [
    ["Kind", task.kind === "evaluate" ? `evaluation of ${settings.of}` : "training"],
    ["Population", h("a", { href: `#/population/${encodeURIComponent(task.population)}` }, task.population)],
    ["Sum", settings.sum === "secagg" ? "secure: the server learns sums of groups alone" : "plain: the server sees each update in memory"],
    ["Identity", settings.identity],
    ["Devices per round", `${grouped(settings.goal)} wanted, at least ${grouped(settings.floor)}, up to ${grouped(settings.sessions)} at one time`],
    ["Participation", `at most ${grouped(settings.max_part)} times per subject, at least ${several(settings.min_sep, "round")} apart`],
    ["Parameters", grouped(settings.parameters)],
    ["Identifier", h("code", {}, task.id.slice(0, 16))],
  ];
  return h("div", { class: "panel" }, h("h3", {}, "Settings"),
    h("dl", { class: "terms" }, rows.map(([name, value]) => [h("dt", {}, name), h("dd", {}, value)])));
}

function history(acts) {
  return h("div", { class: "panel" }, h("h3", {}, "Audit log"), acts.length === 0 ? h("p", { class: "empty" }, "Nothing happened yet.")
    : h("ol", { class: "history" }, acts.map((act) => h("li", {},
      h("span", { class: "muted" }, moment(act.at)), " ", h("strong", {}, act.act.replaceAll("_", " ")), ` by ${act.actor}`,
      act.note === "" ? null : h("span", { class: "note" }, act.note)))));
}
