// Numbers as people read them.

const NONE = "–";
const MINUS = "−";

/** A figure with about `digits` significant digits. */
export function figure(value, digits = 4) {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  const size = Math.abs(value);
  if (size >= 10000) return count(value);
  const places = size >= 1000 ? 0 : Math.max(0, digits - 1 - Math.floor(Math.log10(size || 1)));
  return signed(value.toFixed(Math.min(places, digits)));
}

/** A count: exact below ten thousand, short above. */
export function count(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return NONE;
  const size = Math.abs(value);
  if (size < 10000) return signed(String(Math.round(value)));
  for (const [unit, power] of [
    ["bn", 1e9],
    ["M", 1e6],
    ["k", 1e3],
  ]) {
    if (size >= power)
      return signed(
        `${(value / power).toFixed(size >= 100 * power ? 0 : 1).replace(/\.0$/, "")} ${unit}`,
      );
  }
  return NONE;
}

/** A share in percent. */
export const percent = (share, places = 0) =>
  share === null || share === undefined || !Number.isFinite(share)
    ? NONE
    : `${(100 * share).toFixed(places)} %`;

/** Seconds of simulated or wall time. */
export function duration(seconds) {
  if (seconds === null || seconds === undefined || !Number.isFinite(seconds)) return NONE;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 120) return `${minutes} min ${Math.round(seconds % 60)} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/** Bytes, in powers of 1000. */
export function bytes(value) {
  if (!value) return NONE;
  for (const [unit, power] of [
    ["GB", 1e9],
    ["MB", 1e6],
    ["kB", 1e3],
  ]) {
    if (value >= power) return `${(value / power).toFixed(value >= 10 * power ? 0 : 1)} ${unit}`;
  }
  return `${value} B`;
}

/** A time of day; `seconds` since 1970. */
export const clock = (seconds) =>
  seconds === null || seconds === undefined ? NONE : new Date(1000 * seconds).toLocaleTimeString();

/** "cpu" for cpu_milli: a resource without its unit. */
export const resourceName = (name) =>
  name.replace(/_(milli|mib|gib|mbps)$/, "").replaceAll("_", " ");

/** A request in the units of its resources. */
export function request(amounts) {
  return Object.entries(amounts)
    .map(([name, amount]) => {
      if (name.endsWith("_milli"))
        return `${figure(amount / 1000, 2)} ${resourceName(name) === "cpu" ? (amount === 1000 ? "core" : "cores") : resourceName(name)}`;
      if (name.endsWith("_mib"))
        return `${amount >= 1024 ? `${figure(amount / 1024, 2)} GiB` : `${amount} MiB`} ${resourceName(name)}`;
      return `${count(amount)} ${resourceName(name)}`;
    })
    .join(", ");
}

/** "3 zones", "1 zone". */
export const plural = (n, one, many = `${one}s`) => `${count(n)} ${n === 1 ? one : many}`;

/** Round numbers between two, about `n` of them. */
export function niceTicks(low, high, n) {
  const raw = (high - low) / n;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= raw);
  const ticks = [];
  for (let i = Math.ceil(low / step); i * step <= high; i++) ticks.push(i * step);
  return ticks;
}

/** A name that fits beside a chart. */
export const shortened = (name, longest = 12) =>
  name.length > longest ? `${name.slice(0, longest - 1)}…` : name;

function signed(text) {
  return text.startsWith("-") ? MINUS + text.slice(1) : text;
}
