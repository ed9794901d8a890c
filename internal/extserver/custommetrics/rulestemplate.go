package custommetrics

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/template/parse"
)

// formula is a Go template with the delimiters << and >>. It is executed without text/template: that package looks up methods
// by name at run time, so the linker would keep every method of every type. That costs four megabytes, while rules only need
// strings, one list and one map. Parsing uses text/template/parse.
type formula struct{ root *parse.ListNode }

// parts are the values that a formula may use: string, []string and map[string]string.
type parts map[string]any

// functions are the supported functions of text/template. The parser only checks their names.
var functions = map[string]any{"index": true, "len": true, "eq": true, "ne": true, "not": true, "print": true, "printf": true}

func parseTemplate(text string) (*formula, error) {
	trees, err := parse.Parse("rule", text, "<<", ">>", functions)
	if err != nil {
		return nil, err
	}
	tree := trees["rule"]
	if tree == nil {
		return &formula{root: &parse.ListNode{}}, nil
	}
	return &formula{root: tree.Root}, nil
}

var errTooLong = fmt.Errorf("makes more than %d bytes", maxQuery)

// expand executes a template. The size of data bounds its loops, and maxQuery its output.
func expand(f *formula, data parts) (string, error) {
	e := execution{vars: []variable{{"$", data}}}
	if err := e.walk(data, f.root); err != nil {
		return "", err
	}
	return e.out.String(), nil
}

type variable struct {
	name  string
	value any
}

type execution struct {
	out  strings.Builder
	vars []variable
}

func (e *execution) write(text string) error {
	if e.out.Len()+len(text) > maxQuery {
		return errTooLong
	}
	e.out.WriteString(text)
	return nil
}

func (e *execution) walk(dot any, n parse.Node) error {
	switch n := n.(type) {
	case *parse.ListNode:
		if n == nil {
			return nil
		}
		for _, child := range n.Nodes {
			if err := e.walk(dot, child); err != nil {
				return err
			}
		}
		return nil
	case *parse.TextNode:
		return e.write(string(n.Text))
	case *parse.CommentNode:
		return nil
	case *parse.ActionNode:
		v, err := e.pipe(dot, n.Pipe)
		if err != nil || len(n.Pipe.Decl) > 0 {
			return err
		}
		return e.write(fmt.Sprint(v))
	case *parse.IfNode:
		return e.branch(dot, &n.BranchNode, false)
	case *parse.WithNode:
		return e.branch(dot, &n.BranchNode, true)
	case *parse.RangeNode:
		return e.loop(dot, &n.BranchNode)
	}
	return fmt.Errorf("%s cannot be used here", n)
}

// branch executes if and with. Their variables go out of scope at the end.
func (e *execution) branch(dot any, n *parse.BranchNode, rebind bool) error {
	defer e.forget(len(e.vars))
	v, err := e.pipe(dot, n.Pipe)
	switch {
	case err != nil:
		return err
	case !truth(v):
		return e.walk(dot, n.ElseList)
	case rebind:
		dot = v
	}
	return e.walk(dot, n.List)
}

func (e *execution) forget(mark int) { e.vars = e.vars[:mark] }

func (e *execution) loop(dot any, n *parse.BranchNode) error {
	defer e.forget(len(e.vars))
	over, err := e.commands(dot, n.Pipe)
	if err != nil {
		return err
	}
	var keys, values []any
	switch over := over.(type) {
	case []string:
		for i, v := range over {
			keys, values = append(keys, i), append(values, v)
		}
	case map[string]string:
		for _, k := range slices.Sorted(maps.Keys(over)) {
			keys, values = append(keys, k), append(values, over[k])
		}
	default:
		return fmt.Errorf("range over %s: want .GroupBySlice or .LabelValuesByName", n.Pipe)
	}
	if len(values) == 0 {
		return e.walk(dot, n.ElseList)
	}
	for i, v := range values {
		mark := len(e.vars)
		switch decl := n.Pipe.Decl; len(decl) {
		case 1:
			e.vars = append(e.vars, variable{decl[0].Ident[0], v})
		case 2:
			e.vars = append(e.vars, variable{decl[0].Ident[0], keys[i]}, variable{decl[1].Ident[0], v})
		}
		if err := e.walk(v, n.List); err != nil {
			return err
		}
		e.forget(mark)
	}
	return nil
}

