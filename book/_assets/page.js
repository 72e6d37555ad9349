// The page's own script. It runs before anything is drawn, and keeps nothing; the theme keeps the colour mode.
"use strict";
{
  const mode = localStorage.getItem("mode") || "auto";
  const dark = mode === "auto" ? matchMedia("(prefers-color-scheme: dark)").matches : mode === "dark";
  Object.assign(document.documentElement.dataset, { mode, theme: dark ? "dark" : "light" });

  // the theme makes what scrolls a stop for the keyboard, at each change of size: here also when a block opens
  document.addEventListener("toggle", () => dispatchEvent(new Event("resize")), true);

  document.addEventListener("click", event => {
    if (event.target.closest("[data-print]")) print();
  });

  // in a folder no page may read another file: there, search shows titles without excerpts, fonts come late, and a
  // download, which the browser opens in place of saving it, says where its file lies
  if (location.protocol === "file:") {
    DOCUMENTATION_OPTIONS.SHOW_SEARCH_SUMMARY = false;
    addEventListener("DOMContentLoaded", () => {
      for (const file of document.querySelectorAll("a[download]")) file.append(`: ${/_sources.*/.exec(file.href)[0]}`);
    });
  } else for (const font of document.querySelectorAll("link[data-preload]")) font.rel = "preload";
}
