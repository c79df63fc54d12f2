// The server: a session of this tab, answers, and the stream of events.

const KEY = "undertone-session";

/** The session has ended or never began. */
export class Locked extends Error {}

/** `true` if this tab has a session. */
export function hasSession() {
  return sessionStorage.getItem(KEY) !== null;
}

async function refusal(response) {
  try {
    return (await response.json()).error;
  } catch {
    return `The server answered with status ${response.status}.`;
  }
}

async function ask(path, options = {}) {
  const headers = { authorization: `Bearer ${sessionStorage.getItem(KEY) ?? ""}`, ...options.headers };
  const response = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit" });
  if (response.status === 401) {
    sessionStorage.removeItem(KEY);
    throw new Locked(await refusal(response));
  }
  if (!response.ok) throw new Error(await refusal(response));
  return response;
}

/** Opens a session with the code of a link, or with the token of operators. */
export async function enter(key) {
  const response = await fetch("/api/session", {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(key),
    credentials: "omit",
  });
  if (!response.ok) throw new Error(await refusal(response));
  sessionStorage.setItem(KEY, (await response.json()).token);
}

/** Ends the session of this tab. */
export async function leave() {
  try {
    await ask("/api/session", { method: "DELETE" });
  } finally {
    sessionStorage.removeItem(KEY);
  }
}

/** An answer of the server. */
export async function get(path) {
  return (await ask(path)).json();
}

/** Performs an act. */
export async function post(path, body) {
  const options = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  return (await ask(path, options)).json();
}

/**
 * Watches the stream of events until the session ends. A browser's own reader of events cannot send the token of the session, so
 * this one reads the stream itself.
 */
export async function watch({ onOverview, onState }) {
  for (;;) {
    try {
      const response = await ask("/api/events");
      onState("live");
      await read(response.body.getReader(), onOverview);
    } catch (error) {
      if (error instanceof Locked) throw error;
    }
    onState("lost");
    await new Promise((wake) => setTimeout(wake, 1500));
  }
}

async function read(reader, onOverview) {
  const decoder = new TextDecoder();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += decoder.decode(value, { stream: true });
    const events = text.split("\n\n");
    text = events.pop();
    for (const event of events) {
      const data = event.split("\n").filter((line) => line.startsWith("data: "));
      if (data.length > 0) onOverview(JSON.parse(data.map((line) => line.slice(6)).join("\n")));
    }
  }
}
