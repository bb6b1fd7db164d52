/** The developer portal. */

import { byId, fill, h, notice } from "../lib/dom.js";
import { logout, read, whenLocked } from "../lib/data.js";
import { frame } from "../lib/frame.js";
import { session } from "../lib/change.js";

const HINT = "Use the token that the operator of the APIs gave you.";

/** @type {import("../lib/frame.js").Entry} */
const CATALOGUE = { group: "APIs", path: "/", title: "Catalogue", icon: "apis", load: () => import("./catalogue.js") };

/** The pages of a user. @type {import("../lib/frame.js").Entry[]} */
const OWN = [
  { group: "Mine", path: "/subscriptions", title: "Subscriptions", icon: "subscriptions", load: () => import("./subscriptions.js") },
  { group: "Mine", path: "/keys", title: "Keys", icon: "keys", load: () => import("./keys.js") },
  { group: "Mine", path: "/usage", title: "Usage", icon: "analytics", load: () => import("./usage.js") },
];

async function start() {
  try {
    Object.assign(session, await read("session"));
  } catch (error) {
    fill(byId("main"), h("div", { class: "page" }, notice("bad", /** @type {Error} */ (error).message)));
    return;
  }
  const { show, lock } = frame({ site: "Developer portal", pages: session.user ? [CATALOGUE, ...OWN] : [CATALOGUE], api: () => import("./api.js") });
  whenLocked(() => lock(HINT));
  byId("logout").hidden = !session.user;
  byId("logout").addEventListener("click", () => logout("/"));
  const login = byId("login");
  login.hidden = Boolean(session.user) || !session.can_log_in;
  login.addEventListener("click", (event) => {
    event.preventDefault();
    login.hidden = true;
    lock(HINT);
  });
  fill(byId("facts"), session.user ? h("span", { class: "nowrap" }, session.user) : null);
  const needsLogin = location.pathname === "/login" || OWN.some(({ path }) => path === location.pathname);
  if (needsLogin && !session.user && session.can_log_in) {
    login.hidden = true;
    if (location.pathname === "/login") history.replaceState(null, "", "/");
    lock(HINT);
    return;
  }
  await show();
}

start();
