package main

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/spf13/pflag"
)

// manifest is what is read of a document of deploy/kubernetes.
type manifest struct {
	Kind string
	Data map[string]string
	Spec struct {
		Replicas int
		Template struct {
			Spec struct {
				Containers []struct {
					Args []string
					Env  []struct{ Name, Value string }
				}
			}
		}
	}
}

// TestManifests starts, as far as settings go, what deploy/kubernetes would.
func TestManifests(t *testing.T) {
	file, err := os.Open("../../../deploy/kubernetes/weir.yaml")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	dir, env, replicas := t.TempDir(), make(map[string]string), 0
	for d := yaml.NewDecoder(file); ; {
		var m manifest
		if err := d.Decode(&m); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if m.Kind == "ConfigMap" {
			for name, text := range m.Data {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, c := range m.Spec.Template.Spec.Containers {
			replicas = m.Spec.Replicas
			for _, e := range c.Env {
				env[e.Name] = e.Value
				if e.Value == "" {
					env[e.Name] = "from the secret"
				}
			}
		}
	}
	env["WEIR_CONFIG"] = filepath.Join(dir, filepath.Base(env["WEIR_CONFIG"]))
	flags := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	addFlags(flags)
	loaded, set, err := readConfig(flags, func(name string) (string, bool) {
		value, ok := env[name]
		delete(env, name)
		return value, ok
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(env) > 0 {
		t.Errorf("there are no such variables: %v", env)
	}
	if len(loaded.Policy.Domains()) != 1 || set.Redis.Replicas != replicas || replicas < 2 || set.AdminToken == "" || set.Redis.Password.Text == "" {
		t.Errorf("got %+v for %d replicas", set, replicas)
	}
}
