"use strict";
// Loaded before the first paint: a page that turns dark a moment later flashes.
(() => {
  const key = "marl-sched-theme";
  let chosen = null;
  try {
    chosen = localStorage.getItem(key);
  } catch {
    // Storage may be forbidden: then the system's setting holds.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
