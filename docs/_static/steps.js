// SPDX-License-Identifier: MIT
//
// Interleavings to step through: Previous and Next (or the left and right arrow keys) above a picture
// that grows by a row with each step, and the step's sentence, which screen readers read out. Without
// this script all rows and all sentences are visible.
"use strict";

(() => {
  function bring(box) {
    const list = box.querySelector("ol");
    const rows = [...box.querySelectorAll("g.step")];
    const sentences = [...list.children];
    const said = element("p", { role: "status", "aria-live": "polite", "aria-atomic": "true" });
    const buttons = ["Previous", "Next"].map((name) => element("button", { type: "button" }, name));
    let now = 0;

    function show() {
      rows.forEach((row, at) => {
        row.setAttribute("visibility", at > now ? "hidden" : "visible");
        row.firstElementChild.setAttribute("stroke", at === now ? "currentcolor" : "none");
      });
      const sentence = sentences[now].cloneNode(true).childNodes;
      const number = element("strong", {}, `Step ${now + 1} of ${rows.length}.`);
      said.replaceChildren(number, " ", ...sentence);
      // not "disabled", which would take the focus away from whoever arrives there by the keyboard
      buttons[0].setAttribute("aria-disabled", now === 0);
      buttons[1].setAttribute("aria-disabled", now === rows.length - 1);
    }

    function go(by) {
      const next = Math.min(Math.max(now + by, 0), rows.length - 1);
      if (next === now) return;
      now = next;
      show();
    }

    buttons.forEach((button, at) => button.addEventListener("click", () => go(2 * at - 1)));
    box.addEventListener("keydown", (event) => {
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by || event.altKey || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault(); // a narrow page would scroll
      go(by);
    });
    // The list keeps the room that the longest sentence needs, so that nothing below moves.
    const sentence = element("div", { class: "contended-said" });
    box.querySelector("svg").before(element("p", {}, ...buttons), sentence);
    sentence.append(list, said);
    show();
  }

  document.addEventListener("DOMContentLoaded", () => {
    document.querySelectorAll(".contended-steps").forEach(bring);
  });
})();
