package config

import (
	"errors"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// node is a value of a document, with aliases and merge keys resolved.
type node struct {
	kind         kind
	text         string // of a scalar as written; of broken, what is wrong
	plain        bool   // a scalar that YAML takes for a number or a truth value
	line, column int
	items        []*node
	pairs        []pair
}

type pair struct{ key, value *node }

type kind uint8

const (
	null kind = iota
	scalar
	list
	mapping
	broken
)

// String names the kind as an error does.
func (k kind) String() string {
	return [...]string{"nothing", "a single value", "a list", "a mapping", "something broken"}[k]
}

// find returns the first pair with a key, or one of nils.
func (n *node) find(key string) pair {
	for _, p := range n.pairs {
		if p.key.text == key {
			return p
		}
	}
	return pair{}
}

// parse returns the documents of a file that are not empty, and what is wrong
// with those that are no YAML.
func parse(s *source) (docs []*node, errs Errors) {
	for _, tokens := range split(lexer.Tokenize(s.text)) {
		body, err := parseDocument(tokens)
		if err != nil {
			errs = append(errs, syntaxError(s, err))
		} else if body != nil {
			c := converter{anchors: make(map[string]*node)}
			docs = append(docs, c.convert(body))
		}
	}
	return docs, errs
}

// split cuts tokens at the lines that separate documents: the parser would
// drop all documents after an empty one.
func split(tokens token.Tokens) []token.Tokens {
	docs := []token.Tokens{nil}
	for _, t := range tokens {
		if t.Type == token.DocumentHeaderType || t.Type == token.DocumentEndType {
			docs = append(docs, nil)
			continue
		}
		docs[len(docs)-1] = append(docs[len(docs)-1], t)
	}
	return docs
}

// parseDocument returns the body of a document; nil if there is none.
func parseDocument(tokens token.Tokens) (ast.Node, error) {
	if err := refuse(tokens); err != nil {
		return nil, err
	}
	file, err := parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil || len(file.Docs) == 0 {
		return nil, err
	}
	return file.Docs[0].Body, nil
}

// refuse returns an error for what the parser must not see: it recurses, and
// its time grows with the square of the depth.
func refuse(tokens token.Tokens) error {
	const deepest, widest = 50, 500
	depth := 0
	for _, t := range tokens {
		switch t.Type {
		case token.DirectiveType:
			return &yaml.SyntaxError{Message: "a directive such as %YAML cannot be read here, leave it out", Token: t}
		case token.SequenceStartType, token.MappingStartType:
			depth++
		case token.SequenceEndType, token.MappingEndType:
			depth--
		case token.SequenceEntryType, token.MappingKeyType:
			if t.Position.Column > widest {
				depth = deepest + 1
			}
		}
		if depth > deepest {
			return &yaml.SyntaxError{Message: "it is nested more deeply than any configuration", Token: t}
		}
	}
	return nil
}

func syntaxError(s *source, err error) *Error {
	e := &Error{Place: s.place(1, 1, ""), Message: "this is not valid YAML: " + err.Error()}
	var syntax *yaml.SyntaxError
	if errors.As(err, &syntax) && syntax.Token != nil {
		e.Place = s.place(syntax.Token.Position.Line, syntax.Token.Position.Column, "")
		e.Message = "this is not valid YAML: " + syntax.Message
		if strings.Contains(syntax.Message, "'\t'") {
			e.Message = "a tab cannot indent: write spaces"
		}
	}
	return e
}

// converter turns the parser's nodes into ours.
type converter struct {
	anchors map[string]*node // those whose value is complete
}

func (c *converter) convert(n ast.Node) *node {
	switch n := n.(type) {
	case *ast.NullNode:
		return newNode(null, n)
	case *ast.LiteralNode:
		return text(n, n.Value.Value)
	case *ast.StringNode:
		return text(n, n.Value)
	case *ast.BoolNode, *ast.IntegerNode, *ast.FloatNode, *ast.InfinityNode, *ast.NanNode:
		out := text(n, n.GetToken().Value)
		out.plain = true
		return out
	case *ast.SequenceNode:
		out := newNode(list, n)
		for _, item := range n.Values {
			out.items = append(out.items, c.convert(item))
		}
		return out
	case *ast.MappingNode:
		return c.mapping(n)
	case *ast.AnchorNode:
		out := c.convert(n.Value)
		c.anchors[n.Name.GetToken().Value] = out
		return out
	case *ast.AliasNode:
		return c.alias(n)
	case *ast.TagNode:
		return newNode(broken, n).fault("a tag, which is what begins with !, is not read here: leave it out, and quote what is to be text")
	}
	return newNode(broken, n).fault("this kind of YAML is not read here: write a value, a list or a mapping")
}

func (c *converter) alias(n *ast.AliasNode) *node {
	if target := c.anchors[n.Value.GetToken().Value]; target != nil {
		return target
	}
	return newNode(broken, n).fault("no anchor comes before this alias; a pattern that begins with a star is to be quoted, as in \"*.org\"")
}

// mapping converts the pairs of a mapping. Those of merge keys come after its
// own, and only where the key is not among them already.
func (c *converter) mapping(n *ast.MappingNode) *node {
	out := newNode(mapping, n)
	if !n.IsFlowStyle && len(n.Values) > 0 {
		out = newNode(mapping, n.Values[0].Key)
	}
	var merged []*node
	for _, v := range n.Values {
		value := c.convert(v.Value)
		switch key := v.Key.(type) {
		case *ast.MergeKeyNode:
			merged = append(merged, value)
		case *ast.MappingKeyNode:
			out.pairs = append(out.pairs, pair{c.convert(key.Value), value})
		default:
			out.pairs = append(out.pairs, pair{c.convert(key), value})
		}
	}
	for _, m := range merged {
		out.merge(m)
	}
	return out
}

// merge adds the pairs of a mapping, or of each mapping in a list.
func (n *node) merge(from *node) {
	sources := []*node{from}
	if from.kind == list {
		sources = from.items
	}
	for _, m := range sources {
		if m.kind != mapping {
			n.pairs = append(n.pairs, pair{m.fault("only a mapping, or a list of mappings, can be merged with <<"), m})
		}
		for _, p := range m.pairs {
			if n.find(p.key.text).key == nil {
				n.pairs = append(n.pairs, p)
			}
		}
	}
}

func newNode(k kind, n ast.Node) *node {
	out := &node{kind: k, line: 1, column: 1}
	if t := n.GetToken(); t != nil && t.Position != nil {
		out.line, out.column = t.Position.Line, t.Position.Column
	}
	return out
}

func text(n ast.Node, text string) *node {
	out := newNode(scalar, n)
	out.text = text
	return out
}

// typed is a scalar as a bool, a float64 or a string.
func (n *node) typed() any {
	switch {
	case !n.plain:
	case strings.EqualFold(n.text, "true"):
		return true
	case strings.EqualFold(n.text, "false"):
		return false
	default:
		if i, err := strconv.ParseInt(n.text, 0, 64); err == nil {
			return float64(i)
		}
		if f, err := strconv.ParseFloat(n.text, 64); err == nil {
			return f
		}
	}
	return n.text
}

// fault is a node in the place of n that stands for an error.
func (n *node) fault(text string) *node {
	return &node{kind: broken, text: text, line: n.line, column: n.column}
}
