// The list of overrides, and how they are made.

import { call } from "./api.js";
import { byId, h, keyed, say, text } from "./dom.js";
import { date, exact } from "./format.js";
import { confirm } from "./confirm.js";

// attributesText writes attributes as a person reads them: user=alice, path=/x.
export const attributesText = (attributes) => Object.entries(attributes ?? {}).map(([name, value]) => `${name}=${value}`).join(", ");

const target = ({ domain, rule, attributes }) => `${attributesText(attributes)} in ${rule ? `${domain} / ${rule}` : domain}`;
const saying = ({ deny, limit }) => (deny ? "Blocked" : limit);

function row(override) {
	const remove = () => confirm({
		title: "Remove the override",
		words: `${saying(override)} for ${target(override)} ends now; the config's rules hold again.`,
		verb: "Remove",
		async act() {
			await call("DELETE", `api/overrides/${encodeURIComponent(override.id)}`);
			await refreshOverrides();
			say(`The override for ${target(override)} is removed.`);
		},
	});
	return h("tr", {},
		h("th", { scope: "row" }, h("span", { class: "key" }, target(override))),
		h("td", { class: override.deny ? "denied" : "code" }, saying(override)),
		h("td", {}, date(override.until)),
		h("td", { class: "wide" }, override.by),
		h("td", { class: "wide" }, override.why),
		h("td", { class: "num" }, h("button", { type: "button", "aria-label": `Remove the override for ${target(override)}`, onclick: remove }, "Remove")));
}

// refreshOverrides shows what is in force; it throws what call does.
export async function refreshOverrides() {
	const { overrides } = await call("GET", "api/overrides");
	overrides.sort((a, b) => Date.parse(b.created) - Date.parse(a.created));
	keyed(byId("overrides-rows"), overrides.length > 0 ? overrides : [{}], (override) => JSON.stringify(override),
		(override) => (override.id ? row(override) : h("tr", { class: "none" }, h("td", { colspan: 6 }, "None: the config's rules hold for everybody."))), () => {});
	text(byId("overrides-count"), overrides.length > 0 ? exact(overrides.length) : "");
}

// putOverride makes one, and shows it.
export async function putOverride(override) {
	const made = await call("POST", "api/overrides", override);
	await refreshOverrides().catch(() => {});
	say(`${made.deny ? "Blocked" : "Overridden"}: ${target(made)} until ${date(made.until)}.`);
}
