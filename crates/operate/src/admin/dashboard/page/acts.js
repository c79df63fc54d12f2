// Pause, resume and stop: a dialog asks for the note, and for the name of a task that is stopped for good.

import { post } from "./api.js";
import { h, say } from "./dom.js";

const ACTS = {
  pause: {
    name: "Pause",
    text: "No new round opens until the task is resumed. The round that is open goes on.",
  },
  resume: {
    name: "Resume",
    text: "Rounds open again. Resume a halted task only when its cause is found.",
  },
  stop: {
    name: "Stop",
    text: "The task ends for good. Its open attempt is abandoned, its participants count, and the ledger gets its last line.",
  },
};

/** The buttons for the acts that are possible now. */
export function buttons(task) {
  return h("div", { class: "acts", role: "group", "aria-label": `Acts on ${task.name}` }, task.acts.map((act) => h(
    "button", { type: "button", class: act === "stop" ? "quiet" : "", "data-act": act, onClick: () => ask(task, act) }, ACTS[act].name,
  )));
}

function ask(task, act) {
  const { name, text } = ACTS[act];
  const error = h("p", { class: "wrong", role: "alert" });
  const note = h("textarea", { id: "note", rows: 3, maxlength: 500, required: true });
  const confirm = h("input", { id: "confirm", type: "text", autocomplete: "off", spellcheck: "false" });
  const go = h("button", { type: "submit", class: act === "stop" ? "grave" : "main" }, `${name} ${task.name}`);
  const dialog = h("dialog", { "aria-labelledby": "asked" }, h("form", { method: "dialog", onSubmit: submit },
    h("h2", { id: "asked" }, `${name} ${task.name}?`),
    h("p", {}, text),
    h("label", { for: "note" }, "Reason, for the audit log"), note,
    act === "stop" ? [h("label", { for: "confirm" }, `Type ${task.name} to confirm`), confirm] : null,
    error,
    h("div", { class: "acts" }, h("button", { type: "button", onClick: () => dialog.close() }, "Cancel"), go),
  ));

  async function submit(event) {
    event.preventDefault();
    go.disabled = true;
    error.textContent = "";
    try {
      const body = { note: note.value.replace(/\s+/g, " ").trim() };
      if (act === "stop") body.confirm = confirm.value.trim();
      const made = await post(`/api/tasks/${task.id}/${act}`, body);
      dialog.close();
      say(`${task.name} is ${made.state}.`);
    } catch (refused) {
      error.textContent = refused.message;
    } finally {
      go.disabled = false;
    }
  }

  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
  note.focus();
}
