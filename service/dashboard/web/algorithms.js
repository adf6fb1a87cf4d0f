// The algorithms as weir has them, for a clock that only moves forward and units
// that are not given back: enough to compare what they make of the same
// requests. internal/algo is the specification, and a test holds this to it.
//
// Times are whole microseconds. A limit is {max, window, burst, buckets, epoch}.

const longestWait = 2 ** 52;

// A product of two numbers may pass 2^53, so it is made of big integers.
function mulDivFloor(a, b, c, d) {
	const n = BigInt(a) * BigInt(b) + BigInt(c), by = BigInt(d);
	const q = n / by;
	return q >= BigInt(longestWait) ? [longestWait, 0] : [Number(q), Number(n % by)];
}

function mulDivCeil(a, b, c, d) {
	const [q, r] = mulDivFloor(a, b, -c, d);
	return r > 0 ? q + 1 : q;
}

// The log remembers the stamp of every unit; in buckets, units of one part share
// that of the newest of them.
const log = (partOf) => ({
	state: () => ({ cells: [] }),
	live(limit, state, now) {
		return state.cells.filter((cell) => cell.t > now - limit.window);
	},
	fits(limit, state, now, cost) {
		return this.used(limit, state, now) + cost <= limit.max;
	},
	used(limit, state, now) {
		return this.live(limit, state, now).reduce((sum, cell) => sum + cell.n, 0);
	},
	charge(limit, state, now, cost) {
		const part = partOf(limit), last = state.cells.at(-1);
		const same = last && Math.floor(last.t / part) === Math.floor(now / part);
		state.cells = state.cells.filter((cell) => cell === last || cell.t > now - limit.window);
		if (same) Object.assign(last, { t: now, n: last.n + cost });
		else state.cells.push({ t: now, n: cost });
	},
	decide(limit, state, now, cost) {
		const live = this.live(limit, state, now), used = this.used(limit, state, now);
		if (used === 0) return { remaining: limit.max, retry: 0, reset: 0 };
		const out = { remaining: Math.max(0, limit.max - used), retry: 0, reset: live.at(-1).t + limit.window - now };
		for (let left = used + cost - limit.max, i = 0; cost > 0 && left > 0; i++) {
			left -= live[i].n;
			out.retry = live[i].t + limit.window - now;
		}
		return out;
	},
});

const fixedWindow = {
	state: () => ({ start: -Infinity, n: 0 }),
	used: (limit, state, now) => (now >= state.start + limit.window ? 0 : state.n),
	fits(limit, state, now, cost) {
		return this.used(limit, state, now) + cost <= limit.max;
	},
	charge(limit, state, now, cost) {
		const used = this.used(limit, state, now);
		if (used === 0) state.start = limit.epoch ? Math.floor(now / limit.window) * limit.window : now;
		state.n = used + cost;
	},
	decide(limit, state, now, cost) {
		const used = this.used(limit, state, now);
		if (used === 0) return { remaining: limit.max, retry: 0, reset: 0 };
		const reset = state.start + limit.window - now;
		return { remaining: Math.max(0, limit.max - used), retry: cost > 0 ? reset : 0, reset };
	},
};

// The previous window's units are taken to be spread evenly over it.
const slidingCounter = {
	state: () => ({ start: 0, current: 0, previous: 0 }),
	at({ window }, { start, current, previous }, now) {
		if ((current === 0 && (previous === 0 || now >= start + window)) || now >= start + 2 * window) return { start: now, current: 0, previous: 0 };
		if (now >= start + window) return { start: start + window, current: 0, previous: current };
		return { start, current, previous };
	},
	used(limit, state, now) {
		const { start, current, previous } = this.at(limit, state, now);
		return current + mulDivCeil(previous, limit.window - (now - start), 0, limit.window);
	},
	fits(limit, state, now, cost) {
		return this.used(limit, state, now) + cost <= limit.max;
	},
	charge(limit, state, now, cost) {
		Object.assign(state, this.at(limit, state, now));
		state.current += cost;
	},
	// wait tells how far into a window the estimate of units has fallen to room.
	wait: (limit, units, room) => (units <= room ? 0 : limit.window - mulDivFloor(room, limit.window, 0, units)[0]),
	decide(limit, state, now, cost) {
		const { start, current, previous } = this.at(limit, state, now);
		if (current === 0 && previous === 0) return { remaining: limit.max, retry: 0, reset: 0 };
		const room = limit.max - current - cost, end = start + limit.window;
		const retry = room >= 0 ? start + this.wait(limit, previous, room) : end + this.wait(limit, current, limit.max - cost);
		return {
			remaining: Math.max(0, limit.max - this.used(limit, state, now)),
			retry: cost > 0 ? Math.max(0, retry - now) : 0,
			reset: (current > 0 ? end + limit.window : end) - now,
		};
	},
};

// What is owed drains evenly, max units a window.
const tokenBucket = {
	state: () => ({ t: 0, owed: 0, rem: 0 }),
	at(limit, state, now) {
		if (now <= state.t || state.owed === 0) return state;
		const [drained, rem] = mulDivFloor(now - state.t, limit.max, state.rem, limit.window);
		return drained >= state.owed ? { t: now, owed: 0, rem: 0 } : { t: now, owed: state.owed - drained, rem };
	},
	used(limit, state, now) {
		return this.at(limit, state, now).owed;
	},
	fits(limit, state, now, cost) {
		return this.used(limit, state, now) + cost <= limit.burst;
	},
	charge(limit, state, now, cost) {
		const { owed, rem } = this.at(limit, state, now);
		Object.assign(state, { t: now, owed: owed + cost, rem });
	},
	decide(limit, state, now, cost) {
		const { owed, rem } = this.at(limit, state, now);
		if (owed === 0) return { remaining: limit.burst, retry: 0, reset: 0 };
		const until = (units) => mulDivCeil(units, limit.window, rem, limit.max);
		return { remaining: Math.max(0, limit.burst - owed), retry: cost > 0 ? until(owed + cost - limit.burst) : 0, reset: until(owed) };
	},
};

// algorithms are all of them by their names in a config.
export const algorithms = {
	"sliding-log": log(() => 1),
	"sliding-buckets": log((limit) => Math.ceil(limit.window / limit.buckets)),
	"sliding-counter": slidingCounter,
	"fixed-window": fixedWindow,
	"token-bucket": tokenBucket,
};

// limiter returns {peek, take} of an unused key: functions of (now, cost) that
// tell {verdict, remaining, retry, reset}; the verdict is ok, deny or never.
export function limiter(name, limit) {
	const algorithm = algorithms[name], state = algorithm.state();
	const capacity = name === "token-bucket" ? limit.burst : limit.max;
	const ask = (now, cost, charge) => {
		const fits = algorithm.fits(limit, state, now, cost);
		if (fits && charge) algorithm.charge(limit, state, now, cost);
		const verdict = fits ? "ok" : cost > capacity ? "never" : "deny";
		return { verdict, ...algorithm.decide(limit, state, now, verdict === "deny" ? cost : 0) };
	};
	return { peek: (now, cost) => ask(now, cost, false), take: (now, cost) => ask(now, cost, true) };
}