// pipe evaluates a pipeline and stores the result in the variables that it declares or assigns.
func (e *execution) pipe(dot any, n *parse.PipeNode) (any, error) {
	v, err := e.commands(dot, n)
	if err != nil {
		return nil, err
	}
	for _, decl := range n.Decl {
		if !n.IsAssign {
			e.vars = append(e.vars, variable{decl.Ident[0], v})
			continue
		}
		for i := len(e.vars) - 1; i >= 0; i-- {
			if e.vars[i].name == decl.Ident[0] {
				e.vars[i].value = v
				break
			}
		}
	}
	return v, nil
}

func (e *execution) commands(dot any, n *parse.PipeNode) (v any, err error) {
	for i, c := range n.Cmds {
		var args []any
		if f, ok := c.Args[0].(*parse.IdentifierNode); ok {
			for _, a := range c.Args[1:] {
				if v, err := e.operand(dot, a); err != nil {
					return nil, err
				} else {
					args = append(args, v)
				}
			}
			if i > 0 {
				args = append(args, v)
			}
			if v, err = call(f.Ident, args); err != nil {
				return nil, err
			}
			continue
		}
		if i > 0 || len(c.Args) > 1 {
			return nil, fmt.Errorf("%s is no function", c.Args[0])
		}
		if v, err = e.operand(dot, c.Args[0]); err != nil {
			return nil, err
		}
	}
	return v, nil
}

func (e *execution) operand(dot any, n parse.Node) (any, error) {
	switch n := n.(type) {
	case *parse.DotNode:
		return dot, nil
	case *parse.FieldNode:
		return fields(dot, n.Ident)
	case *parse.VariableNode:
		for i := len(e.vars) - 1; i >= 0; i-- {
			if e.vars[i].name == n.Ident[0] {
				return fields(e.vars[i].value, n.Ident[1:])
			}
		}
	case *parse.PipeNode:
		return e.pipe(dot, n)
	case *parse.ChainNode:
		v, err := e.operand(dot, n.Node)
		if err != nil {
			return nil, err
		}
		return fields(v, n.Field)
	case *parse.StringNode:
		return n.Text, nil
	case *parse.BoolNode:
		return n.True, nil
	case *parse.NumberNode:
		if n.IsInt {
			return int(n.Int64), nil
		}
	}
	return nil, fmt.Errorf("%s cannot be used here", n)
}

func fields(v any, names []string) (any, error) {
	for _, name := range names {
		switch of := v.(type) {
		case parts:
			inner, ok := of[name]
			if !ok {
				return nil, fmt.Errorf("there is no .%s; want one of .%s", name, strings.Join(slices.Sorted(maps.Keys(of)), ", ."))
			}
			v = inner
		case map[string]string:
			v = of[name]
		default:
			return nil, fmt.Errorf("%v has no field %s", v, name)
		}
	}
	return v, nil
}

func call(name string, args []any) (any, error) {
	switch {
	case name == "index" && len(args) == 2:
		return index(args[0], args[1])
	case name == "len" && len(args) == 1:
		switch v := args[0].(type) {
		case string:
			return len(v), nil
		case []string:
			return len(v), nil
		case map[string]string:
			return len(v), nil
		}
	case (name == "eq" || name == "ne") && len(args) == 2:
		return (fmt.Sprint(args[0]) == fmt.Sprint(args[1])) == (name == "eq"), nil
	case name == "not" && len(args) == 1:
		return !truth(args[0]), nil
	case name == "print":
		return fmt.Sprint(args...), nil
	case name == "printf" && len(args) > 0:
		if format, ok := args[0].(string); ok {
			return fmt.Sprintf(format, args[1:]...), nil
		}
	}
	return nil, fmt.Errorf("%s cannot be called with %v", name, args)
}

func index(of, at any) (any, error) {
	switch of := of.(type) {
	case map[string]string:
		if key, ok := at.(string); ok {
			return of[key], nil
		}
	case []string:
		if i, ok := at.(int); ok && i >= 0 && i < len(of) {
			return of[i], nil
		}
		return nil, fmt.Errorf("index %v of a list of %d", at, len(of))
	}
	return nil, errors.New("index wants .LabelValuesByName and a label, or .GroupBySlice and a number")
}

func truth(v any) bool {
	switch v := v.(type) {
	case nil:
		return false
	case bool:
		return v
	case int:
		return v != 0
	case string:
		return v != ""
	case []string:
		return len(v) > 0
	case map[string]string:
		return len(v) > 0
	}
	return true
}
