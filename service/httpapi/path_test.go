package httpapi

import (
	"net/url"
	"strings"
	"testing"
)

func TestNormalPath(t *testing.T) {
	for target, want := range map[string]string{
		"":                               "/",
		"/":                              "/",
		"/search":                        "/search",
		"/Search/":                       "/Search/",
		"/search?q=/a/../b":              "/search",
		"/search#x?y":                    "/search",
		"//search///a":                   "/search/a",
		"/%73e%61rch":                    "/search",
		"/a/./b/../c":                    "/a/c",
		"/a/b/..":                        "/a/",
		"/a/.":                           "/a/",
		"/../../a":                       "/a",
		"/a//../b":                       "/b",
		"/a/%2e%2E/b":                    "/b",
		"/a%2fb/%2F..":                   "/a%2Fb/%2F..",
		"/a/..;x/b":                      "/a/..;x/b",
		"/%":                             "/%25",
		"/%4":                            "/%254",
		"/%zz%6x":                        "/%25zz%256x",
		"/%4%31":                         "/%2541",
		"/%25%32%35":                     "/%2525",
		"/caf\xc3\xa9":                   "/caf%C3%A9",
		"/caf%c3%a9":                     "/caf%C3%A9",
		"/a b\x00%00":                    "/a%20b%00%00",
		"http://example.com":             "/",
		"HTTPS://example.com/a/../b?c":   "/b",
		"http://example.com?x=/a":        "/",
		"/http://example.com/a":          "/http:/example.com/a",
		"redirect/?to=http://host/login": "/redirect/",
		"*":                              "/*",
	} {
		if got := normalPath(target); got != want {
			t.Errorf("%q: got %q, want %q", target, got, want)
		}
	}
}

// A path in its normal form is in it, and means what it meant.
func FuzzNormalPath(f *testing.F) {
	f.Add("/a/%2e%2E//b%2f%c3?q#f")
	f.Add("https://h/%")
	f.Fuzz(func(t *testing.T, target string) {
		got := normalPath(target)
		if again := normalPath(got); again != got {
			t.Errorf("%q: got %q, and then %q", target, got, again)
		}
		if strings.IndexByte(got, '/') != 0 || strings.Contains(got, "//") || strings.Contains(got+"/", "/../") || strings.Contains(got+"/", "/./") {
			t.Errorf("%q: got %q", target, got)
		}
		plain, err := url.PathUnescape(target)
		if err == nil && strings.HasPrefix(target, "/") && !strings.ContainsAny(target, "?#") && !strings.Contains(plain, "//") && !strings.Contains(plain, "/.") {
			if decoded, err := url.PathUnescape(got); err != nil || decoded != plain {
				t.Errorf("%q: got %q, which is %q, not %q", target, got, decoded, plain)
			}
		}
	})
}

func TestNormalHost(t *testing.T) {
	for host, want := range map[string]string{
		"": "", "Example.COM": "example.com", "example.com.": "example.com", "example.com:8080": "example.com",
		"example.com.:80": "example.com", "[2001:DB8::1]:443": "[2001:db8::1]", "[2001:db8::1]": "[2001:db8::1]",
	} {
		if got := normalHost(host); got != want {
			t.Errorf("%q: got %q, want %q", host, got, want)
		}
	}
}
