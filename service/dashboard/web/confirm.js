// The dialog before anything is changed.

import { byId, h, text } from "./dom.js";

// field is a labelled input: field("why", "Reason", {required: true}).
export const field = (name, label, props) => h("label", {}, `${label} `, h("input", { name, autocomplete: "off", spellcheck: "false", ...props }));

// choice is a labelled select.
export const choice = (name, label, values) => h("label", {}, `${label} `, h("select", { name }, ...values.map((value) => h("option", { value }, value))));

// reasons and times are what every override is asked for.
export const forAndWhy = () => [
	field("for", "For how long", { required: true, value: "1h", pattern: "(\\d+(\\.\\d+)?(ms|s|m|h|d|w))+", title: "such as 30m, 2h or 1d" }),
	field("why", "Reason, for the list and the log", { required: true, maxlength: 200 }),
];

// confirm asks, and does what is asked for once it is agreed to; act gets the
// values of the fields, and the dialog stays open with what it throws.
export function confirm({ title, words, fields = [], verb, act }) {
	const dialog = byId("confirm-dialog"), form = byId("confirm"), ok = byId("confirm-ok");
	text(byId("confirm-title"), title);
	text(byId("confirm-text"), words);
	text(byId("confirm-error"), "");
	text(ok, verb);
	byId("confirm-fields").replaceChildren(...fields);
	form.onsubmit = async (event) => {
		event.preventDefault();
		ok.disabled = true;
		try {
			await act(Object.fromEntries(new FormData(form)));
			dialog.close();
		} catch (error) {
			text(byId("confirm-error"), error.message);
		} finally {
			ok.disabled = false;
		}
	};
	byId("confirm-cancel").onclick = () => dialog.close();
	dialog.showModal();
}
