// The window of a key as a picture. What can be counted is drawn as it happened:
// a tick for what was admitted at a time, moving left until it leaves the window,
// and above the ticks how they add up towards the limit. Of the other algorithms
// what is used, and how it will fall, is drawn.

import { h, s } from "./dom.js";
import { exact, span } from "./format.js";

const height = 168, lane = 26, left = 10, right = 10, top = 22, foot = 20;
const bottom = height - foot - lane; // of the staircase

// live returns the parts of a timeline that have not left the window, oldest
// first, elapsed ms after the server was asked: {age, half, units}, their units
// taken half ms around an age.
export function live(key, elapsed) {
	return key.timeline
		.map(({ from_ms: from, to_ms: to, units }) => ({ age: (from + to) / 2 + elapsed, half: (to - from) / 2, units }))
		.filter(({ age, units }) => units > 0 && age < key.window_ms)
		.sort((a, b) => b.age - a.age);
}

// used returns how many units count, elapsed ms after the server was asked.
export function used(key, elapsed) {
	if (key.countable) return elapsed === 0 ? key.used : Math.min(key.used, live(key, elapsed).reduce((sum, part) => sum + part.units, 0));
	if (elapsed >= key.reset_after_ms) return 0;
	return key.algorithm === "fixed-window" ? key.used : Math.ceil(key.used * (1 - elapsed / key.reset_after_ms));
}

// describe says in words what the picture shows.
export function describe(key, elapsed) {
	const n = used(key, elapsed), left = Math.max(0, key.capacity - n);
	const wait = Math.max(0, key.next_free_ms - elapsed), reset = Math.max(0, key.reset_after_ms - elapsed);
	const parts = [`${key.algorithm === "sliding-counter" ? "About " : ""}${exact(n)} of ${exact(key.capacity)} used`];
	if (left > 0) parts.push(`${exact(left)} left`);
	else parts.push(wait > 0 ? `the next slot frees in ${span(wait)}` : "a slot frees now");
	if (n > 0 && reset > 0) parts.push(`unused again in ${span(reset)}`);
	return `${parts.join("; ")}.`;
}

// frame has what both pictures have: the limit as a line, and the ends of time.
function frame(width, label, y, limit, ends, ...content) {
	const line = y(limit);
	return s("svg", { class: "window", role: "img", "aria-label": label, width, height, viewBox: `0 0 ${width} ${height}` },
		...content,
		s("line", { class: "limit", x1: left, x2: width - right, y1: line, y2: line }),
		s("text", { class: "limit", x: width - right, y: line - 6, "text-anchor": "end" }, `limit ${exact(limit)}`),
		s("line", { class: "ground", x1: left, x2: width - right, y1: height - foot, y2: height - foot }),
		s("text", { x: left, y: height - 5 }, ends[0]),
		s("text", { x: width - right, y: height - 5, "text-anchor": "end" }, ends[1]));
}

// log draws what is remembered: ticks, and how they add up.
function log(key, elapsed, width) {
	const parts = live(key, elapsed), most = Math.max(key.capacity, key.used, 1), tallest = Math.max(1, ...parts.map(({ units }) => units));
	const x = (age) => width - right - (age / key.window_ms) * (width - left - right);
	const y = (units) => bottom - (units / most) * (bottom - top);
	let sum = 0, path = `M${left} ${bottom}`;
	for (const { age, units } of parts) path += `H${x(age).toFixed(1)}V${y((sum += units)).toFixed(1)}`;
	path += `H${width - right}V${bottom}Z`;
	const wait = key.next_free_ms - elapsed, next = wait > 0 ? x(key.window_ms - wait) : null;
	return frame(width, describe(key, 0), y, key.capacity, [`leaves after ${span(key.window_ms)}`, "now"],
		s("path", { class: "used", d: path }),
		next !== null && s("line", { class: "next", x1: next, x2: next, y1: top, y2: height - foot }),
		next !== null && s("path", { class: "next", d: `M${left + 2} ${bottom + 6}l7 -4v8zM${left + 8} ${bottom + 6}H${next}` }),
		...parts.map(({ age, half, units }) => s("line", {
			class: wait > 0 && Math.abs(key.window_ms - wait - age) <= half ? "tick first" : "tick",
			x1: x(age), x2: x(age), y1: height - foot, y2: height - foot - 6 - (units / tallest) * (lane - 12),
		})));
}

// fall draws how what is used will fall until nothing of it is left.
function fall(key, elapsed, width) {
	const until = Math.max(1, key.reset_after_ms), most = Math.max(key.capacity, key.used, 1), end = width - right;
	const x = (ms) => left + (Math.min(ms, until) / until) * (end - left);
	const y = (units) => bottom + lane - (units / most) * (bottom + lane - top);
	const path = key.algorithm === "fixed-window" ? `M${left} ${y(key.used)}H${end}V${y(0)}` : `M${left} ${y(key.used)}L${end} ${y(0)}`;
	return frame(width, describe(key, 0), y, key.capacity, ["when last asked", `in ${span(until)}`],
		s("path", { class: "used", d: `${path}H${left}Z` }),
		key.next_free_ms > 0 && s("line", { class: "next", x1: x(key.next_free_ms), x2: x(key.next_free_ms), y1: top, y2: height - foot }),
		s("line", { class: "tick", x1: x(elapsed), x2: x(elapsed), y1: top, y2: height - foot }),
		s("text", { x: Math.min(x(elapsed) + 5, end - 30), y: height - foot - 6 }, "now"));
}

// picture draws a key as of elapsed ms after the server was asked.
export const picture = (key, elapsed, width) => (key.countable ? log : fall)(key, elapsed, width);

// timelineTable is the picture for who does not see it.
export function timelineTable(key) {
	const rows = live(key, 0).reverse().map(({ age, units }) => h("tr", {},
		h("td", {}, `${span(age)} ago`), h("td", { class: "num" }, exact(units)), h("td", {}, `in ${span(key.window_ms - age)}`)));
	return h("details", {}, h("summary", {}, "As a table"),
		h("table", {}, h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Admitted"), h("th", { scope: "col", class: "num" }, "Units"), h("th", { scope: "col" }, "Leaves"))),
			h("tbody", {}, ...rows)));
}
