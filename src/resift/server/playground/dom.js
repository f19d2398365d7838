// Elements from data. Texts only ever become text nodes, so that no document can bring markup with it.
export function make(tag, options = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(options)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name in element && name !== "list") element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export const byId = (id) => document.getElementById(id);

// The server's picture, without whatever could act. Parsed as part of a page: there an svg needs no xmlns.
export function picture(source) {
  const parsed = new DOMParser().parseFromString(source, "text/html").querySelector("svg");
  for (const bad of parsed.querySelectorAll("script, foreignObject, style")) bad.remove();
  return document.importNode(parsed, true);
}
