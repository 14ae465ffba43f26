// SPDX-License-Identifier: MIT
//
// Predict first: a number field under each question. The section that shows the answer stays covered
// until the reader has committed to a number, or asks to be shown. A guess is kept in this browser
// and sent nowhere. Without this script everything is visible.
"use strict";

(() => {
  const SHOWN = "shown";

  const key = (question) => `contended:${location.pathname}:${question}`;

  // A browser may refuse to keep anything: then a guess lasts as long as the page.
  const memory = new Map();
  const store = {
    get(name) {
      try {
        return localStorage.getItem(name) ?? memory.get(name) ?? null;
      } catch {
        return memory.get(name) ?? null;
      }
    },
    set(name, value) {
      memory.set(name, value);
      try {
        localStorage.setItem(name, value);
      } catch {
        // kept above
      }
    },
  };

  const short = (value) => Number(value.toPrecision(3)).toLocaleString("en");

  function verdict(guess, answer) {
    if (!(guess * answer > 0)) return ""; // no factor leads from the one to the other
    const off = Math.max(guess / answer, answer / guess);
    return off < 1.5 ? " Well predicted." : ` Off by a factor of ${Number(off.toPrecision(2))}.`;
  }

  function uncover(section, reveal, kept) {
    section.classList.remove("contended-covered");
    section.querySelector(":scope > .contended-cover")?.remove();
    if (kept === SHOWN) return;
    const { answer, unit } = reveal.dataset;
    const [title, text] = [reveal.querySelector("strong"), reveal.querySelector("p:last-child")];
    title.textContent = "Your guess";
    text.textContent =
      `${short(Number(kept))} ${unit}. Measured here: ${short(Number(answer))} ${unit}.` +
      verdict(Number(kept), Number(answer));
  }

  function ask(note) {
    const question = note.dataset.predict;
    const reveal = [...document.querySelectorAll("[data-reveals]")].find(
      (each) => each.dataset.reveals === question,
    );
    const section = reveal?.closest("section");
    if (!section || section.contains(note)) return;

    const said = element("p", { role: "status" });
    const field = element("input", {
      type: "text",
      inputmode: "decimal",
      "aria-label": `Your guess, in ${note.dataset.unit}`,
      size: "10",
    });
    const form = element(
      "form",
      { class: "contended-guess" },
      element("label", {}, "Your guess: ", field, ` ${note.dataset.unit} `),
      element("button", { type: "submit" }, "Commit"),
      " ",
      element("button", { type: "button" }, "Just show me"),
    );
    note.querySelector("p:last-child").replaceChildren(question);
    note.append(form, said);
    if (!note.id) note.id = `predict-${document.querySelectorAll(".contended-guess").length}`;

    const commit = (kept) => {
      store.set(key(question), kept);
      uncover(section, reveal, kept);
      said.textContent = kept === SHOWN ? "The result is shown." : "Noted. Read on: the result is below.";
    };
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const number = field.value.trim().replace(",", ".");
      if (number !== "" && Number.isFinite(Number(number))) commit(number);
      else said.textContent = "That is no number: write it as 2.5 or 1e3.";
    });
    form.lastElementChild.addEventListener("click", () => commit(SHOWN));

    const kept = store.get(key(question));
    if (kept !== null) {
      if (kept !== SHOWN) field.value = kept;
      uncover(section, reveal, kept);
      return;
    }
    section.classList.add("contended-covered");
    const show = element("button", { type: "button" }, "show me");
    show.addEventListener("click", () => commit(SHOWN));
    section
      .querySelector(":scope > :is(h1, h2, h3, h4)")
      ?.after(
        element(
          "p",
          { class: "contended-cover" },
          "The result is covered until you have ",
          element("a", { href: `#${note.id}` }, "made your guess"),
          ". Only reading? Then ",
          show,
          ".",
        ),
      );
  }

  // What is covered cannot be scrolled to: its notice can.
  function arrive() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    target?.closest(".contended-covered")?.scrollIntoView();
  }

  document.addEventListener("DOMContentLoaded", () => {
    document.querySelectorAll("[data-predict]").forEach(ask);
    window.addEventListener("hashchange", arrive);
    arrive();
    // The theme lets the keyboard scroll what is wide, if it is to be seen when it looks: it looks
    // again when the window's size changes, and is to look when a solution opens.
    const opened = () => window.dispatchEvent(new Event("resize"));
    for (const each of document.querySelectorAll("details")) each.addEventListener("toggle", opened);
  });
})();
