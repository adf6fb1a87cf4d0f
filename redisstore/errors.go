package redisstore

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"

	"github.com/redis/rueidis"
	"github.com/weirlimit/weir"
)

// treatment is what is done about a refusal.
type treatment uint8

const (
	unavailable treatment = iota // nothing: it passes by waiting
	settings                     // nothing: only other settings mend it
	byText                       // sent once more, with the script's text
	later                        // sent once more, a moment later
	redirected                   // sent where it says by rueidis, if it knows the Cluster; else as settings
	elsewhere                    // nothing for the call, but the client connects anew
)

// cause is what a refusal means.
type cause struct {
	treatment

	hint string // as in weir.StoreError
}

// replyCodes are the first words of replies with which a server says that it has done
// nothing. NOPERM has a hint of its own, and what passes by waiting has none.
var replyCodes = map[string]cause{
	"NOAUTH":      {settings, "give the password, as in redis://user:password@host"},
	"WRONGPASS":   {settings, "give the right user and password; a password alone is written redis://:password@host"},
	"NOPERM":      {settings, keyHint},
	"DENIED":      {settings, "the server takes connections from its own host only: give it a password, or set protected-mode no"},
	"WRONGTYPE":   {settings, foreignHint},
	"MOVED":       {redirected, movedHint},
	"ASK":         {redirected, movedHint},
	"CROSSSLOT":   {settings, movedHint},
	"READONLY":    {elsewhere, "the server is a replica: give the address of its primary, or have Sentinel or a Cluster name it"},
	"MASTERDOWN":  {elsewhere, "the server is a replica that has lost its primary: give the address of the primary"},
	"OOM":         {unavailable, "the server has reached its maxmemory: raise it, or give weir a server of its own"},
	"NOREPLICAS":  {unavailable, "fewer replicas are in reach than the server's min-replicas-to-write"},
	"MISCONF":     {unavailable, "the server cannot save to its disk and so refuses writes: its log says why"},
	"CLUSTERDOWN": {unavailable, slotHint},
	"BUSY":        {unavailable, "a script runs for too long on the server: if it is not weir's, SCRIPT KILL ends it"},
	"NOSCRIPT":    {byText, "the server has just lost the script; a proxy must send EVALSHA and EVAL for a key to one server"},
	"LOADING":     {},
	"TRYAGAIN":    {later, ""},
}

// replyPhrases are parts of such replies that have no code. The first that fits counts.
var replyPhrases = []struct {
	says string
	cause
}{
	{"unknown command 'EVAL", cause{settings, "the server runs no scripts: use plain mode"}},
	{"unknown command 'SENTINEL", cause{settings, "the server is no sentinel: leave out ?master_set, or give the addresses of the sentinels"}},
	{"unknown command 'CLUSTER", cause{settings, singleHint}},
	{"unknown command", cause{settings, "the server, or a proxy in front of it, lacks a command that weir needs"}},
	{"No such master with that name", cause{settings, "the sentinels watch no primary of that name: give one they do as ?master_set=NAME"}},
	{"cluster support disabled", cause{settings, singleHint}},
	{"executing the script can't access", cause{settings, keyHint}},
	{"executing the script can't run", cause{settings, "ACL LOG on the server names the command that its user lacks: allow it"}},
	{"invalid password", cause{settings, "give the right password"}},
	{"without any password configured", cause{settings, "the server wants no password: leave it out"}},
	{"no password is set", cause{settings, "the server wants no password: leave it out"}},
	{"DB index is out of range", cause{settings, "the server has fewer databases: choose a lower db"}},
	{"SELECT is not allowed in cluster mode", cause{settings, "a Cluster has db 0 only: leave the db out"}},
	{"data string too short", cause{settings, foreignHint}},
	{"offset must be 1 or greater", cause{settings, foreignHint}},
	{"max number of clients reached", cause{unavailable, "raise the server's maxclients"}},
}

const (
	foreignHint  = "weir did not write this key: choose another prefix or db"
	keyHint      = "allow the user the keys that begin with weir's prefix, as in ~weir:*"
	singleHint   = "the server is not a Cluster: give one address, or ?master_set=NAME for Sentinel"
	movedHint    = "the server is a node of a Cluster that weir could not recognize: allow the user +cluster|slots and +cluster|shards, and use no proxy and no socket"
	disputedHint = "the nodes of the Cluster do not agree on who serves the slot"
	certHint     = "the server refuses this side of TLS: if it wants a certificate, give one as ?cert=FILE&key=FILE"
	slotHint     = "no primary of the Cluster serves the slot: see CLUSTER INFO"
)

var (
	// errSentinel is what a client of a single server meets at a sentinel.
	errSentinel = errors.New("the server is a sentinel")
	// errSilent is added to a deadline that was not the caller's.
	errSilent = errors.New("the server is silent")
)

