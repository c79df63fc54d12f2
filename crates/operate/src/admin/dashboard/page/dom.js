// Elements, and the smallest change from one tree to another: focus, open details and scroll places stay where they are.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, properties, children) {
  for (const [name, value] of Object.entries(properties ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element[name.toLowerCase()] = value;
    else element.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return element;
}

/** An element of HTML. */
export function h(tag, properties, ...children) {
  return fill(document.createElement(tag), properties, children);
}

/** An element of SVG. */
export function s(tag, properties, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

const HANDLERS = ["onclick", "onsubmit", "onkeydown", "oninput"];

/** Changes `old` until it is as `made`. */
export function morph(old, made) {
  if (old.nodeType !== made.nodeType || old.nodeName !== made.nodeName) {
    old.replaceWith(made);
    return;
  }
  if (old.nodeType === Node.TEXT_NODE) {
    if (old.data !== made.data) old.data = made.data;
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) return;
  for (const { name } of [...old.attributes]) {
    const kept = name === "open" && old.nodeName === "DETAILS";
    if (!kept && !made.hasAttribute(name)) old.removeAttribute(name);
  }
  for (const { name, value } of made.attributes) {
    if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }
  for (const name of HANDLERS) old[name] = made[name];
  const [before, after] = [[...old.childNodes], [...made.childNodes]];
  after.forEach((child, place) => {
    if (place < before.length) morph(before[place], child);
    else old.append(child);
  });
  before.slice(after.length).forEach((child) => child.remove());
}

/** Shows these nodes in an element. */
export function show(element, ...children) {
  const made = element.cloneNode(false);
  fill(made, {}, children);
  morph(element, made);
}

/** Says a sentence to those who listen to the page. */
export function say(sentence) {
  document.getElementById("said").textContent = sentence;
}
