// Drives the dashboard of `undertone serve --demo` in Chromium: access, live updates, keyboard use, narrow screens, dark mode and contrast.
//
// usage: node run.js PROGRAM [FOLDER]
//
// PROGRAM is a built `undertone`. Screenshots go to FOLDER, which is `screens` by default. CHROMIUM names the browser.

import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, existsSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { chromium } from "playwright-core";
import { findings } from "./accessibility.js";
import { contrasts } from "./contrast.js";

const [program, screens = "screens"] = process.argv.slice(2);
if (program === undefined) {
  console.error("usage: node run.js PROGRAM [FOLDER]");
  process.exit(2);
}
mkdirSync(screens, { recursive: true });

const ROUNDS = Number(process.env.ROUNDS ?? 250);
/** The limit of a live update, in milliseconds. */
const LIVE = 2000;
/** The limit from the start of the program to a learning curve of five points, in milliseconds. */
const CURVE = 120_000;

const claims = [];
function claim(name, holds, shown = "") {
  claims.push({ name, holds });
  console.log(`${holds ? "holds " : "BROKEN"} ${name}${shown === "" ? "" : ` (${shown})`}`);
}

async function until(what, limit, look) {
  const began = Date.now();
  for (;;) {
    const found = await look();
    if (found !== null && found !== undefined && found !== false) return { found, took: Date.now() - began };
    if (Date.now() - began > limit) throw new Error(`${what}: expected within ${limit} ms`);
    await new Promise((wake) => setTimeout(wake, 30));
  }
}

const home = mkdtempSync(join(tmpdir(), "undertone-e2e-"));
const data = join(home, "demo");
const began = Date.now();
// On a terminal of its own the server prints a link.
const quoted = [resolve(program), "serve", "--demo", "--data", data, "--rounds", String(ROUNDS)].map((word) => `'${word}'`).join(" ");
const server = spawn("script", ["-qefc", `exec ${quoted}`, "/dev/null"], { stdio: ["ignore", "pipe", "pipe"] });
let log = "";
server.stdout.on("data", (text) => { log += text; });
server.stderr.on("data", (text) => { log += text; });
let ended = null;
server.on("exit", (code, signal) => { ended = code ?? signal; });

const args = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync"];
/** Ends the program that runs on the terminal. */
function end(signal) {
  const child = execFileSync("pgrep", ["-P", String(server.pid)], { encoding: "utf8" }).trim();
  process.kill(Number(child), signal);
}

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", headless: true, args });

async function operator(path, options = {}) {
  const { address, token } = JSON.parse(readFileSync(join(data, "admin.json"), "utf8"));
  const response = await fetch(`${address}${path}`, { ...options, headers: { authorization: `Bearer ${token}`, ...options.headers } });
  return response;
}

async function opened(scheme, width) {
  const context = await browser.newContext({ colorScheme: scheme, viewport: { width, height: width < 500 ? 844 : 900 } });
  const page = await context.newPage();
  const wrong = [];
  page.on("console", (message) => { if (message.type() === "error") wrong.push(message.text()); });
  page.on("pageerror", (error) => wrong.push(String(error)));
  return { context, page, wrong };
}

async function enter(page) {
  const { address, token } = JSON.parse(readFileSync(join(data, "admin.json"), "utf8"));
  await page.goto(`${address}/`);
  await page.fill("#token", token);
  await page.press("#token", "Enter");
  await page.waitForSelector(".card .headline", { timeout: 20_000 });
  return address;
}

async function settled(page) {
  await page.waitForTimeout(700);
}

