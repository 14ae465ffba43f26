// SPDX-License-Identifier: MIT
//
// What the other scripts make pages and drawings of: an element, its attributes and what is in it.
"use strict";

const { element, shape } = (() => {
  const within = (space) => (name, attributes = {}, ...children) => {
    const made = document.createElementNS(space, name);
    for (const [attribute, value] of Object.entries(attributes)) made.setAttribute(attribute, value);
    made.append(...children);
    return made;
  };
  return {
    element: within("http://www.w3.org/1999/xhtml"),
    shape: within("http://www.w3.org/2000/svg"),
  };
})();
