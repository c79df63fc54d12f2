// The contrast of text by WCAG 2.1. The function runs in the page, so it holds all that it needs.

/** The contrast of each text that is seen, against the colours behind it. */
export function contrasts() {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const parse = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [red, green, blue, alpha] = canvas.getImageData(0, 0, 1, 1).data;
    return [red, green, blue, alpha / 255];
  };
  const over = (top, below) => [0, 1, 2].map((part) => top[part] * top[3] + below[part] * (1 - top[3])).concat(1);
  const light = ([red, green, blue]) => [red, green, blue].map((part) => {
    const share = part / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  }).reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0);
  const behind = (element) => {
    const layers = [];
    for (let at = element; at !== null; at = at.parentElement) layers.push(parse(getComputedStyle(at).backgroundColor));
    return layers.reverse().reduce((below, layer) => over(layer, below), [255, 255, 255, 1]);
  };
  const found = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const text = walker.currentNode.data.trim();
    const element = walker.currentNode.parentElement;
    const box = element.getBoundingClientRect();
    const style = getComputedStyle(element);
    if (text === "" || box.width < 2 || box.height < 2 || style.visibility === "hidden" || element.closest("title, .skip, .hidden, noscript")) continue;
    const ink = element instanceof SVGElement ? style.fill : style.color;
    const back = behind(element);
    const [one, other] = [light(over(parse(ink), back)), light(back)];
    found.push({ ratio: (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05), text: text.slice(0, 40) });
  }
  return found;
}
