// The tables of rules and of the most limited keys.

import { byId, h, inUse, keyed, text } from "./dom.js";
import { count, exact, percent, rate } from "./format.js";
import { setSpark, spark } from "./charts.js";
import { idOf } from "./history.js";
import { openKey } from "./key.js";

const most = 50; // rows of a table

const filters = { rules: byId("rules-filter"), keys: byId("keys-filter") };
for (const filter of Object.values(filters)) {
	filter.addEventListener("input", () => document.dispatchEvent(new Event("redraw")));
}

// nameOf is how a rule is called where there are several domains or one.
function nameOf({ domain, rule }, domains) {
	if (!rule) return domain ? `${domain}, without a rule` : "without a rule";
	return domains > 1 ? `${domain} / ${rule}` : rule;
}

// found returns the items in which each word of the filter occurs, and at most so
// many of them as a table has rows.
function found(items, filter, textOf) {
	const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
	const all = words.length === 0 ? items : items.filter((item) => {
		const text = textOf(item).toLowerCase();
		return words.every((word) => text.includes(word));
	});
	return { all: all.length, rows: all.slice(0, most) };
}

const counted = (shown, all) => (shown < all ? `${exact(shown)} of ${exact(all)}` : exact(all));

// settled keeps rows where they are while somebody is about to choose one.
function settled(body, items, keyOf) {
	if (!inUse(body)) return items;
	const places = new Map([...(body.kept?.keys() ?? [])].map((key, i) => [key, i]));
	return items.toSorted((a, b) => (places.get(keyOf(a)) ?? Infinity) - (places.get(keyOf(b)) ?? Infinity));
}

// none is the row of a table that has no other.
const none = (columns, words) => h("tr", { class: "none" }, h("td", { colspan: columns }, words));

function showRows(body, { rows, all }, keyOf, make, update, empty) {
	const items = all === 0 ? [null] : settled(body, rows, keyOf);
	keyed(body, items, (item) => (item ? keyOf(item) : "none"),
		(item) => (item ? make(item) : none(6, "")),
		(element, item) => (item ? update(element, item) : text(element.firstChild, empty)));
}

function ruleRow(rule) {
	const pick = () => document.dispatchEvent(new CustomEvent("pick-rule", { detail: rule.id }));
	return h("tr", {},
		h("th", { scope: "row" }, h("button", { type: "button", class: "link", title: "Show its decisions a second", onclick: pick }, rule.name)),
		h("td", { class: "code" }), h("td", { class: "num" }), h("td", { class: "num" }),
		h("td", { class: "wide" }, spark()), h("td", { class: "num wide" }));
}

function updateRule(row, rule, history) {
	const [, limit, allowed, denied, line, total] = row.children;
	text(limit, rule.shadow ? `${rule.limit} (shadow)` : rule.limit);
	text(allowed, rate(rule.allowed_per_s));
	text(denied, rate(rule.denied_per_s));
	denied.classList.toggle("denied", rule.denied_per_s > 0);
	setSpark(line.firstChild, history.times, history.range(), [history.line(`allowed ${rule.id}`), history.line(`denied ${rule.id}`)]);
	text(total, count(rule.denied));
	total.title = `${exact(rule.denied)} denied, ${exact(rule.allowed)} allowed since start`;
}

function keyRow(key) {
	const name = key.redacted
		? h("span", { class: "key", title: "Keys are redacted on this server" }, key.key)
		: h("button", { type: "button", class: "link key", title: "Show its window", onclick: () => openKey(key) }, key.key || "(empty)");
	return h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "wide" }), h("td", { class: "num denied" }), h("td", { class: "num" }),
		h("td", { class: "wide" }, h("meter", { min: 0, max: 1, "aria-hidden": "true" }), h("span", { class: "num share" })));
}

// about says how much too high a count may be.
const about = (error) => (error > 0 ? `at most ${exact(Math.ceil(error))} too high` : "exact");

function updateKey(row, key, domains, limits) {
	const [, rule, denied, allowed, share] = row.children;
	text(rule, `${nameOf(key, domains)} ${limits.get(idOf(key)) ?? ""}`);
	text(denied, count(key.denied));
	denied.title = about(key.denied_error);
	text(allowed, count(key.allowed));
	allowed.title = about(key.allowed_error);
	share.firstChild.value = key.denied / Math.max(1, key.denied + key.allowed);
	text(share.lastChild, percent(key.denied, key.denied + key.allowed));
}

// showTables shows a state's rules and keys as the filters want them.
export function showTables(state, history) {
	const domains = new Set(state.rules.map(({ domain }) => domain)).size;
	const rules = state.rules.map((rule) => ({ ...rule, id: idOf(rule), name: nameOf(rule, domains) }));
	const shownRules = found(rules, filters.rules, ({ name, limit }) => `${name} ${limit}`);
	showRows(byId("rules-rows"), shownRules, ({ id }) => id, ruleRow, (row, rule) => updateRule(row, rule, history),
		rules.length === 0 ? "No config is loaded: callers say what their limits are." : "No rule has this in its name or limit.");
	text(byId("rules-count"), counted(shownRules.rows.length, shownRules.all));

	const limits = new Map(rules.map(({ id, limit }) => [id, limit]));
	const shownKeys = found(state.hot, filters.keys, (key) => `${key.key} ${nameOf(key, domains)}`);
	showRows(byId("keys-rows"), shownKeys, (key) => `${idOf(key)} ${key.key}`, keyRow, (row, key) => updateKey(row, key, domains, limits),
		state.hot.length === 0 ? "Nothing has been counted yet." : "None of the most limited keys has this in it.");
	text(byId("keys-count"), counted(shownKeys.rows.length, shownKeys.all));
	text(byId("keys-note"), state.hot.length > 0 ? "Counts are of the last minutes: they halve each minute, and may be a little too high." : "");
	return rules;
}
