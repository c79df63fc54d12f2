// Numbers, times and counts as they are read.

const GROUPED = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** A whole number with its thousands apart. */
export function grouped(number) {
  return GROUPED.format(number);
}

/** A number with four significant digits. */
export function number(value) {
  if (value === null || value === undefined) return "none";
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 1e5 || size < 1e-3) {
    return value.toExponential(2).replace(/\.?0+e/, "e").replace("e+", "e");
  }
  const text = value.toPrecision(4);
  return text.includes(".") ? text.replace(/\.?0+$/, "") : text;
}

/** A bound that is rounded up: one that is rounded down is a claim that does not hold. */
export function upper(value) {
  if (value === null || value === undefined) return "none";
  const text = number(value);
  if (Number(text) >= value) return text;
  const step = 10 ** (Math.floor(Math.log10(Math.abs(value))) - 3);
  return number(value + step);
}

/** A share in percent. */
export function percent(value, digits = 1) {
  return `${(100 * value).toFixed(digits)} %`;
}

/** A count of devices: in steps of ten, and hidden below ten. */
export function cell(count) {
  return count === null || count === undefined ? "< 10" : `${grouped(count)}+`;
}

/** A span of seconds. */
export function span(seconds) {
  if (seconds === null || seconds === undefined) return "unknown";
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 100) return `${Math.round(seconds)} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 100) return `${minutes} min`;
  const hours = Math.round(minutes / 60);
  return hours < 49 ? `${hours} h` : `${Math.round(hours / 24)} days`;
}

/** The time since a moment. */
export function ago(at, now) {
  if (at === null || at === undefined) return "never";
  const seconds = Math.max(0, (now - at) / 1000);
  return seconds < 1 ? "just now" : `${span(seconds < 10 ? Math.floor(seconds) : seconds).replace(".0", "")} ago`;
}

const MOMENT = new Intl.DateTimeFormat("en-GB", {
  day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit",
});
const DATE = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", timeZone: "UTC" });

/** A moment in the time of the reader. */
export function moment(at) {
  return MOMENT.format(new Date(at));
}

/** A day, in UTC as the server counts days. */
export function day(at) {
  return DATE.format(new Date(at));
}

/** A word for one and for several. */
export function several(count, one, more = `${one}s`) {
  return `${grouped(count)} ${count === 1 ? one : more}`;
}
