// Checks pages that need no server: the planner, a report, a site.
//
// usage: node pages.js PAGE.html ...
//
// Each page is opened wide and narrow, light and dark. axe-core may find nothing, the page may not scroll sideways, and all text has a
// contrast of at least 4.5. CHROMIUM names the browser.

import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";
import { findings } from "./accessibility.js";
import { contrasts } from "./contrast.js";

const pages = process.argv.slice(2);
if (pages.length === 0) {
  console.error("usage: node pages.js PAGE.html ...");
  process.exit(2);
}
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", headless: true, args: ["--no-sandbox", "--disable-gpu"] });
const found = [];
for (const path of pages) {
  for (const colorScheme of ["light", "dark"]) {
    for (const width of [1280, 390]) {
      const context = await browser.newContext({ colorScheme, viewport: { width, height: 900 } });
      const page = await context.newPage();
      const where = `${path} at ${width} px, ${colorScheme}`;
      page.on("pageerror", (error) => found.push(`${where}: ${error}`));
      await page.goto(pathToFileURL(resolve(path)).href);
      // The planner compiles itself and answers its first question.
      await page.waitForTimeout(1500);
      found.push(...await findings(page, where));
      for (const { ratio, text } of await page.evaluate(contrasts)) {
        if (ratio < 4.5) found.push(`${where}: contrast ${ratio.toFixed(2)}: ${text}`);
      }
      const { wide, here } = await page.evaluate(() => ({ wide: document.documentElement.scrollWidth, here: document.documentElement.clientWidth }));
      if (wide > here) found.push(`${where}: scrolls sideways, ${wide} px`);
      await context.close();
    }
  }
}
await browser.close();
for (const line of found) console.log(line);
console.log(`${found.length} findings on ${pages.length} pages, each wide and narrow, light and dark`);
process.exit(found.length === 0 ? 0 : 1);
