// SPDX-License-Identifier: MIT
//
// One slide at a time: by arrow keys, Page Up and Down, space, Home, End, or the buttons. N shows the
// notes. The address names the slide. Without this script the slides stand below each other.
"use strict";

(() => {
  const slides = [...document.querySelectorAll("section.slide")];
  let now = 0;
  const place = element("output", { "aria-live": "polite" });

  const show = (at) => {
    now = Math.max(0, Math.min(slides.length - 1, at));
    slides.forEach((slide, nth) => slide.toggleAttribute("hidden", nth !== now));
    place.textContent = `${now + 1} / ${slides.length}`;
    history.replaceState(null, "", `#${now + 1}`);
    scrollTo(0, 0);
  };
  const button = (label, title, act) => {
    const made = element("button", { type: "button", title }, label);
    made.addEventListener("click", act);
    return made;
  };
  const notes = () => document.body.classList.toggle("with-notes");
  const KEYS = {
    ArrowRight: () => now + 1,
    ArrowDown: () => now + 1,
    PageDown: () => now + 1,
    " ": () => now + 1,
    ArrowLeft: () => now - 1,
    ArrowUp: () => now - 1,
    PageUp: () => now - 1,
    Home: () => 0,
    End: () => slides.length - 1,
  };

  document.addEventListener("keydown", (event) => {
    // a stepper, a slider or a field on the slide has keys of its own
    const own = event.target.closest("input, select, textarea, .contended-steps, .contended-slider");
    if (own || event.ctrlKey || event.altKey || event.metaKey) return;
    if (event.key === " " && event.target.closest("button, summary, a")) return;
    if (event.key === "n" || event.key === "N") notes();
    if (!(event.key in KEYS)) return;
    event.preventDefault();
    show(KEYS[event.key]());
  });
  // A number, or what a link on a slide names.
  const asked = () => {
    const name = decodeURIComponent(location.hash.slice(1));
    const within = slides.findIndex((slide) => name && slide.querySelector(`#${CSS.escape(name)}`));
    return within >= 0 ? within : Number(name) - 1 || 0;
  };
  addEventListener("hashchange", () => show(asked()));
  document.body.classList.add("one-by-one");
  document.body.append(
    element(
      "nav",
      { "aria-label": "Slides" },
      button("‹", "Previous slide (left arrow)", () => show(now - 1)),
      place,
      button("›", "Next slide (right arrow)", () => show(now + 1)),
      button("Notes", "Show or hide the notes (N)", notes),
    ),
  );
  // the forms of predict.js come when the document is complete
  document.addEventListener("DOMContentLoaded", () => show(asked()));
})();
