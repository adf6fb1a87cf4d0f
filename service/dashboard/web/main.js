// The page: every state of the server goes from here to the parts that show it.

import { Stream, call, onUnauthorized, token } from "./api.js";
import { byId, h, keyed, say, text } from "./dom.js";
import { Chart } from "./charts.js";
import { count, date, millis, rate } from "./format.js";
import { History } from "./history.js";
import { healthOf, lostHealth, showHealth, storeName } from "./health.js";
import { followKey } from "./key.js";
import { refreshOverrides } from "./overrides.js";
import { setDomains } from "./playground.js";
import { showTables } from "./tables.js";

const history = new History();
const charts = {
	decisions: new Chart(byId("decisions-chart"), [
		{ label: "Allowed", ink: "allowed", fill: true },
		{ label: "Denied", ink: "denied", dash: [6, 3] },
	], rate),
	latency: new Chart(byId("latency-chart"), [
		{ label: "Half are faster", ink: "ink" },
		{ label: "99 % are faster", ink: "degraded", dash: [6, 3] },
		{ label: "Store, 99 %", ink: "muted", dash: [2, 3] },
	], (ms) => (ms === 0 ? "0" : millis(ms).replace(" ms", ""))),
};
let latest;

// tiles are the numbers above the charts: a name, its value, its meaning.
function tilesOf({ totals, latency_ms: latency, store }) {
	return [
		["Allowed a second", rate(totals.allowed_per_s), `${count(totals.allowed)} since start`, "allowed"],
		["Denied a second", rate(totals.denied_per_s), `${count(totals.denied)} since start`, "denied"],
		["Decision takes", millis(latency?.p50), `99 % within ${millis(latency?.p99)}`],
		[`${storeName(store)} takes`, millis(store.latency_ms?.p50), `${store.latency_ms ? `99 % within ${millis(store.latency_ms.p99)}` : "no answers"}, ${count(store.in_flight)} in flight`],
		["Decided without the store", count(totals.degraded), "since start", totals.degraded > 0 ? "degraded" : ""],
		["Errors", count(totals.errors + store.errors), `${count(store.errors)} of the store`, totals.errors + store.errors > 0 ? "degraded" : ""],
	];
}

function showTiles(state) {
	keyed(byId("tiles"), tilesOf(state), ([name]) => name,
		([name]) => h("div", {}, h("dt", {}, name), h("dd"), h("dd", { class: "muted" })),
		(element, [, value, meaning, ink]) => {
			element.className = ink ? `tile ${ink}` : "tile";
			text(element.children[1], value);
			text(element.children[2], meaning);
		});
}

const peak = (line) => Math.max(0, ...line.map((value) => value ?? 0));

function showCharts() {
	const scope = byId("scope").value, suffix = scope && ` ${scope}`;
	const allowed = history.line(`allowed${suffix}`), denied = history.line(`denied${suffix}`);
	charts.decisions.show([history.times, allowed, denied], history.range());
	text(byId("decisions-peak"), `at most ${rate(peak(allowed))} allowed, ${rate(peak(denied))} denied in 5 minutes`);
	const p99 = history.line("p99");
	charts.latency.show([history.times, history.line("p50"), p99, history.line("store")], history.range());
	text(byId("latency-peak"), `99 % within ${millis(peak(p99))} at worst`);
}

function showScopes(rules) {
	const items = [{ id: "", name: "all rules" }, ...rules.map((rule) => ({ id: rule.id, name: rule.name }))];
	keyed(byId("scope"), items, ({ id }) => id, ({ id, name }) => h("option", { value: id }, name), () => {});
}

const stream = new Stream({
	state(state) {
		latest = state;
		history.push(state);
		showHealth(healthOf(state));
		text(byId("about"), `weir ${state.version}, up since ${date(state.started)}`);
		showTiles(state);
		const rules = showTables(state, history);
		showScopes(rules);
		showCharts();
		setDomains(state.rules);
		followKey(state);
	},
	lost(seconds, reason) {
		showHealth(lostHealth(seconds, reason));
	},
});

function choose(theme) {
	if (theme) document.documentElement.dataset.theme = theme;
	else delete document.documentElement.dataset.theme;
	for (const chart of Object.values(charts)) chart.draw();
}

byId("theme").addEventListener("change", ({ target }) => {
	localStorage.setItem("weir-theme", target.value);
	choose(target.value);
});
byId("theme").value = localStorage.getItem("weir-theme") ?? "";
choose(byId("theme").value);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => choose(byId("theme").value));

byId("scope").addEventListener("change", showCharts);
byId("reconnect").addEventListener("click", () => stream.connect());
document.addEventListener("pick-rule", ({ detail }) => {
	byId("scope").value = detail;
	showCharts();
	byId("scope").focus();
});
document.addEventListener("redraw", () => latest && showTables(latest, history));

const asksToken = byId("token-dialog");

onUnauthorized((message) => {
	if (token.get()) text(byId("token-error"), message);
	token.forget();
	byId("forget").hidden = true;
	showHealth({ level: "lost", title: "Token wanted", text: "The server tells nothing without one." });
	if (!asksToken.open) asksToken.showModal();
});
byId("token").addEventListener("submit", (event) => {
	event.preventDefault();
	token.set(byId("token-value").value.trim());
	byId("token").reset();
	text(byId("token-error"), "");
	asksToken.close();
	begin();
});
byId("forget").addEventListener("click", () => {
	token.forget();
	location.reload();
});

function begin() {
	byId("forget").hidden = !token.get();
	stream.connect();
	refreshOverrides().catch((error) => error.status !== 401 && say(error.message));
}

begin();
setInterval(() => document.hidden || asksToken.open || refreshOverrides().catch(() => {}), 30e3); // others make them too
