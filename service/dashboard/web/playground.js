// Which rules match a request, and what they would say.

import "./compare.js";
import { call } from "./api.js";
import { byId, h, keyed } from "./dom.js";
import { exact, span } from "./format.js";
import { openQuery } from "./key.js";

const reasons = {
	over_limit: "over its limit", never: "it can never pass", no_rule: "no rule matches",
	store_unavailable_allowed: "the store does not answer", store_unavailable_denied: "the store does not answer",
	store_unavailable_local: "decided by this process' share", denied_by_cache: "denied a moment ago", leased: "from units taken ahead",
};

// setDomains offers the domains that rules are for.
export function setDomains(rules) {
	const domains = [...new Set(rules.map(({ domain }) => domain).filter(Boolean))];
	keyed(byId("try-domain"), domains, (domain) => domain, (domain) => h("option", {}, domain), () => {});
}

// query reads the form. It throws an Error that says what to write.
function query() {
	const attributes = {};
	for (const line of byId("try-attributes").value.split("\n").map((line) => line.trim()).filter(Boolean)) {
		const [, name, value] = /^([^=]+)=(.*)$/.exec(line) ?? [];
		if (!name) throw new Error(`“${line}”: write an attribute as name=value`);
		attributes[name.trim()] = value.trim();
	}
	return { domain: byId("try-domain").value, attributes };
}

// says tells a decision in words.
function says({ allowed, remaining, retry_after_ms: retry, reason }) {
	const because = reasons[reason] ? `: ${reasons[reason]}` : "";
	if (allowed) return `Allowed${because}${reason === "no_rule" ? "" : `; ${exact(remaining)} left`}`;
	return `Denied${because}${retry > 0 ? `; again in ${span(retry)}` : ""}`;
}

function row({ rule, matches, why, limit, key, override, decision }) {
	return h("tr", { class: matches ? "" : "muted" },
		h("th", { scope: "row" }, rule),
		h("td", {}, matches ? "Matches" : "Does not match", why ? `: ${why}` : "",
			matches && limit && h("div", { class: "code" }, limit), override && h("div", { class: "degraded" }, `Override: ${override}`),
			matches && key && h("div", { class: "key muted" }, key)),
		h("td", { class: decision && !decision.allowed ? "denied" : "" }, decision ? says(decision) : "–"));
}

const failed = (message) => byId("try-result").replaceChildren(h("p", { class: "error" }, message));

byId("try").addEventListener("submit", async (event) => {
	event.preventDefault();
	try {
		const { allowed, reason, rules } = await call("POST", "api/explain", { ...query(), cost: Number(byId("try-cost").value) });
		byId("try-result").replaceChildren(
			h("p", { class: `verdict ${allowed ? "allowed" : "denied"}` }, `${allowed ? "It would be allowed" : "It would be denied"}${reasons[reason] ? `: ${reasons[reason]}` : ""}.`),
			h("div", { class: "scroll" }, h("table", {},
				h("thead", {}, h("tr", {}, ...["Rule", "Why", "Says"].map((name) => h("th", { scope: "col" }, name)))),
				h("tbody", {}, ...rules.map(row)))));
	} catch (error) {
		failed(error.message);
	}
});

byId("try-inspect").addEventListener("click", () => {
	try {
		openQuery(query());
	} catch (error) {
		failed(error.message);
	}
});
