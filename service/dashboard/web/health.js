// How the server is, in plain words.

import { byId, text } from "./dom.js";
import { and, count, exact } from "./format.js";

export const storeName = ({ kind }) => ({ memory: "Memory", redis: "Redis" })[kind] ?? kind;

// healthOf returns {level, title, text}; the worst of what is the case.
export function healthOf({ ready, store, config }) {
	const name = storeName(store);
	if (!ready.ready) return { level: "down", title: "Not ready", text: `${ready.detail}.` };
	if (store.status !== "ok" || ready.store !== "ok") {
		const told = store.detail && store.detail !== "ok" ? store.detail : `${name} does not answer: each process decides by its share`;
		return { level: "degraded", title: "Degraded", text: `${told.replace(/\.$/, "")}.` };
	}
	if (config.refused) return { level: "degraded", title: "Config refused", text: `What was loaded before stays in force. ${config.refused}` };
	const rules = `${exact(config.rules)} ${config.rules === 1 ? "rule" : "rules"}`;
	const from = config.files.length > 0 ? ` from ${and(config.files)}` : "";
	const keeper = store.kind === "memory" ? "this process keeps the counts in memory" : `${name} answers`;
	return { level: "ok", title: "Serving", text: `${rules}${from}; ${keeper}.` };
}

export function lostHealth(seconds, reason) {
	return { level: "lost", title: "Connection lost", text: reason || "The server does not answer; what is shown is old.", again: `Next try in ${count(seconds)} s.` };
}

// showHealth writes only what has changed: screen readers hear a change of state,
// and not each second.
export function showHealth({ level, title, text: words, again = "" }) {
	byId("health").dataset.level = level;
	document.body.classList.toggle("stale", level === "lost");
	text(byId("health-title"), title);
	text(byId("health-text"), words);
	byId("reconnect").hidden = level !== "lost";
	if (again) text(byId("about"), again);
	document.title = level === "ok" ? "weir" : `${title} – weir`;
}