try {
  await until("the file of the listener", 60_000, () => existsSync(join(data, "admin.json")));
  const { context, page, wrong } = await opened("light", 1280);
  const { address } = JSON.parse(readFileSync(join(data, "admin.json"), "utf8"));

  // Access.
  await page.goto(`${address}/`);
  await page.waitForSelector("#token");
  await page.screenshot({ path: join(screens, "way-in-1280-light.png") });
  await page.fill("#token", "not the token");
  await page.press("#token", "Enter");
  await page.waitForSelector(".wrong:not(:empty)");
  claim("a wrong token opens nothing and is answered by a sentence", (await page.textContent(".wrong")).includes("admin.token"));
  wrong.length = 0;
  await enter(page);
  claim("the token is in no address, no cookie and no storage beyond the tab", !page.url().includes("token") && (await context.cookies()).length === 0
    && await page.evaluate(() => localStorage.length === 0));

  // The link of the terminal.
  const { found: printed } = await until("the link on the terminal", 20_000, () => log.match(/http:\/\/127\.0\.0\.1:\d+\/#code=[\w-]{22}/));
  for (const works of [true, false]) {
    const { context: other, page: look } = await opened("light", 1280);
    await look.goto(printed[0]);
    await look.waitForSelector(works ? ".card .headline" : "#token", { timeout: 20_000 });
    claim(works ? "the printed link opens the dashboard, and its code leaves the address" : "the printed link opens nothing a second time",
      works ? !look.url().includes("code") : (await look.textContent(".wrong")).includes("not used"));
    await other.close();
  }

  // A stranger reads the state in the first screen.
  const first = await page.textContent("main");
  claim("the first screen says which round is open, the epsilon and the last release",
    /Round \d+ of \d+|Between two rounds: \d+ of \d+/.test(first) && first.includes("Epsilon so far") && first.includes("Last release"));

  // Live: from the answer of the API that has a release to the page that shows it.
  const latencies = [];
  for (let round = 0; round < 3; round += 1) {
    const before = (await (await operator("/api/overview")).json()).overview.tasks[0].released;
    await until("a release", 60_000, async () => (await (await operator("/api/overview")).json()).overview.tasks[0].released > before);
    const { took } = await until("the release on the page", 10_000, async () => {
      const shown = await page.textContent(".figures strong");
      return Number(shown) > before;
    });
    latencies.push(took);
  }
  claim("a release is seen on the page within 2 s", Math.max(...latencies) <= LIVE, `${latencies.join(", ")} ms`);

  // The learning curve.
  await page.click("article h2 a");
  await page.waitForSelector(".tabs");
  await page.click(".tabs a:has-text('Model')");
  const { found: points } = await until("a curve of five points", CURVE, async () => {
    const number = await page.locator("figure:has-text('Learning curve') circle").count();
    return number >= 5 ? number : null;
  });
  const curve = Date.now() - began;
  claim("a learning curve of five points is seen within 2 minutes of the start", curve <= CURVE, `${points} points after ${(curve / 1000).toFixed(1)} s`);

  // Pause by the keyboard alone, and resume.
  await page.goto(`${address}/#/`);
  await page.waitForSelector(".card h2 a");
  await page.reload();
  await page.waitForSelector(".card h2 a");
  let seen = [];
  for (let press = 0; press < 40; press += 1) {
    await page.keyboard.press("Tab");
    const at = await page.evaluate(() => {
      const active = document.activeElement;
      const style = getComputedStyle(active);
      return { text: active.textContent.trim(), ring: style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2 };
    });
    seen.push(at);
    if (at.text === "demo") break;
  }
  claim("the keyboard reaches the task", seen.at(-1).text === "demo", `${seen.length} presses of Tab`);
  claim("each stop of the keyboard has a visible focus", seen.every((at) => at.ring), `${seen.length} stops`);
  await page.keyboard.press("Enter");
  await page.waitForSelector("[data-act=pause]");
  for (let press = 0; press < 40; press += 1) {
    await page.keyboard.press("Tab");
    if (await page.evaluate(() => document.activeElement.dataset.act === "pause")) break;
  }
  await page.keyboard.press("Enter");
  await page.waitForSelector("dialog[open]");
  claim("the dialog takes the focus", await page.evaluate(() => document.activeElement.id === "note"));
  await page.screenshot({ path: join(screens, "dialog-1280-light.png") });
  await page.keyboard.press("Escape");
  await page.waitForSelector("dialog", { state: "detached" });
  await page.click("[data-act=pause]");
  await page.keyboard.type("a look at the pause, by keyboard");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Tab");
  await page.keyboard.press("Enter");
  const paused = await until("the pause on the page", 10_000, async () => (await page.locator(".alert.paused").count()) > 0);
  claim("a pause is seen on the page within 2 s", paused.took <= LIVE, `${paused.took} ms`);
  const alert = await page.textContent(".alert.paused");
  claim("a paused task shows the note and what to do", alert.includes("by keyboard") && alert.includes("What to do"));
  await settled(page);
  await page.screenshot({ path: join(screens, "paused-1280-light.png") });
  await page.click("[data-act=resume]");
  await page.keyboard.type("it was seen");
  await page.click("dialog button[type=submit]");
  await until("the resumption on the page", 10_000, async () => (await page.locator(".alert.paused").count()) === 0);
  // Focus stays while figures change.
  await page.focus("[data-act=pause]");
  await page.waitForTimeout(2500);
  claim("live changes leave the focus where it is", await page.evaluate(() => document.activeElement.dataset.act === "pause"));
  const acts = await (await operator(`/api/tasks/demo`)).json();
  claim("the audit log has the pause with its note", acts.acts.some((act) => act.note === "a look at the pause, by keyboard"));

  // Every view, in light and dark, wide and narrow.
  const task = (await (await operator("/api/overview")).json()).overview.tasks[0].id;
  const views = {
    tasks: "#/", task: `#/task/${task}`, privacy: `#/task/${task}/privacy`, model: `#/task/${task}/model`,
    population: "#/population/demo", processes: "#/processes",
  };
  let [worst, lowest] = ["", Infinity];
  const overflowing = [];
  const nameless = [];
  const barriers = [];
  for (const scheme of ["light", "dark"]) {
    for (const width of [1280, 390]) {
      const { context: other, page: look, wrong: errors } = await opened(scheme, width);
      await enter(look);
      for (const [name, hash] of Object.entries(views)) {
        await look.goto(`${address}/${hash}`);
        await settled(look);
        const { wide, here } = await look.evaluate(() => ({ wide: document.documentElement.scrollWidth, here: document.documentElement.clientWidth }));
        if (wide > here) overflowing.push(`${name} at ${width}: ${wide}`);
        for (const { ratio, text } of await look.evaluate(contrasts)) {
          if (ratio < lowest) [lowest, worst] = [ratio, `${name} ${scheme} ${width}: ${text}`];
        }
        nameless.push(...await look.evaluate(() => [...document.querySelectorAll("a, button, input, textarea, svg[role=img], nav, [role=region]")]
          .filter((one) => !(one.textContent.trim() || one.getAttribute("aria-label") || document.querySelector(`label[for="${one.id}"]`)))
          .map((one) => one.outerHTML.slice(0, 80))));
        barriers.push(...await findings(look, `${name} ${scheme} ${width}`));
        const heads = await look.locator("h1").count();
        if (heads !== 1) nameless.push(`${name} has ${heads} titles`);
        await look.screenshot({ path: join(screens, `${name}-${width}-${scheme}.png`), fullPage: true });
      }
      if (errors.length > 0) wrong.push(...errors);
      await other.close();
    }
  }
  claim("no view scrolls sideways at 1280 and 390 px", overflowing.length === 0, overflowing.join("; "));
  claim("all text has a contrast of at least 4.5", lowest >= 4.5, `${lowest.toFixed(2)}, ${worst}`);
  claim("every control and picture has a name, and every view one title", nameless.length === 0, nameless.slice(0, 3).join("; "));
  claim("axe-core finds no barrier in any view", barriers.length === 0, barriers.slice(0, 5).join("; "));
  claim("dark and light differ", await (async () => {
    const colours = [];
    for (const scheme of ["light", "dark"]) {
      const { context: other, page: look } = await opened(scheme, 1280);
      await look.goto(`${address}/`);
      colours.push(await look.evaluate(() => getComputedStyle(document.body).backgroundColor));
      await other.close();
    }
    return colours[0] !== colours[1];
  })());
  claim("the console has no error, so nothing broke the content policy", wrong.length === 0, wrong.slice(0, 2).join("; "));

  // The page of an ended server says so.
  end("SIGTERM");
  await until("the end of the server", 30_000, () => ended !== null);
  const { took } = await until("the end on the page", 10_000, async () => (await page.locator(".connection.lost").count()) > 0);
  claim("a page says when the server does not answer", true, `${took} ms`);
} catch (error) {
  console.error(log.split("\n").slice(-12).join("\n"));
  claim(`the run came to its end: ${error.message.split("\n")[0]}`, false);
} finally {
  if (ended === null) end("SIGKILL");
  await browser.close();
  rmSync(home, { recursive: true, force: true });
}
const broken = claims.filter((one) => !one.holds).length;
console.log(`${claims.length - broken} of ${claims.length} claims hold, ${((Date.now() - began) / 1000).toFixed(0)} s`);
process.exit(broken === 0 ? 0 : 1);
