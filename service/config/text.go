package config

import (
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/weirlimit/weir"
	"github.com/weirlimit/weir/policy"
)

// Text returns a policy as a config file: Load makes the same of it. There are
// no settings of the server in it. The error is about metadata that YAML has no
// word for, which Load does not make.
func Text(p *policy.Policy) (string, error) {
	var docs []string
	for _, d := range p.Domains() {
		doc := domainText{Domain: d.Name}
		if d.Tree != nil {
			doc.tree(d.Tree)
		} else {
			doc.rules(d.Rules)
		}
		text, err := yaml.MarshalWithOptions(doc, yaml.IndentSequence(true))
		if err != nil {
			return "", err
		}
		docs = append(docs, string(text))
	}
	return strings.Join(docs, "---\n"), nil
}

// What follows has the keys of a file in the order that people write them.
type (
	domainText struct {
		Domain       string           `yaml:"domain"`
		Algorithm    string           `yaml:"algorithm,omitempty"`
		ChargeOnDeny bool             `yaml:"charge_on_deny,omitempty"`
		OnFailure    string           `yaml:"on_failure,omitempty"`
		Deadline     string           `yaml:"deadline,omitempty"`
		Rules        []ruleText       `yaml:"rules,omitempty"`
		Descriptors  []descriptorText `yaml:"descriptors,omitempty"`
	}
	ruleText struct {
		Name      string              `yaml:"name"`
		When      map[string][]string `yaml:"when,omitempty"`
		By        []string            `yaml:"by,omitempty"`
		Optional  bool                `yaml:"optional,omitempty"`
		Limit     string              `yaml:"limit,omitempty"`
		Deny      bool                `yaml:"deny,omitempty"`
		Overrides []overrideText      `yaml:"overrides,omitempty"`
		Shadow    bool                `yaml:"shadow,omitempty"`
		OnFailure string              `yaml:"on_failure,omitempty"`
		Deadline  string              `yaml:"deadline,omitempty"`
		Slot      any                 `yaml:"slot,omitempty"`
	}
	overrideText struct {
		When  map[string][]string `yaml:"when"`
		Limit string              `yaml:"limit,omitempty"`
		Deny  bool                `yaml:"deny,omitempty"`
	}
	descriptorText struct {
		Key            string           `yaml:"key"`
		Value          string           `yaml:"value,omitempty"`
		RateLimit      *rateLimitText   `yaml:"rate_limit,omitempty"`
		Descriptors    []descriptorText `yaml:"descriptors,omitempty"`
		ShareThreshold bool             `yaml:"share_threshold,omitempty"`
		Shadow         bool             `yaml:"shadow_mode,omitempty"`
		Quota          bool             `yaml:"quota_mode,omitempty"`
		DetailedMetric bool             `yaml:"detailed_metric,omitempty"`
		ValueToMetric  bool             `yaml:"value_to_metric,omitempty"`
		Metadata       map[string]any   `yaml:"metadata,omitempty"`
	}
	rateLimitText struct {
		Unit      string     `yaml:"unit,omitempty"`
		Requests  *int64     `yaml:"requests_per_unit,omitempty"`
		Unlimited bool       `yaml:"unlimited,omitempty"`
		Name      string     `yaml:"name,omitempty"`
		Replaces  []nameText `yaml:"replaces,omitempty"`
	}
	nameText struct {
		Name string `yaml:"name"`
	}
)

func (d *domainText) rules(rules []policy.Rule) {
	for i := range rules {
		r := &rules[i]
		text := ruleText{
			Name: r.Name, When: r.When, By: r.By, Optional: r.Optional,
			Limit: limitText(r.Limit), Deny: r.Deny, Shadow: r.Shadow,
			OnFailure: failureText(r.OnFailure), Deadline: durationText(r.Deadline),
		}
		for _, o := range r.Overrides {
			text.Overrides = append(text.Overrides, overrideText{o.When, limitText(o.Limit), o.Deny})
		}
		switch {
		case r.SlotDomain:
			text.Slot = "domain"
		case len(r.Slot) > 0:
			text.Slot = r.Slot
		}
		d.Rules = append(d.Rules, text)
	}
}

func (d *domainText) tree(t *policy.Tree) {
	if t.Algorithm != 0 {
		d.Algorithm = t.Algorithm.String()
	}
	d.ChargeOnDeny, d.OnFailure, d.Deadline = t.ChargeOnDeny, failureText(t.OnFailure), durationText(t.Deadline)
	d.Descriptors = levelText(t.Descriptors)
}

func levelText(level []policy.Descriptor) (texts []descriptorText) {
	for i := range level {
		d := &level[i]
		text := descriptorText{
			Key: d.Key, Value: d.Value, Descriptors: levelText(d.Descriptors), ShareThreshold: d.ShareThreshold,
			Shadow: d.Shadow, Quota: d.Quota, DetailedMetric: d.DetailedMetric, ValueToMetric: d.ValueToMetric, Metadata: d.Metadata,
		}
		if r := d.RateLimit; r != nil {
			text.RateLimit = &rateLimitText{Unit: r.Unit.String(), Unlimited: r.Unlimited, Name: r.Name}
			if !r.Unlimited {
				text.RateLimit.Requests = &r.Requests
			}
			for _, name := range r.Replaces {
				text.RateLimit.Replaces = append(text.RateLimit.Replaces, nameText{name})
			}
		}
		texts = append(texts, text)
	}
	return texts
}

func limitText(l weir.Limit) string {
	if l == (weir.Limit{}) {
		return ""
	}
	return l.String()
}

func failureText(o weir.OnFailure) string {
	if o == weir.OnFailureLocal {
		return ""
	}
	return o.String()
}

func durationText(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return d.String()
}
