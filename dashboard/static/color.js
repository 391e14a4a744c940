// Colors of the heat maps and of the flows.
//
// The scale runs evenly from the page's background to its opposite in lightness, through blue: it
// reads the same with every form of color blindness, and in gray.

const STEPS = 64;
const LIGHT = ["#e9eff5", "#b9d5ea", "#78b0d9", "#3a80bd", "#17528f", "#0a2a55"];
const DARK = ["#1d2734", "#1c4568", "#20699b", "#3a97c4", "#8ccbd9", "#f3efb5"];

/** Okabe and Ito's colors, by zone; told apart with every form of color blindness. */
export const CATEGORIES = [
  "#0072B2",
  "#E69F00",
  "#009E73",
  "#CC79A7",
  "#56B4E9",
  "#D55E00",
  "#8a7fd0",
  "#a8a02a",
];

let table = [];
let isDark = false;

/** Whether the page is dark now. */
export const darkness = () => isDark;

/** Look which theme holds. */
export function readTheme() {
  const forced = document.documentElement.dataset.theme;
  isDark = forced ? forced === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  table = ramp(isDark ? DARK : LIGHT);
}

/** Colors of the frame around a chosen machine, from outside in. */
export const frameColors = () => (isDark ? ["#141a22", "#ffb066"] : ["#ffffff", "#d94f04"]);

/** The scale as a background, for its legend. */
export const gradient = () => `linear-gradient(90deg, ${(isDark ? DARK : LIGHT).join(", ")})`;

/** Color of a share in thousandths. */
export const heat = (thousandths) =>
  table[Math.min(STEPS - 1, Math.max(0, Math.floor((thousandths * STEPS) / 1000)))];

function ramp(stops) {
  const colors = stops.map((hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));
  return Array.from({ length: STEPS }, (_, i) => {
    const place = (i / (STEPS - 1)) * (colors.length - 1);
    const low = Math.min(colors.length - 2, Math.floor(place));
    const mixed = colors[low].map((from, c) =>
      Math.round(from + (colors[low + 1][c] - from) * (place - low)),
    );
    return `rgb(${mixed.join(" ")})`;
  });
}
