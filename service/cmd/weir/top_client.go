package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirlimit/weir/service/config"
)

const (
	// adminTime bounds a call of the admin API, in which a heap is dumped at most.
	adminTime = 10 * time.Second
	// maxAdminAnswer is the largest answer read, in bytes.
	maxAdminAnswer = 64 << 20
)

// adminFlags are the flags of commands that ask the admin API.
type adminFlags struct{ url, tokenFile string }

func (f *adminFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.url, "admin", "http://127.0.0.1:6070", "admin address of the service")
	flags.StringVar(&f.tokenFile, "token-file", "", "file with the token that it asks for, which $WEIR_ADMIN_TOKEN may have instead")
}

// adminClient asks the admin API of a service.
type adminClient struct {
	base  string // scheme and host, without a final slash
	token string // may be empty
	http  *http.Client
}

func (f *adminFlags) client() (*adminClient, error) {
	token, err := reveal(config.Secret{Text: os.Getenv("WEIR_ADMIN_TOKEN"), File: f.tokenFile}, "admin token")
	if err != nil {
		return nil, err
	}
	base := f.url
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return nil, errors.New("--admin is no address: want the admin address of a service, such as http://127.0.0.1:6070, and a token in $WEIR_ADMIN_TOKEN")
	}
	return &adminClient{base: strings.TrimSuffix(base, "/"), token: token, http: &http.Client{
		Timeout: adminTime,
		// A token is for the address that the user named.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// get returns what the service has at path.
func (c *adminClient) get(ctx context.Context, path string) ([]byte, error) {
	return c.do(ctx, http.MethodGet, path, nil)
}

// post sends question as JSON, and reads the answer into answer.
func (c *adminClient) post(ctx context.Context, path string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	text, err := c.do(ctx, http.MethodPost, path, body)
	if err != nil {
		return err
	}
	return c.decode(path, text, answer)
}

func (c *adminClient) decode(path string, text []byte, answer any) error {
	if err := json.Unmarshal(text, answer); err != nil {
		return fmt.Errorf("%s%s did not answer as a weir of this version does: %w", c.base, path, err)
	}
	return nil
}

func (c *adminClient) do(ctx context.Context, method, path string, body []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	response, err := c.http.Do(r)
	if err != nil {
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err
		}
		return nil, fmt.Errorf("cannot reach %s: %w; start a service with weir serve, or name its admin address with --admin", c.base, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAdminAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s broke off: %w", c.base, err)
	case len(text) > maxAdminAnswer:
		return nil, fmt.Errorf("%s%s is larger than %d MiB", c.base, path, maxAdminAnswer>>20)
	case response.StatusCode == http.StatusOK:
		return text, nil
	}
	return nil, c.refused(path, response.StatusCode, text)
}

func (c *adminClient) refused(path string, status int, body []byte) error {
	var problem struct{ Detail string }
	ours := json.Unmarshal(body, &problem) == nil && problem.Detail != ""
	text := fmt.Sprintf("%s%s answered with status %d: is it the admin address of a weir of this version?", c.base, path, status)
	switch {
	case status == http.StatusUnauthorized && c.token == "":
		text = c.base + " wants a token: name the file that has it with --token-file, or set $WEIR_ADMIN_TOKEN"
	case status == http.StatusUnauthorized:
		text = c.base + " refused the token of --token-file or $WEIR_ADMIN_TOKEN"
		if ours {
			text += ": " + problem.Detail
		}
	case ours && status != http.StatusNotFound:
		text = c.base + " answered: " + problem.Detail
	}
	return errors.New(text)
}
