package frameworks

import (
	"fmt"
	"net/http"
	"net/netip"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/gofiber/fiber/v3"
	"github.com/gofiber/fiber/v3/middleware/adaptor"
	"github.com/gorilla/mux"
	"github.com/labstack/echo/v5"
	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/httplimit"
)

// perClient is the middleware of the page.
func perClient() middleware {
	limited := httplimit.Middleware(httplimit.Options{
		Rules: httplimit.Clients{}.Limit("site", weir.PerMinute(60)),
	})
	return limited
}

// greet is what every recipe serves.
func greet(w http.ResponseWriter, r *http.Request, user string) {
	httplimit.SetUsed(r.Context(), "letters", int64(len(user)))
	_, _ = fmt.Fprint(w, "hello ", user)
}

func netHTTP(limited middleware) http.Handler {
	hello := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { greet(w, r, r.PathValue("user")) })

	mux := http.NewServeMux()
	mux.Handle("GET /users/{user}", limited(hello))
	return mux
}

func chiRouter(limited middleware) http.Handler {
	hello := func(w http.ResponseWriter, r *http.Request) { greet(w, r, chi.URLParam(r, "user")) }

	r := chi.NewRouter()
	r.With(limited).Get("/users/{user}", hello)
	return r
}

func gorillaRouter(limited middleware) http.Handler {
	hello := func(w http.ResponseWriter, r *http.Request) { greet(w, r, mux.Vars(r)["user"]) }

	r := mux.NewRouter()
	r.HandleFunc("/users/{user}", hello)
	r.Use(limited)
	return r
}

func gorillaUser(r *http.Request) string {
	return mux.Vars(r)["user"]
}

func echoRouter(limited middleware) http.Handler {
	hello := func(c *echo.Context) error {
		greet(c.Response(), c.Request(), c.Param("user"))
		return nil
	}

	e := echo.New()
	e.Use(echo.WrapMiddleware(limited))
	e.GET("/users/:user", hello)
	return e
}

func ginHello(c *gin.Context) { greet(c.Writer, c.Request, c.Param("user")) }

func ginEngine(limited middleware) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	g := gin.New()
	g.GET("/users/:user", ginHello)
	return limited(g)
}

func ginRoute(limited middleware) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	g := gin.New()
	g.GET("/users/:user", ginLimit(limited), ginHello)
	return g
}

func ginLimit(limited func(http.Handler) http.Handler) gin.HandlerFunc {
	return func(c *gin.Context) {
		for _, p := range c.Params {
			c.Request.SetPathValue(p.Key, p.Value)
		}
		admitted := false
		limited(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			admitted, c.Request = true, r
			c.Next()
		})).ServeHTTP(c.Writer, c.Request)
		if !admitted {
			c.Abort()
		}
	}
}

func fiberApp(limited middleware) *fiber.App {
	hello := func(c fiber.Ctx) error {
		if httplimit.SetUsed(c.Context(), "letters", int64(len(c.Params("user")))) {
			return fiber.ErrTeapot // the page says that this cannot be
		}
		return c.SendString("hello " + c.Params("user"))
	}

	app := fiber.New()
	app.Use(adaptor.HTTPMiddleware(limited))
	app.Get("/users/:user", hello)
	return app
}

var quiet = fiber.ListenConfig{DisableStartupMessage: true}

// perUser are the rules of the page.
func perUser(plan func(user string) weir.Limit) func(*http.Request) []httplimit.Rule {
	clients := httplimit.Clients{Proxies: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}}
	rules := func(r *http.Request) []httplimit.Rule {
		user, _, ok := r.BasicAuth() // who has been authenticated before
		if !ok {
			return []httplimit.Rule{{Name: "guests", Request: weir.Request{Key: "guest:" + clients.Key(r), Limit: weir.PerMinute(10)}}}
		}
		return []httplimit.Rule{
			{Name: "per-user", Request: weir.Request{Key: "user:" + user, Limit: plan(user)}},
			{Name: "all", Request: weir.Request{Key: "all", Limit: weir.PerMinute(1000)}},
		}
	}
	return rules
}

// byTokens and its handler are the page's, too.
func byTokens(user string) []httplimit.Rule {
	return []httplimit.Rule{{
		Name:    "tokens",
		Request: weir.Request{Key: "tokens:" + user, Limit: weir.PerDay(100_000), Cost: 4_000},
		Settle:  httplimit.ByHandler,
	}}
}

func completion(complete func(*http.Request) (text string, tokens int64)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		text, tokens := complete(r)
		httplimit.SetUsed(r.Context(), "tokens", tokens)
		_, _ = fmt.Fprint(w, text)
	}
}
