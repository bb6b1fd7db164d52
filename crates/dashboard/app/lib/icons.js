/** The icons, drawn on a field of 24 by 24. */

const PATHS = {
  overview: "M4 13h6V4H4zM14 20h6v-9h-6zM4 20h6v-3H4zM14 7h6V4h-6z",
  analytics: "M4 20V10M10 20V4M16 20v-7M21 20H3",
  routes: "M6 4v9a4 4 0 0 0 4 4h8M14 13l4 4-4 4M6 4a1.500 1.500 0 1 0 0-.01",
  explain: "M11 18a7 7 0 1 1 0-14 7 7 0 0 1 0 14zM16.500 16.500 21 21M9.500 9a1.600 1.600 0 1 1 2.300 1.500c-.600.300-.800.700-.800 1.300M11 14v.01",
  upstreams: "M4 5h16v5H4zM4 14h16v5H4zM8 7.500v.01M8 16.500v.01",
  certificates: "M12 3 5 6v5c0 4.500 3 8 7 10 4-2 7-5.500 7-10V6zM9 12l2 2 4-4",
  policies: "M6 3h9l4 4v14H6zM14 3v5h5M9.500 13h6M9.500 17h6",
  apis: "M8 6 3 12l5 6M16 6l5 6-5 6M13.500 4l-3 16",
  consumers: "M9 11a3.500 3.500 0 1 0 0-7 3.500 3.500 0 0 0 0 7zM2.500 20c.500-4 3-6 6.500-6s6 2 6.500 6M16 4.500a3.500 3.500 0 0 1 0 6.200M18 14.500c2 .800 3.200 2.600 3.500 5.500",
  plans: "M4 5h16v14H4zM8 9h8M8 12.500h8M8 16h4",
  subscriptions: "M9 12l2.500 2.500L16 10M12 21a9 9 0 1 1 0-18 9 9 0 0 1 0 18z",
  keys: "M14.500 10.500a4.500 4.500 0 1 0-3.200 3.200L13 15.500h2v2h2v2h3.500V16zM9 9v.01",
  rotate: "M20 12a8 8 0 1 1-2.300-5.600M20 3v4.500h-4.500",
  problems: "M12 4 2.500 20h19zM12 10v4.500M12 17.500v.01",
  audit: "M8 4H5v17h14V4h-3M8 2.500h8v4H8zM8.500 11.500h7M8.500 15.500h4.500",
  search: "M10.500 17a6.500 6.500 0 1 1 0-13 6.500 6.500 0 0 1 0 13zM15.500 15.500 20 20",
  menu: "M4 7h16M4 12h16M4 17h16",
  close: "M6 6l12 12M18 6 6 18",
  light: "M12 16a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.500 1.500M17.500 17.500 19 19M5 19l1.500-1.500M17.500 6.500 19 5",
  dark: "M20 14.500A8.500 8.500 0 0 1 9.500 4 8.500 8.500 0 1 0 20 14.500z",
  system: "M3 5h18v11H3zM8 20h8M12 16v4",
  logout: "M14 4h5v16h-5M10 8l-4 4 4 4M6 12h9",
  good: "M12 21a9 9 0 1 1 0-18 9 9 0 0 1 0 18zM8 12.500l2.700 2.500L16 9.500",
  bad: "M12 21a9 9 0 1 1 0-18 9 9 0 0 1 0 18zM9 9l6 6M15 9l-6 6",
  warn: "M12 21a9 9 0 1 1 0-18 9 9 0 0 1 0 18zM12 7.500V13M12 16v.01",
  info: "M12 21a9 9 0 1 1 0-18 9 9 0 0 1 0 18zM12 11v5.500M12 7.700v.01",
  download: "M12 4v11M7.500 11 12 15.500 16.500 11M5 20h14",
  copy: "M9 9h11v11H9zM5 15H4V4h11v1",
  send: "M4 12 20 4l-5 16-3.500-6.500z",
};

/** @typedef {keyof typeof PATHS} IconName */

const NS = "http://www.w3.org/2000/svg";

/**
 * An icon, which screen readers skip.
 * @param {IconName} name
 * @param {number} [size]
 * @returns {SVGElement}
 */
export function icon(name, size = 18) {
  const svg = document.createElementNS(NS, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("width", String(size));
  svg.setAttribute("height", String(size));
  svg.setAttribute("fill", "none");
  svg.setAttribute("stroke", "currentColor");
  svg.setAttribute("stroke-width", "1.8");
  svg.setAttribute("stroke-linecap", "round");
  svg.setAttribute("stroke-linejoin", "round");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(NS, "path");
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}