// fail returns what rueidis or a context reported as a *weir.StoreError, and
// leaves one as it is, and weir.ErrClosed. sent says that a command may have
// reached the server; it counts unless the error says that nothing was done.
func (l *link) fail(err error, sent bool) error {
	var done *weir.StoreError
	if err == nil || errors.As(err, &done) || errors.Is(err, weir.ErrClosed) {
		return err
	}
	e := &weir.StoreError{Server: l.endpoint.server, Unknown: sent, Err: err}
	var reply *rueidis.RedisError
	var op *net.OpError
	switch {
	case errors.As(err, &reply):
		e.Err = l.withoutSecrets(err)
		l.refused(e, plainReply(reply.Error()))
		if l.endpoint.sentinel && (strings.HasPrefix(reply.Error(), "NOAUTH") || strings.HasPrefix(reply.Error(), "WRONGPASS")) {
			e.Hint += "; the login to the sentinels is apart, as ?sentinel_user=USER&sentinel_password=PASSWORD"
		}
	case errors.Is(err, rueidis.ErrClosing) && l.closed():
		e.Err = fmt.Errorf("%w: %w", weir.ErrClosed, err)
	case errors.As(err, &op) && op.Op == "dial":
		e.Unknown, e.Hint = false, unreachable(err)
	case errors.Is(err, errSilent):
		e.Hint = silentHint(l.endpoint.option.TLSConfig != nil)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
	case errors.Is(err, errSentinel):
		e.Settings, e.Hint = true, "give the name of the primary it watches as ?master_set=NAME, or the address of that server"
	case errors.Is(err, rueidis.ErrNoSlot):
		e.Unknown, e.Hint = false, slotHint
	case insecure(e, err):
	case !sent:
		unlike(e, err, l.endpoint.option.TLSConfig != nil)
	}
	return e
}

// withoutSecrets returns a reply, or its text without the passwords if it has
// one: a server that does not know AUTH repeats its arguments.
func (l *link) withoutSecrets(err error) error {
	text := err.Error()
	for _, secret := range []string{l.endpoint.option.Password, l.endpoint.option.Sentinel.Password} {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	if text == err.Error() {
		return err
	}
	return errors.New(text)
}

// refused fills in what the text of a reply tells, if it is known.
func (l *link) refused(e *weir.StoreError, text string) {
	c, known := causeOf(text)
	if !known {
		return
	}
	e.Unknown, e.Settings, e.Hint = false, c.treatment == settings, c.hint
	if _, rest, ok := strings.Cut(text, "permissions to run the '"); ok {
		command, _, _ := strings.Cut(rest, "'")
		e.Hint = "allow the user this command: +" + command
	}
	switch {
	case c.treatment == elsewhere:
		l.renew()
	case c.treatment != redirected:
	case l.clustered() || l.closed():
		e.Hint = disputedHint
	default:
		e.Settings = true
	}
}

// plainReply returns the text of an error without what stands around it: rueidis
// has cut off ERR; up to Redis 6 the error of a script's command stands within one.
func plainReply(text string) string {
	text = strings.ReplaceAll(text, "`", "'") // up to Redis 6
	if before, inner, ok := strings.Cut(text, ": -"); ok && strings.HasPrefix(before, "Error running script") {
		text = inner
	}
	return strings.TrimPrefix(text, "EXECABORT Transaction discarded because of: ")
}

// causeOf returns what a reply means, if that is known: for a reply that is
// not, the server may have done a part.
func causeOf(text string) (c cause, known bool) {
	code, _, _ := strings.Cut(text, " ")
	c, known = replyCodes[code]
	for i := 0; !known && i < len(replyPhrases); i++ {
		c, known = replyPhrases[i].cause, strings.Contains(text, replyPhrases[i].says)
	}
	return c, known
}

// treat returns what to do about the error of a result.
func treat(err error) treatment {
	reply, ok := rueidis.IsRedisErr(err)
	if !ok {
		return unavailable
	}
	c, _ := causeOf(plainReply(reply.Error()))
	return c.treatment
}

// insecure fills in what is wrong with TLS, and reports whether that is it.
func insecure(e *weir.StoreError, err error) bool {
	var authority x509.UnknownAuthorityError
	var name x509.HostnameError
	var certificate *tls.CertificateVerificationError
	var record tls.RecordHeaderError
	var op *net.OpError
	switch {
	case errors.As(err, &authority):
		e.Hint = "name the file with the certificate authority of the server as ?ca=FILE"
	case errors.As(err, &name):
		e.Hint = "the server's certificate is for other names: connect by one of them"
	case errors.As(err, &certificate):
		e.Hint = "renew the server's certificate"
	case errors.As(err, &record):
		e.Hint = "the server does not speak TLS on this port: write redis:// instead of rediss://"
	case errors.As(err, &op) && op.Op == "remote error":
		e.Settings, e.Hint = true, certHint
		return true
	default:
		return false
	}
	e.Settings, e.Unknown = true, false
	return true
}

// silentHint returns what to look for if a connected server does not answer: it
// takes the first message of TLS for the beginning of a command, and the reverse.
func silentHint(secure bool) string {
	if secure {
		return "does it speak TLS on this port? If not, write redis:// instead of rediss://"
	}
	return "does it speak TLS on this port? If so, write rediss:// instead of redis://"
}

// unreachable returns what to do about a dial that failed.
func unreachable(err error) string {
	var dns *net.DNSError
	var slow net.Error
	switch {
	case errors.As(err, &dns):
		return "is the name of the host right?"
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.ENOENT):
		return "is the server running, and is this its address?"
	case errors.As(err, &slow) && slow.Timeout():
		return "is this its address, and does a firewall drop what comes from here?"
	case errors.Is(err, syscall.EACCES):
		return "give weir's user the right to the socket: unixsocketperm in the settings of the server"
	}
	return ""
}

// unlike fills in what is known of a server that was reached but did not answer
// as a Redis server does.
func unlike(e *weir.StoreError, err error, secure bool) {
	switch {
	case strings.Contains(err.Error(), "unknown message type"):
		e.Settings, e.Hint = true, "this is no Redis server, or one that speaks TLS: then write rediss:// instead of redis://"
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		if secure { // TLS 1.3 may lose the alert that says so
			e.Hint = certHint
			return
		}
		e.Hint = "the server ends the connection: does it want TLS (rediss://), or is it a proxy (?proxy=twemproxy)?"
	}
}
