// The privacy of a task: what is guaranteed by plan and by ledger, and the participations behind it.

import { bars, lines, meter } from "./charts.js";
import { h, say } from "./dom.js";
import { cell, grouped, number, upper } from "./text.js";

const NAMES = [
  ["observed", "Observed", "By the ledger: the rounds that were released, with the participation that took place. A task that is stopped claims all planned rounds."],
  ["planned", "Planned", "By the plan: all rounds, for each person who keeps to the declared participation."],
  ["worst_case", "Worst case", "The rounds so far, for each person who keeps to the declared participation."],
  ["with_vocabulary", "With the vocabulary", "The claimed guarantee together with the private choice of the words."],
  ["with_initial_model", "With the initial model", "Together with all trainings that are known to have read the same text."],
];

function guarantee(view, [key, name, how]) {
  const stated = view[key];
  if (stated === null) return null;
  return h("article", { class: `guarantee ${key === "observed" ? "main" : ""}` }, h("h3", {}, name), h("p", { class: "how" }, how),
    h("p", { class: "epsilon" }, h("span", {}, "ε ≤ "), upper(stated.epsilon), h("span", {}, ` at δ = ${upper(stated.delta)}`)),
    h("dl", { class: "terms" },
      h("dt", {}, "Rounds"), h("dd", {}, grouped(stated.rounds)),
      stated.rho === null ? null : [h("dt", {}, "zCDP"), h("dd", {}, `ρ = ${upper(stated.rho)}`)],
      h("dt", {}, "Neighbours"), h("dd", {}, stated.adjacency.replaceAll("_", " "))));
}

function budget(view) {
  const spent = view.observed?.epsilon ?? 0;
  const limits = [
    view.max_epsilon === null ? null : ["Budget of this task", view.max_epsilon],
    view.population === null ? null : [`Budget of population ${view.population.name}, all of its tasks`, view.population.max_epsilon],
  ].filter((limit) => limit !== null);
  const planned = view.planned?.epsilon;
  const open = limits.length === 0;
  if (open && planned === undefined) return null;
  if (open) limits.push(["Plan of this task, which has no other budget", planned]);
  return h("div", { class: "panel" }, h("h3", {}, "Budget"), limits.map(([name, limit]) => h("div", { class: "budget" },
    h("p", {}, h("strong", {}, name), h("span", { class: "number" }, `ε ${upper(spent)} of ${upper(limit)}`)),
    meter({
      share: spent / limit, kind: "long", marks: planned === undefined || planned >= limit ? [] : [planned / limit],
      label: `${name}: epsilon ${upper(spent)} of ${upper(limit)} so far${planned === undefined ? "" : `, ${upper(planned)} planned`}`,
    }))),
  planned === undefined || open ? null : h("p", { class: "muted small" }, `The whole plan of ε ${upper(planned)} was admitted before the first round. The mark shows it.`));
}

function copied(text) {
  return h("button", {
    type: "button", onClick: async () => {
      try {
        await navigator.clipboard.writeText(text);
        say("The digest was copied.");
      } catch {
        say("The browser did not copy; mark the text instead.");
      }
    },
  }, "Copy");
}

/** The page. */
export function privacy(view) {
  const range = ([from, to]) => (from === to ? `${from}` : `${from}–${to}`);
  const planned = view.planned?.epsilon;
  return [
    view.warnings.length === 0 ? null : h("div", { class: "alert paused", role: "note" }, h("p", { class: "happened" }, "Before you quote a figure:"),
      h("ul", {}, view.warnings.map((warning) => h("li", {}, warning)))),
    view.private ? null : h("p", { class: "headline" }, "This task adds no noise and gives no guarantee."),
    h("h2", { class: "unseen" }, "Guarantees and participations"),
    h("div", { class: "guarantees" }, NAMES.map((named) => guarantee(view, named))),
    h("div", { class: "split" },
      lines({
        title: "Epsilon by released rounds", xName: "rounds released", xMax: view.rounds, xFormat: (at) => grouped(Math.round(at)), yFormat: number,
        about: "The observed bound after each round, at the same delta. The plan is its limit for those who keep to the declared participation.",
        series: [{ name: "observed", kind: "first", points: view.history }],
        levels: [
          ...(planned === undefined ? [] : [{ name: `planned ${upper(planned)}`, value: planned, kind: "second" }]),
          ...(view.max_epsilon === null ? [] : [{ name: `budget ${upper(view.max_epsilon)}`, value: view.max_epsilon, kind: "muted" }]),
        ],
      }),
      budget(view),
      bars({
        title: "Subjects by participations", xName: "participations",
        about: `${cell(view.subjects)} subjects took part, abandoned attempts included. The plan allows ${grouped(view.max_part)} participations.`,
        items: view.participations.map(([times, subjects]) => ({ name: `${times}`, value: subjects, text: cell(subjects) })),
      }),
      bars({
        title: "Subjects by separation", xName: "rounds between two participations",
        about: `A subject counts once per bar. The plan asks for at least ${grouped(view.min_sep)} rounds.`,
        items: view.separations.map((one) => ({ name: range(one), value: one[2], text: cell(one[2]) })),
      })),
    h("section", {}, h("h2", {}, "Ledger"),
      h("p", { class: "muted" }, "The digest of the last line. A reader who keeps a copy can tell later that no line before it was changed."),
      h("p", { class: "digest" }, h("code", { id: "chain" }, view.chain), copied(view.chain))),
    h("section", {}, h("h2", {}, "What the figures mean"), h("p", { class: "identity" }, view.identity),
      h("dl", { class: "statements" }, view.statements.filter((text) => text !== view.identity).map((text) => {
        const place = text.indexOf(": ");
        return [h("dt", {}, place < 0 ? "" : text.slice(0, place)), h("dd", {}, place < 0 ? text : text.slice(place + 2))];
      }))),
  ];
}
