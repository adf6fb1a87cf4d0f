// Elements are made and changed here alone, from text that is never markup.

const svgNames = "http://www.w3.org/2000/svg";

function fill(element, props, children) {
	for (const [name, value] of Object.entries(props ?? {})) {
		if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
		else if (value === true) element.setAttribute(name, "");
		else if (value !== false && value != null) element.setAttribute(name, value);
	}
	element.append(...children.flat().filter((child) => child != null && child !== false));
	return element;
}

// h makes an element of HTML: h("td", {class: "num"}, "5"). What begins with
// "on" is a listener.
export const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);

// s makes an element of SVG.
export const s = (tag, props, ...children) => fill(document.createElementNS(svgNames, tag), props, children);

export const byId = (id) => document.getElementById(id);

// text sets the text of an element, and touches nothing if that is what it has.
export function text(element, value) {
	value = String(value);
	if (element.textContent !== value) element.textContent = value;
}

// keyed makes the children of parent those of items, in their order: make gives
// the element of a new item, update(element, item) brings one up to date. An
// element lives as long as its key is there, so that it keeps the focus.
export function keyed(parent, items, keyOf, make, update) {
	parent.kept ??= new Map();
	const focused = parent.contains(document.activeElement) ? document.activeElement : null;
	const keys = new Set(items.map(keyOf)), fresh = new Map();
	for (const [key, element] of parent.kept) if (!keys.has(key)) element.remove();
	let place = parent.firstElementChild;
	for (const item of items) {
		const key = keyOf(item), element = parent.kept.get(key) ?? make(item);
		update(element, item);
		fresh.set(key, element);
		if (element === place) place = place.nextElementSibling;
		else parent.insertBefore(element, place);
	}
	parent.kept = fresh;
	if (focused?.isConnected && document.activeElement !== focused) focused.focus({ preventScroll: true });
}

// inUse tells that somebody points at or has the focus in an element, so that
// its rows had better stay where they are.
export const inUse = (element) => element.matches(":hover") || element.contains(document.activeElement);

// say puts a sentence where screen readers hear it and everybody sees it: an open
// dialog silences what is outside of it.
export function say(sentence) {
	const news = byId("news");
	clearTimeout(say.timer);
	say.timer = setTimeout(() => {
		([...document.querySelectorAll("dialog[open]")].at(-1) ?? document.querySelector("footer")).append(news);
		text(news, sentence);
		say.timer = setTimeout(() => text(news, ""), 8000);
	}, 50);
}
