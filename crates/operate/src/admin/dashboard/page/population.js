// A population, and the processes that serve it.

import { bars, funnel } from "./charts.js";
import { h } from "./dom.js";
import { ago, cell, day, grouped, moment, number, span } from "./text.js";

const CLOCK = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });

function pace(task) {
  return h("article", { class: "panel" }, h("h3", {}, h("a", { href: `#/task/${task.id}` }, task.name)), h("dl", { class: "terms" },
    h("dt", {}, "Asked for"), h("dd", {}, `${number(task.offered)} check-ins per second`),
    h("dt", {}, "Needed"), h("dd", {}, `${number(task.needed)} sessions per second`),
    h("dt", {}, "Subjects"), h("dd", {}, `about ${cell(task.population)}`),
    h("dt", {}, "Round"), h("dd", {}, `${span(task.round / 1000)} expected`)));
}

/** The page of a population. */
export function population(view) {
  const asked = view.tasks.reduce((sum, task) => sum + task.offered, 0) * (view.span / 1000);
  // The span that is going on has not all of its check-ins yet.
  const spans = view.spans.filter(([begin]) => begin + view.span <= view.now);
  const checkIns = spans.length === 0 ? view.spans : spans;
  const level = asked > 0 ? { name: `asked for: ${number(asked)}`, value: asked } : undefined;
  return [
    h("header", { class: "title" }, h("h1", {}, view.name), h("p", { class: "muted" }, "Population")),
    h("dl", { class: "figures" },
      [["Check-ins", cell(view.check_ins), "since this process began"],
        ["Board readings", cell(view.boards), "since this process began"],
        ["Asked for", number(asked / (view.span / 1000)), "check-ins per second"],
        ["Budget", view.max_epsilon === null ? "none" : `ε ${number(view.max_epsilon)}`,
          view.max_epsilon === null ? "set one with undertone task budget" : `at δ = ${number(view.delta)}, all tasks together`]]
        .map(([name, value, more]) => h("div", {}, h("dt", {}, name), h("dd", {}, h("strong", {}, value), " ", h("span", { class: "muted" }, more))))),
    h("h2", { class: "unseen" }, "Figures of the devices"),
    h("div", { class: "split" },
      bars({
        title: "Check-ins against pace", xName: `begin of ${span(view.span / 1000)}`, level,
        about: "Check-ins at this process in the last hour. Windows that devices are given lead them to the line.",
        items: checkIns.map(([begin, count]) => ({ name: CLOCK.format(new Date(begin)), value: count, text: cell(count) })),
      }),
      bars({
        title: "Enrolments per day", xName: "day (UTC)", about: "Devices that got their first certificate, in the last 30 days.",
        items: view.enrolments.map(([begin, count]) => ({ name: day(begin), value: count, text: cell(count) })),
      }),
      h("figure", {}, h("h3", {}, "Versions of the app"),
        view.versions.length === 0 ? h("p", { class: "empty" }, "No version has checked in from ten devices.")
          : funnel(view.versions.map(([version, count]) => ({ name: `version ${version}`, value: count, text: cell(count) }))),
        h("figcaption", {}, "Check-ins by version. A version of fewer than ten devices is left out.")),
      view.tasks.map(pace)),
  ];
}

/** The page of processes. */
export function processes({ overview }, now) {
  const { service, leases, tasks } = overview;
  const title = (id) => tasks.find((task) => task.id === id)?.name ?? id.slice(0, 12);
  const known = overview.processes;
  const names = [...new Set([service.process, ...known.map((process) => process.name), ...leases.map((lease) => lease.process)])];
  return [
    h("header", { class: "title" }, h("h1", {}, "Processes"),
      h("p", { class: "muted" }, "A lease is the right to lead a task. Its fence grows with each lease, so an earlier holder can release nothing.")),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Processes and their leases" }, h("table", {},
      h("thead", {}, h("tr", {}, ["process", "state", "roles", "leads"].map((head) => h("th", { scope: "col" }, head)))),
      h("tbody", {}, names.map((name) => {
        const one = known.find((process) => process.name === name);
        const mine = leases.filter((lease) => lease.process === name);
        const here = name === service.process;
        return h("tr", {},
          h("th", { scope: "row" }, h("code", {}, name), here ? " (answers this page)" : ""),
          h("td", {}, one === undefined ? (here || mine.length > 0 ? "at work" : "unknown") : one.alive ? "alive" : "no sign of life"),
          h("td", {}, one === undefined ? "all" : one.roles.replaceAll(",", ", ")),
          h("td", {}, mine.length === 0 ? "no task" : mine.map((lease, place) => [
            place === 0 ? "" : ", ", h("a", { href: `#/task/${lease.task}` }, title(lease.task)), ` (fence ${grouped(lease.fence)})`,
          ])));
      })))),
    h("section", {}, h("h2", {}, "This process"), h("dl", { class: "terms panel" },
      h("dt", {}, "Version"), h("dd", {}, service.version),
      h("dt", {}, "Began"), h("dd", {}, `${moment(service.started)}, ${ago(service.started, now)}`),
      h("dt", {}, "Identity"), h("dd", {}, service.identity === "dev" ? "devices name their people themselves" : "certificates of the issuer"))),
  ];
}
