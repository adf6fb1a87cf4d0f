// What each algorithm makes of the same requests under one limit: simulated here,
// with nothing asked of the server.

import { byId, h, s, text } from "./dom.js";
import { exact, percent, span } from "./format.js";
import { algorithms, limiter } from "./algorithms.js";
import { parseDuration, parseLimit } from "./limit.js";

const windows = 3; // how long it is looked at
const mostRequests = 5000;

const time = (us) => (us % 1e6 === 0 ? `${us / 1e6}s` : us % 1e3 === 0 ? `${us / 1e3}ms` : `${us}us`);

// presets write requests for a limit, one a line.
const presets = {
	"Around the end of a window": ({ max, window }) => `1 at 0s\n${max} at ${time(Math.round(window * 0.95))}\n${max} at ${time(window)}`,
	"Steady, twice the limit": ({ max, window }) => `1 every ${time(Math.max(1, Math.round(window / max / 2)))}`,
	"Three limits at once, then calm": ({ max, window }) => `${3 * max} at 0s\n1 every ${time(Math.max(1, Math.round(window / max)))} from ${time(Math.round(window / 10))}`,
	"A burst every half window": ({ max, window }) => `${max} every ${time(Math.max(1, Math.round(window / 2)))}`,
};

// parseRequests reads lines such as "10 at 9.5s" and "1 every 250ms from 2s to 5s"
// into times, in order. It throws an Error that says what to write.
export function parseRequests(lines, end) {
	const times = [];
	for (const line of lines.split("\n").map((line) => line.trim()).filter(Boolean)) {
		const [, count, word, when, from, to] = /^(\d+)\s+(at|every)\s+(\S+?)(?:\s+from\s+(\S+))?(?:\s+to\s+(\S+))?$/.exec(line) ?? [];
		const [step, first, last] = [when, from ?? "0s", to ?? time(end)].map((text) => parseDuration(text ?? ""));
		if (step == null || first == null || last == null || (word === "every" && step === 0) || (word === "at" && (from || to))) {
			throw new Error(`“${line}”: write a line such as 10 at 9.5s or 1 every 250ms from 2s to 5s`);
		}
		const [start, stop, by] = word === "at" ? [step, step + 1, 1] : [first, Math.min(last, end), step];
		if (times.length + Number(count) * Math.ceil(Math.max(0, stop - start) / by) > mostRequests) throw new Error(`More than ${exact(mostRequests)} requests; send fewer, or for a shorter time`);
		for (let at = start; at < stop; at += by) for (let n = 0; n < count; n++) times.push(at);
	}
	return times.sort((a, b) => a - b);
}

// mostWithin returns the most of the times that lie in any interval of a length.
export function mostWithin(times, length) {
	let most = 0;
	for (let from = 0, to = 0; to < times.length; to++) {
		while (times[to] - times[from] >= length) from++;
		most = Math.max(most, to - from + 1);
	}
	return most;
}

// simulate returns the admitted and the denied of the times.
export function simulate(name, limit, times) {
	const { take } = limiter(name, limit), admitted = [], denied = [];
	for (const now of times) (take(now, 1).verdict === "ok" ? admitted : denied).push(now);
	return { admitted, denied };
}

const width = 560, column = 4, middle = 26, height = 48;

// stack counts the times that fall into each column of a picture.
function stack(times, end) {
	const columns = new Map();
	for (const t of times) {
		const x = Math.floor(((t / end) * width) / column) * column;
		columns.set(x, (columns.get(x) ?? 0) + 1);
	}
	return columns;
}

// lanes draws what was admitted upwards and what was denied downwards.
function lanes({ admitted, denied }, window, end, tallest) {
	const bars = (times, ink, sign) => {
		const d = [...stack(times, end)].map(([x, n]) => `M${x + column / 2} ${middle}v${(sign * (3 + (n / tallest) * (middle - 6))).toFixed(1)}`).join("");
		return s("path", { class: ink, d });
	};
	const marks = Array.from({ length: windows - 1 }, (_, i) => ((i + 1) * window * width) / end);
	return s("svg", { class: "lanes", viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", "aria-hidden": "true" },
		...marks.map((x) => s("line", { class: "mark", x1: x, x2: x, y1: 0, y2: height })),
		s("line", { class: "ground", x1: 0, x2: width, y1: middle, y2: middle }),
		bars(admitted, "admitted", -1), bars(denied, "denied", 1));
}

function show() {
	const error = byId("compare-error"), result = byId("compare-result");
	text(error, "");
	let limit, times;
	try {
		limit = parseLimit(byId("compare-limit").value);
		times = parseRequests(byId("compare-requests").value, windows * limit.window);
	} catch (problem) {
		text(error, problem.message);
		return result.replaceChildren();
	}
	const end = Math.max(windows * limit.window, (times.at(-1) ?? 0) + 1), tallest = Math.max(1, ...stack(times, end).values()), length = span(limit.window / 1e3);
	const bodies = Object.keys(algorithms).map((name) => {
		const outcome = simulate(name, limit, times), most = mostWithin(outcome.admitted, limit.window);
		return h("tbody", { "data-algorithm": name },
			h("tr", {}, h("th", { scope: "row" }, name), h("td", { class: "num" }, exact(outcome.admitted.length)), h("td", { class: "num" }, exact(outcome.denied.length)),
				h("td", { class: most > limit.max ? "num denied" : "num" }, most > limit.max ? `${exact(most)} (${percent(most, limit.max)})` : exact(most))),
			h("tr", {}, h("td", { colspan: 4 }, lanes(outcome, limit.window, end, tallest))));
	});
	result.replaceChildren(h("table", {},
		h("caption", {}, `${exact(times.length)} requests in ${span(end / 1e3)}: admitted above the line, denied below; a mark each ${length}.`),
		h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Algorithm"), h("th", { scope: "col", class: "num" }, "Admitted"),
			h("th", { scope: "col", class: "num" }, "Denied"), h("th", { scope: "col", class: "num" }, `Most in any ${length}`))), ...bodies));
}

function preset() {
	try {
		byId("compare-requests").value = presets[byId("compare-preset").value](parseLimit(byId("compare-limit").value));
	} catch {
		// show says what is wrong with the limit
	}
	show();
}

byId("compare-preset").append(...Object.keys(presets).map((name) => h("option", {}, name)));
byId("compare-preset").addEventListener("change", preset);
byId("compare-limit").addEventListener("input", preset);
byId("compare-requests").addEventListener("input", show);
byId("compare").addEventListener("submit", (event) => event.preventDefault());
preset();
