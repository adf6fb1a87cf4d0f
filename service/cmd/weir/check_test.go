package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestCheckInPlace(t *testing.T) {
	slack := []string{"check", "--config", "../../../examples/slack.yaml", "--domain"}
	tests := map[string]struct {
		args []string
		code int
		want string
	}{
		"a key of any bytes":        {[]string{"check", "\xff", "5/minute", "--json"}, 0, `"key_base64":"/w=="`},
		"a value that is no text":   {append(slack[:4:4], "slack", "category=\xff"), 2, `"category=\xff" is not valid UTF-8: want `},
		"a name that is no text":    {append(slack[:4:4], "slack", "\xff=errors"), 2, `"\xff=errors" is not valid UTF-8: want `},
		"a domain that is no text":  {append(slack[:4:4], "\xff", "category=errors"), 2, `"\xff" is not valid UTF-8: want `},
		"a value with a character":  {append(slack[:4:4], "slack", "category=\ufffd"), 0, "allowed: 9 of 10 left"},
		"a cost above both rules'":  {append(slack[:4:4], "slack", "category=errors", "--cost", "101"), 1, "denied by global and per-category: never more than 10 at once\n"},
		"a cost above the narrower": {append(slack[:4:4], "slack", "category=errors", "--cost", "11"), 1, "denied by per-category: never more than 10 at once\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			code := run(t.Context(), test.args, strings.NewReader(""), &out, &out)
			if code != test.code || !strings.Contains(out.String(), test.want) {
				t.Errorf("got %d, %s, want %d, %s", code, &out, test.code, test.want)
			}
		})
	}
}
