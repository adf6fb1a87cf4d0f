// What was seen in the last five minutes, a point for each state.

const span = 300; // seconds
const gap = 3; // seconds without a state that a line is broken by

// idOf names a rule within all domains.
export const idOf = ({ domain, rule }) => JSON.stringify([domain, rule]);

export class History {
	constructor() {
		this.times = [];
		this.lines = new Map(); // a line by its name; each as long as times
	}

	// push adds a state; one that is older than the last, from a server whose clock
	// was set back, makes a new beginning.
	push(state) {
		const now = Date.parse(state.now) / 1000, last = this.times.at(-1);
		if (now <= last) {
			this.times = [];
			this.lines.clear();
		} else if (now - last > gap) {
			this.add(last + 1, {});
		}
		const { totals, latency_ms: latency, store } = state;
		const values = { allowed: totals.allowed_per_s, denied: totals.denied_per_s, p50: latency?.p50 || null, p99: latency?.p99 || null, store: store.latency_ms?.p99 };
		for (const rule of state.rules) {
			values[`allowed ${idOf(rule)}`] = rule.allowed_per_s;
			values[`denied ${idOf(rule)}`] = rule.denied_per_s;
		}
		this.add(now, values);
	}

	add(time, values) {
		this.times.push(time);
		for (const name of Object.keys(values)) {
			if (!this.lines.has(name)) this.lines.set(name, Array(this.times.length - 1).fill(null));
		}
		for (const [name, line] of this.lines) line.push(values[name] ?? null);
		const old = this.times.findIndex((t) => t >= time - span);
		this.times.splice(0, old);
		for (const [name, line] of this.lines) {
			line.splice(0, old);
			if (line.every((value) => value === null)) this.lines.delete(name);
		}
	}

	// line returns the points of a name, null where there is none.
	line(name) {
		return this.lines.get(name) ?? this.times.map(() => null);
	}

	// range is the time that charts show, in seconds.
	range() {
		const now = this.times.at(-1) ?? Date.now() / 1000;
		return [now - span, now];
	}
}
