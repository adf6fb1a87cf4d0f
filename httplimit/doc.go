// Package httplimit enforces rate limits over HTTP and tells clients of them.
//
//	clients := httplimit.Clients{} // by address; behind proxies, say which
//	limited := httplimit.Middleware(httplimit.Options{
//		Rules: clients.Limit("site", weir.PerMinute(60)),
//	})
//	err := http.ListenAndServe(":8080", limited(mux))
//
// [Middleware] is a func(http.Handler) http.Handler for any router. Its Rules
// say, for each request, what it is held to: whose key, under which limit, for
// what cost, in which mode. All rules of a request are one decision, and one
// that is denied costs nothing anywhere. A request without rules is not
// limited.
//
//   - A [Rule] is a named weir.Request. Its [Settlement] says what it costs if
//     that is known only after the response: its bytes, or what the handler
//     has found out and says by [SetUsed].
//   - [Clients] tell who sent a request, past the proxies they are told to trust.
//   - [Fields] write the header fields that tell of limits, in a [Dialect];
//     [WriteDenial] writes the body of a denial.
package httplimit
