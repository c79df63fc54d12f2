// What the checker axe-core finds on a page, by the rules of WCAG 2.1 A and AA and by its own best practices.

import axe from "axe-core";

/** The findings on a page that is open, a line for each element. */
export async function findings(page, where) {
  await page.evaluate(axe.source);
  const { violations } = await page.evaluate(() => globalThis.axe.run());
  return violations.flatMap((rule) => rule.nodes.map((node) => `${where}: ${rule.id}: ${node.html.slice(0, 120)}`));
}
