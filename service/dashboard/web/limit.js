// Limits and durations as weir writes them: 100/30m, 5/minute, 10/s burst=20,
// 50000/h buckets=60. Times are in microseconds.

const lengths = {
	us: 1, "µs": 1, "μs": 1, ms: 1e3,
	s: 1e6, sec: 1e6, second: 1e6, seconds: 1e6,
	m: 60e6, min: 60e6, minute: 60e6, minutes: 60e6,
	h: 3600e6, hour: 3600e6, hours: 3600e6,
	d: 86400e6, day: 86400e6, days: 86400e6,
	w: 604800e6, week: 604800e6, weeks: 604800e6,
};

// parseDuration reads a unit, or a sum such as 1h30m or 1.5s; null if it is none.
export function parseDuration(text) {
	if (text in lengths) return lengths[text];
	if (text === "0") return 0;
	let total = 0;
	const rest = text.replace(/(\d+(?:\.\d+)?)([a-zµμ]+)/g, (part, number, unit) => {
		if (!(unit in lengths)) return part;
		total += Number(number) * lengths[unit];
		return "";
	});
	return rest === "" && text !== "" ? Math.round(total) : null;
}

// parseLimit returns {max, window, burst, buckets, epoch}, or throws an Error
// that says what to write. Which algorithm keeps it is left out of the text.
export function parseLimit(text) {
	const [, count, length, rest] = /^\s*(\d+)\/(\S+)((?:\s+\S+)*)\s*$/.exec(text) ?? [];
	const limit = { max: Number(count), window: parseDuration(length ?? ""), burst: 0, buckets: 100, epoch: false };
	if (!(limit.max >= 1 && limit.max <= 2 ** 31)) throw new Error("Write a limit such as 10/10s, 100/30m or 10/s burst=20");
	if (!(limit.window >= 1 && limit.window <= 366 * 86400e6)) throw new Error("After the slash write a duration or unit of at most 366d, as in 100/30m or 5/minute");
	for (const [, word, value] of (rest ?? "").matchAll(/(\S+?)(?:=(\d+))?(?=\s|$)/g)) {
		if (word === "burst" && value >= 1 && value <= 2 ** 31) limit.burst = Number(value);
		else if (word === "buckets" && value >= 1 && value <= 10000) limit.buckets = Number(value);
		else if (word === "epoch" && !value) limit.epoch = true;
		else throw new Error(`“${word}” is not a part of a limit; write it as in 10/s burst=20 or 50000/h buckets=60`);
	}
	limit.burst ||= limit.max;
	return limit;
}
