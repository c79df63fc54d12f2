// The models of a task: the size of each release beside its noise, and the accuracy that evaluations found.

import { lines } from "./charts.js";
import { h } from "./dom.js";
import { grouped, number, percent } from "./text.js";

const whole = (at) => grouped(Math.round(at));

const coarse = (share) => percent(share, 0);

function evaluations(view) {
  return view.evaluations.map((one) => lines({
    title: `Private accuracy by ${one.name}`, xName: one.own ? "round of the evaluation" : "rounds released", xFormat: whole, yFormat: percent, yTick: coarse,
    about: "Top-1 accuracy on the devices of the population, released with noise of its own. A bar is one standard deviation of that noise.",
    series: [{
      name: "top-1 accuracy", kind: "first",
      points: one.points.filter((point) => one.own || point.round !== null)
        .map((point) => [one.own ? point.evaluation + 1 : point.round, point.top1, point.standard_error]),
    }],
  }));
}

/** The page. */
export function model(view) {
  const points = (value) => view.rounds.map((round) => [round.round + 1, value(round)]).filter(([, found]) => found !== null);
  const clip = points((round) => round.clip_norm);
  const ratios = points((round) => round.signal_to_noise);
  const last = view.rounds.at(-1);
  const curve = view.curve;
  const none = curve === null && view.evaluations.length === 0;
  return [
    h("dl", { class: "figures" },
      [["Models released", grouped(view.released), ""],
        ["Release norm", last === undefined ? "none" : number(last.release_norm), "of the last noised average"],
        ["Signal to noise", last?.signal_to_noise == null ? "none" : number(last.signal_to_noise),
          last?.signal_to_noise == null ? "no estimate for this noise" : "in the last round, estimated"],
        ["Clip norm", last?.clip_norm == null ? "none" : number(last.clip_norm), "bound on each update"]]
        .map(([name, value, more]) => h("div", {}, h("dt", {}, name), h("dd", {}, h("strong", {}, value), " ", h("span", { class: "muted" }, more))))),
    h("h2", { class: "unseen" }, "Figures of the releases"),
    h("div", { class: "split" },
      curve === null ? null : lines({
        title: "Learning curve", xName: "rounds released", xFormat: whole, yFormat: percent, yTick: coarse, about: curve.about,
        series: [{ name: "top-1 accuracy", kind: "first", points: curve.points }],
        levels: curve.levels.map(([name, value], place) => ({ name: `${name} ${percent(value)}`, value, kind: place === 0 ? "second" : "muted" })),
      }),
      evaluations(view),
      none ? h("div", { class: "panel" }, h("h3", {}, "Accuracy"), h("p", {},
        "Nobody measures this model. A private evaluation task releases its accuracy on the devices, with noise and at a cost of its own: create one whose ",
        h("code", {}, "of"), " names this task.")) : null,
      lines({
        title: "Release norm", xName: "round", xFormat: whole,
        about: "L2 norm of the released average, and the norm that noise alone is expected to have, at most. Where both are near, a release is mostly noise.",
        series: [
          { name: "release", kind: "first", points: points((round) => round.release_norm) },
          { name: "noise", kind: "second", points: points((round) => round.noise_norm) },
        ],
      }),
      ratios.length === 0 ? null : lines({
        title: "Signal to noise", xName: "round", xFormat: whole,
        about: "Norm of the signal over the norm of the noise, estimated from the release alone. Below 1 is usual: what is learnt adds up over rounds.",
        series: [{ name: "ratio", kind: "first", points: ratios }],
      }),
      clip.length === 0 ? null : lines({
        title: "Clip norm", xName: "round", xFormat: whole, about: "Each device scales its update down to this L2 norm.",
        series: [{ name: "clip norm", kind: "first", points: clip }],
      })),
    h("section", {}, h("h2", {}, "Released model"), h("p", { class: "muted" }, "The digest under which devices load it."),
      h("p", { class: "digest" }, h("code", {}, view.model))),
  ];
}
