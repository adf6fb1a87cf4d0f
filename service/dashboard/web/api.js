// The admin API: calls, the stream of states, and the token that both send.

const tokenKey = "weir-token";
const silence = 10e3; // a stream that says nothing for so long, in ms, is taken for dead
const longestWait = 30e3; // between tries to connect, in ms

export const token = {
	get: () => sessionStorage.getItem(tokenKey),
	set: (value) => sessionStorage.setItem(tokenKey, value),
	forget: () => sessionStorage.removeItem(tokenKey),
};

// Refused is an answer that is no success, in the server's own words.
export class Refused extends Error {
	constructor(status, message) {
		super(message);
		this.status = status;
	}
}

async function ask(path, options = {}) {
	const headers = { Accept: "application/json", ...options.headers };
	if (token.get()) headers.Authorization = `Bearer ${token.get()}`;
	const answer = await fetch(path, { ...options, headers, cache: "no-store", credentials: "omit" });
	if (answer.ok) return answer;
	const problem = await answer.json().catch(() => ({}));
	throw new Refused(answer.status, problem.detail || problem.title || `the server answered ${answer.status}`);
}

// unauthorized is called when the server wants another token.
let unauthorized = () => {};
export const onUnauthorized = (listener) => (unauthorized = listener);

// call returns what a path answers; a body is sent as JSON. It throws Refused, or
// a TypeError when nobody answers.
export async function call(method, path, body) {
	const options = { method };
	if (body !== undefined) Object.assign(options, { body: JSON.stringify(body), headers: { "Content-Type": "application/json" } });
	try {
		return await (await ask(path, options)).json();
	} catch (error) {
		if (error.status === 401) unauthorized(error.message);
		throw error instanceof Refused ? error : new Error("The server does not answer.");
	}
}

// read calls listen with the data of each event, until the stream ends.
async function read(body, alive, listen) {
	const reader = body.pipeThrough(new TextDecoderStream()).getReader();
	for (let rest = ""; ;) {
		const { value, done } = await reader.read();
		if (done) return;
		alive();
		const events = (rest + value).split(/\r?\n\r?\n/);
		rest = events.pop();
		for (const event of events) {
			const data = event.split(/\r?\n/).filter((line) => line.startsWith("data:")).map((line) => line.slice(5).trimStart());
			if (data.length > 0) listen(JSON.parse(data.join("\n")));
		}
	}
}

// Stream follows the states of the server for as long as the page lives, also
// through lost connections. It calls state(state), and lost(seconds, reason) when
// there is none and the next try is so far off.
export class Stream {
	constructor({ state, lost }) {
		Object.assign(this, { state, lost, failures: 0 });
	}

	// connect tries at once, whatever was going on before.
	connect() {
		clearTimeout(this.retry);
		this.current?.abort();
		this.follow((this.current = new AbortController()));
	}

	async follow(current) {
		let watchdog;
		const alive = () => {
			clearTimeout(watchdog);
			watchdog = setTimeout(() => current.abort(), silence);
		};
		let reason = "";
		try {
			alive();
			const answer = await ask("api/events", { signal: current.signal, headers: { Accept: "text/event-stream" } });
			await read(answer.body, alive, (state) => {
				if (this.current !== current) return;
				this.failures = 0;
				try {
					this.state(state);
				} catch (error) {
					reportError(error); // of the page: the connection is well
				}
			});
		} catch (error) {
			if (this.current === current && error.status === 401) return unauthorized(error.message);
			if (error instanceof Refused) reason = error.message;
		} finally {
			clearTimeout(watchdog);
		}
		if (this.current === current) this.later(reason);
	}

	// later waits twice as long after each failure, and not as long as everybody else.
	later(reason) {
		const wait = Math.min(longestWait, 1000 * 2 ** this.failures++) * (0.75 + Math.random() / 2);
		const due = Date.now() + wait;
		const tick = () => {
			const left = due - Date.now();
			if (left <= 0) return this.connect();
			this.lost(Math.ceil(left / 1000), reason);
			this.retry = setTimeout(tick, Math.min(left, 1000));
		};
		tick();
	}
}
