// What a key has used: its windows drawn, and what an operator can do about it.

import { call } from "./api.js";
import { choice, confirm, field, forAndWhy } from "./confirm.js";
import { byId, h, say, text } from "./dom.js";
import { describe, picture, timelineTable } from "./picture.js";
import { attributesText, putOverride } from "./overrides.js";
import { idOf } from "./history.js";

const dialog = byId("key-dialog"), body = byId("key-body");
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const often = 2000; // between looks at the server, in ms, while the key is in use

// shown is what the dialog is about: {query, name, keys, asked}, and for a key of
// the table {hot, allowed, used}: its name there, its count, and whether that rose.
let shown = null, ticking;

// openKey opens the dialog for a key of a state.
export function openKey(hot) {
	const query = hot.domain ? { domain: hot.domain, attributes: hot.attributes } : { key: hot.key, limit: "" };
	open({ query, name: hot.key, rule: hot.rule, hot: `${idOf(hot)} ${hot.key}`, allowed: hot.allowed });
}

// openQuery opens it for attributes of a domain.
export function openQuery(query) {
	open({ query, name: attributesText(query.attributes) || query.domain, rule: "" });
}

function open(what) {
	shown = { ...what, keys: [], asked: 0 };
	text(byId("key-title"), what.name);
	body.replaceChildren();
	const ruled = Boolean(what.query.domain);
	const few = ruled && Object.keys(what.query.attributes).length > 0; // else it would be everybody
	for (const id of ["key-block", "key-override"]) byId(id).hidden = !few;
	if (!dialog.open) dialog.showModal();
	clearInterval(ticking);
	ticking = setInterval(draw, calm.matches ? 1000 : 100);
	if (ruled) look();
	else askLimit();
}

// askLimit asks for what the server does not know of a key that has no rule.
function askLimit() {
	const form = h("form", {}, h("p", {}, "This key was checked without a rule. Its window is found by the limit that its caller sends."),
		h("div", { class: "fields" }, field("limit", "Limit", { required: true, placeholder: "5/minute" })), h("p", { class: "buttons" }, h("button", { class: "primary" }, "Show")));
	form.addEventListener("submit", (event) => {
		event.preventDefault();
		shown.query.limit = new FormData(form).get("limit");
		look();
	});
	body.replaceChildren(form);
}

// look asks the server, and makes a card for each rule that counts the key, the
// one that was clicked first.
async function look() {
	const asking = shown;
	if (!asking || asking.query.limit === "") return;
	Object.assign(asking, { asked: performance.now(), used: false });
	try {
		const { keys } = await call("POST", "api/inspect", asking.query);
		if (asking !== shown) return;
		shown.asked = performance.now();
		const opened = new Set([...body.querySelectorAll("details[open]")].map((details) => details.closest("section").dataset.id));
		shown.keys = keys.toSorted((a, b) => (b.rule === shown.rule) - (a.rule === shown.rule));
		body.replaceChildren(...(keys.length > 0 ? shown.keys.map((key) => card(key, opened)) : [h("p", {}, "No rule counts it.")]));
		draw();
	} catch (error) {
		if (asking === shown) body.replaceChildren(h("p", { class: "error", role: "alert" }, error.message));
	}
}

function card(key, opened) {
	const id = `${idOf(key)} ${key.key}`;
	const table = key.countable ? timelineTable(key) : null;
	if (table) table.open = opened.has(id);
	return h("section", { class: "card", "aria-label": key.rule || key.key, "data-id": id },
		h("h3", {}, key.rule || key.key, " ", h("span", { class: "code muted" }, key.limit), " ", !key.limit.includes(key.algorithm) && h("span", { class: "muted" }, key.algorithm)),
		h("p", { class: "words" }), h("div", { class: "picture" }), table);
}

// draw moves the pictures on to the present.
function draw() {
	const elapsed = performance.now() - shown.asked;
	body.querySelectorAll("section.card").forEach((section, i) => {
		const key = shown.keys[i], place = section.querySelector(".picture");
		text(section.querySelector(".words"), describe(key, elapsed));
		place.replaceChildren(picture(key, elapsed, Math.max(240, place.clientWidth)));
	});
}

// followKey looks again when a state says that the key was used: its count, which
// fades with time, has risen.
export function followKey(state) {
	const hot = shown?.hot && state.hot.find((key) => `${idOf(key)} ${key.key}` === shown.hot);
	if (!hot) return;
	shown.used ||= hot.allowed > shown.allowed;
	shown.allowed = hot.allowed;
	if (shown.used && shown.keys.length > 0 && performance.now() - shown.asked > often) look();
}

dialog.addEventListener("close", () => {
	clearInterval(ticking);
	shown = null;
});
byId("key-close").addEventListener("click", () => dialog.close());
byId("key-refresh").addEventListener("click", () => look());

byId("key-reset").addEventListener("click", () => {
	const rules = shown.keys.map(({ rule, key }) => rule || key).join(", ");
	const { query, name } = shown;
	confirm({
		title: `Reset ${name}`,
		words: `What has been used is forgotten, under every rule shown here${rules ? `: ${rules}` : ""}. This cannot be undone.`,
		verb: "Reset",
		async act() {
			const { reset } = await call("POST", "api/reset", query);
			say(reset > 0 ? `${name} is reset.` : `${name} had nothing to reset.`);
			look();
		},
	});
});

byId("key-block").addEventListener("click", () => {
	const { query, name } = shown;
	confirm({
		title: `Block ${name}`,
		words: `Every request of the domain ${query.domain} with ${attributesText(query.attributes) || "these attributes"} is denied.`,
		fields: forAndWhy(),
		verb: "Block",
		act: (values) => putOverride({ domain: query.domain, rule: "", attributes: query.attributes, deny: true, ...values }),
	});
});

byId("key-override").addEventListener("click", () => {
	const { query, name, keys } = shown;
	confirm({
		title: `Override ${name}`,
		words: "For a time another limit holds, for requests with these attributes, in place of the rule's.",
		fields: [choice("rule", "Rule", keys.map(({ rule }) => rule)), field("limit", "Limit", { required: true, placeholder: "1000/minute" }), ...forAndWhy()],
		verb: "Override",
		act: (values) => putOverride({ domain: query.domain, attributes: query.attributes, ...values }),
	});
});
