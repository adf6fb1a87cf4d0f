// Lines over the last five minutes: large ones by uPlot, small ones as SVG.

import uPlot from "./vendor/uplot/uPlot.esm.js";
import { h, s, text } from "./dom.js";
import { at } from "./format.js";

// color resolves a colour of the style sheet for a canvas, in the theme in force.
function color(name) {
	const probe = h("span", { class: `ink-${name}`, hidden: true });
	document.body.append(probe);
	const value = getComputedStyle(probe).color;
	probe.remove();
	return value;
}

const height = 190;

// Chart draws lines {label, ink, dash?, fill?} into an element, and a legend under
// them; write(value) is the text of a value.
export class Chart {
	constructor(parent, lines, write) {
		const now = Date.now() / 1000;
		Object.assign(this, { parent, lines, write, range: [now - 300, now], data: [[], ...lines.map(() => [])] });
		this.values = lines.map(() => h("span", { class: "num" }));
		this.when = h("li", { class: "muted" });
		parent.after(h("ul", { class: "legend" }, lines.map(({ label, ink, dash }, i) => h("li", {}, swatch(ink, dash), ` ${label} `, this.values[i])), this.when));
		this.draw();
		new ResizeObserver(() => this.plot.setSize({ width: this.width(), height })).observe(parent);
	}

	width() {
		return Math.max(200, this.parent.clientWidth);
	}

	// draw makes the chart anew, in the colours of the theme.
	draw() {
		this.plot?.destroy();
		const axis = { stroke: color("muted"), grid: { stroke: color("line"), width: 1 }, ticks: { show: false }, font: "12px system-ui, sans-serif" };
		this.plot = new uPlot({
			width: this.width(),
			height,
			padding: [10, 26, 0, 0],
			legend: { show: false },
			hooks: { setCursor: [() => this.tell()] },
			cursor: { drag: { x: false, y: false }, points: { size: 6 } },
			scales: { x: { time: true, range: () => this.range }, y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
			axes: [
				{ ...axis, values: (_, times) => times.map(at), size: 28, space: 90 },
				{ ...axis, values: (_, values) => values.map(this.write), size: 48, space: 36 },
			],
			series: [
				{},
				...this.lines.map(({ ink, dash, fill }) => ({ dash, stroke: color(ink), width: 1.75, points: { show: false }, fill: fill && color(`${ink}-wash`) })),
			],
		}, this.data, this.parent);
	}

	// show draws points: the times, then the values of each line.
	show(data, range) {
		Object.assign(this, { data, range });
		this.plot.setData(data);
		this.tell();
	}

	// tell writes the values under the pointer, or else the newest.
	tell() {
		const [times, ...lines] = this.data, pointed = this.plot?.cursor.idx;
		lines.forEach((line, i) => {
			const value = line[pointed ?? times.length - 1];
			text(this.values[i], value == null ? "–" : this.write(value));
		});
		text(this.when, pointed == null ? "" : `at ${at(times[pointed])}`);
	}
}

const swatch = (ink, dash) => s("svg", { class: `swatch ink-${ink}`, viewBox: "0 0 22 4", "aria-hidden": "true" },
	s("path", { d: "M0 2H22", "stroke-dasharray": dash?.join(" ") }));

// spark is a small picture of what was allowed and denied, beside numbers that
// tell the same.
export function spark() {
	return s("svg", { class: "spark", viewBox: "0 0 120 22", preserveAspectRatio: "none", "aria-hidden": "true" },
		s("path", { class: "allowed" }), s("path", { class: "denied" }));
}

// setSpark draws lines, on a scale of their own.
export function setSpark(svg, times, range, lines) {
	const most = Math.max(1e-9, ...lines.flat());
	for (const [i, path] of [...svg.children].entries()) {
		let d = "", pen = "M";
		lines[i].forEach((value, j) => {
			if (value == null) return (pen = "M");
			const x = ((times[j] - range[0]) / (range[1] - range[0])) * 120;
			d += `${pen}${x.toFixed(1)} ${(20.5 - (value / most) * 19).toFixed(1)}`;
			pen = "L";
		});
		path.setAttribute("d", d);
	}
}
