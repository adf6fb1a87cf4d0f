// Numbers and times as the reader's language writes them.

const whole = new Intl.NumberFormat(undefined, { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat(undefined, { notation: "compact", maximumFractionDigits: 1 });
const tenth = new Intl.NumberFormat(undefined, { maximumFractionDigits: 1 });
const fine = new Intl.NumberFormat(undefined, { maximumSignificantDigits: 2 });
const percents = new Intl.NumberFormat(undefined, { style: "percent", maximumFractionDigits: 0 });
const clockTime = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const dateTime = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "short" });
const list = new Intl.ListFormat(undefined, { type: "conjunction" });

export const count = (n) => (n < 1e6 ? whole.format(n) : short.format(n));
export const exact = (n) => whole.format(n);
export const rate = (n) => (n >= 100 ? count(n) : tenth.format(n));
export const percent = (part, all) => (all > 0 ? percents.format(part / all) : "–");
export const at = (seconds) => clockTime.format(seconds * 1000);
export const date = (text) => dateTime.format(new Date(text));
export const and = (names) => list.format(names);

// millis writes a latency in milliseconds; null and 0 are none.
export const millis = (ms) => (!ms ? "–" : `${ms < 10 ? fine.format(ms) : whole.format(ms)} ms`);

const units = [["day", 86400e3], ["hour", 3600e3], ["minute", 60e3], ["second", 1e3]];
const formats = new Map(units.map(([unit]) => [unit, new Intl.NumberFormat(undefined, { style: "unit", unit, unitDisplay: "narrow" })]));
const seconds = new Intl.NumberFormat(undefined, { style: "unit", unit: "second", unitDisplay: "narrow", maximumFractionDigits: 1 });

// span writes a duration in milliseconds by its two largest units.
export function span(ms) {
	if (ms < 1) return `${fine.format(ms)} ms`;
	if (ms < 1000) return `${whole.format(Math.ceil(ms))} ms`;
	if (ms < 10e3) return seconds.format(Math.ceil(ms / 100) / 10);
	ms = Math.ceil(ms / 1000) * 1000;
	const first = units.findIndex(([, length]) => ms >= length);
	return units.slice(first, first + 2).map(([unit, length]) => {
		const n = Math.floor(ms / length);
		ms -= n * length;
		return n > 0 ? formats.get(unit).format(n) : "";
	}).filter(Boolean).join(" ");
}
