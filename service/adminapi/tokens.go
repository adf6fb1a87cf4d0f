package adminapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/weirlimit/weir/service/wire"
)

// Token lets its owner in.
type Token struct {
	name  string
	sum   [sha256.Size]byte
	until time.Time // zero for ever
}

// mostTokens is how many a file may have: each request is compared with all.
const mostTokens = 1000

// NewToken returns a Token of a text that the log calls by name, and that never
// expires.
func NewToken(name, text string) Token { return Token{name: name, sum: sha256.Sum256([]byte(text))} }

// ParseTokens reads lines NAME TOKEN [EXPIRY], such as
//
//	alice 8a6f0c2f1b9d4e7a 2027-01-31T00:00:00Z
//
// at least one; empty ones and those that begin with # do not count. The error
// tells the line, and no token.
func ParseTokens(text string) ([]Token, error) {
	var tokens []Token
	at := make(map[[sha256.Size]byte]int)
	number := 0
	for line := range strings.Lines(text) {
		number++
		fields := strings.Fields(line)
		if len(fields) == 0 || strings.HasPrefix(fields[0], "#") {
			continue
		}
		t, err := parseToken(fields)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
		if first, ok := at[t.sum]; ok {
			return nil, fmt.Errorf("line %d: the token is that of line %d: give each its own", number, first)
		}
		at[t.sum] = number
		if tokens = append(tokens, t); len(tokens) > mostTokens {
			return nil, fmt.Errorf("line %d: there are more than %d tokens: take out those that have expired", number, mostTokens)
		}
	}
	if len(tokens) == 0 {
		return nil, fmt.Errorf("there is no token: write lines NAME TOKEN [EXPIRY], %s", tokenExample)
	}
	return tokens, nil
}

const tokenExample = "such as alice 8a6f0c2f1b9d4e7a 2027-01-31T00:00:00Z"

func parseToken(fields []string) (Token, error) {
	if len(fields) < 2 || len(fields) > 3 {
		return Token{}, fmt.Errorf("there are %d words: want NAME TOKEN [EXPIRY], %s", len(fields), tokenExample)
	}
	t := NewToken(fields[0], fields[1])
	if len(fields) == 3 {
		var err error
		if t.until, err = time.Parse(time.RFC3339, fields[2]); err != nil {
			// It may be a token in the wrong place, so it is not told.
			return t, fmt.Errorf("the expiry of %q, its third word, is no time: want one such as 2027-01-31T00:00:00Z", t.name)
		}
	}
	return t, nil
}

// ask is the header that a request needs.
const ask = "send it as the header Authorization: Bearer TOKEN"

// admit returns whose token a request has, or why that does not do.
func (a *api) admit(r *http.Request) (who string, refused *wire.Problem) {
	if a.Tokens == nil {
		return "local", nil
	}
	scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if given == "" || !strings.EqualFold(scheme, "Bearer") {
		return "", wire.NewProblem(http.StatusUnauthorized, "", "the admin token is missing: "+ask)
	}
	got := sha256.Sum256([]byte(given))
	var owner *Token
	tokens := a.Tokens()
	for i := range tokens {
		if subtle.ConstantTimeCompare(got[:], tokens[i].sum[:]) == 1 {
			owner = &tokens[i]
		}
	}
	switch {
	case owner == nil:
		return "", wire.NewProblem(http.StatusUnauthorized, "", "the admin token is wrong: "+ask)
	case !owner.until.IsZero() && !time.Now().Before(owner.until):
		return owner.name, wire.NewProblem(http.StatusUnauthorized, "", "the admin token has expired: have its line in the file of tokens renewed")
	}
	return owner.name, nil
}
