// Create elements. Texts are inserted as text nodes, so documents cannot inject markup.
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

export function svg(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

export const byId = (id) => document.getElementById(id);

// Parse an SVG picture from the server and remove active content. Inside a page, SVG needs no xmlns.
export function picture(source) {
  const parsed = new DOMParser().parseFromString(source, "text/html").querySelector("svg");
  for (const element of parsed.querySelectorAll("script, foreignObject, style")) element.remove();
  return document.importNode(parsed, true);
}
