package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// source is the hand-written code of the programs.
type source struct {
	files map[string]*ast.File // by path below internal
	lists []list
}

// list is a block of constants with a directive.
type list struct {
	page, heading, intro string
	entries              []entry
}

type entry struct{ value, text string }

var directive = regexp.MustCompile(`^//reference:(\w+) (.+)$`)

func parse(dir string) (*source, error) {
	s := &source{files: map[string]*ast.File{}}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") || strings.HasPrefix(d.Name(), "zz_generated") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		s.files[filepath.ToSlash(name)] = file
		return s.addLists(name, file)
	})
	slices.SortStableFunc(s.lists, func(a, b list) int { return cmp.Compare(a.heading, b.heading) })
	return s, err
}

func (s *source) addLists(name string, file *ast.File) error {
	for _, decl := range file.Decls {
		block, ok := decl.(*ast.GenDecl)
		if !ok || block.Tok != token.CONST || block.Doc == nil {
			continue
		}
		for _, comment := range block.Doc.List {
			m := directive.FindStringSubmatch(comment.Text)
			if m == nil {
				continue
			}
			l := list{page: m[1], heading: m[2], intro: oneLine(block.Doc.Text())}
			for _, spec := range block.Specs {
				e, err := constant(block, spec.(*ast.ValueSpec))
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				l.entries = append(l.entries, e)
			}
			if !block.Lparen.IsValid() {
				l.intro = ""
			}
			s.lists = append(s.lists, l)
		}
	}
	return nil
}

func constant(block *ast.GenDecl, spec *ast.ValueSpec) (entry, error) {
	name := spec.Names[0].Name
	value, ok := literal(spec.Values[0])
	if !ok {
		return entry{}, fmt.Errorf("constant %s is not a string in quotes", name)
	}
	doc := spec.Doc
	if doc == nil {
		doc = spec.Comment
	}
	if doc == nil && !block.Lparen.IsValid() {
		doc = block.Doc
	}
	if doc == nil {
		return entry{}, fmt.Errorf("constant %s has no comment, which is its description", name)
	}
	return entry{value, described(name, oneLine(doc.Text()))}, nil
}

// described is a doc comment without the name that it begins with.
func described(name, text string) string {
	if rest, ok := strings.CutPrefix(text, name+" "); ok {
		text = strings.TrimPrefix(rest, "is ")
	}
	first, size := utf8.DecodeRuneInString(text)
	return string(unicode.ToUpper(first)) + text[size:]
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

func literal(e ast.Expr) (string, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok || lit.Kind != token.STRING {
		return "", false
	}
	text, err := strconv.Unquote(lit.Value)
	return text, err == nil
}

func (s *source) writeLists(p *page, name, column string) {
	heading := ""
	for _, l := range s.lists {
		if l.page != name {
			continue
		}
		if l.heading != heading {
			heading = l.heading
			p.heading(2, heading)
		}
		if l.intro != "" {
			p.text(l.intro)
		}
		var rows [][]string
		for _, e := range l.entries {
			rows = append(rows, []string{code(e.value), prose(e.text)})
		}
		p.table([]string{column, "meaning"}, rows)
	}
}

var ownAnnotation = regexp.MustCompile(`^portico\.dev/[a-z][a-z-]*$`)

func (s *source) writeAnnotations(p *page) error {
	p.heading(1, "Annotations and labels")
	p.text("Every annotation and label with the prefix `portico.dev/`. [Annotations of an APIService](../annotations.md) explains those that operators set, with examples.")
	listed := map[string]bool{}
	for _, l := range s.lists {
		for _, e := range l.entries {
			listed[e.value] = true
		}
	}
	for name, file := range s.files {
		var missing string
		ast.Inspect(file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok {
				if text, ok := literal(lit); ok && ownAnnotation.MatchString(text) && !listed[text] {
					missing = text
				}
			}
			return true
		})
		if missing != "" {
			return fmt.Errorf("%s: %s is in no block of constants with a //reference:annotations directive", name, missing)
		}
	}
	s.writeLists(p, "annotations", "key")
	return nil
}

func (s *source) writeConditions(p *page) error {
	p.heading(1, "Conditions, reasons and Events")
	p.text("What the front door writes into the status of objects, and the Events it records. [When a backend fails](../failures.md) and [Deleting namespaces](../namespaces.md) say what to do about them.")
	s.writeLists(p, "conditions", "value")
	return nil
}

// answer is a Status that the code makes.
type answer struct {
	code                   int
	reason, cause, message string
}

func (s *source) writeErrors(p *page) error {
	p.heading(1, "Errors")
	p.text(`Errors that the front door itself answers with. Each is a Status in the client's encoding (JSON, YAML or protobuf). An ellipsis stands for text that depends on the request.

Requests for the groups that are served here get kube-apiserver's errors, which are not listed. An extension server's own errors pass unchanged.
Errors about the syntax of HTTP are in [HTTP rules](http-rules.md). [When a backend fails](../failures.md) says what to do.`)
	for _, part := range []struct {
		dirs           []string
		heading, intro string
	}{
		{[]string{"proxy/", "transport/explain.go"}, "Requests to an extension server", "Codes 502, 503, 504 and 429 name the APIService in `details`, and the cause in `details.causes`. `message` begins with `the extension server of APIService NAME cannot serve the request: `, and with code 503 with `the server is currently unable to handle the request: APIService NAME: `, before the text in the table. 503 has `retryAfterSeconds` where a retry may help. While an APIService is not available, the cause is the [reason of its condition](conditions.md)."},
		{[]string{"server/", "filters/", "dispatch/", "respond/respond.go"}, "Every request", "Filters and the handlers of group-versions answer with these before a request reaches its server."},
		{[]string{"discovery/"}, "Discovery", ""},
		{[]string{"openapi/"}, "OpenAPI", ""},
	} {
		p.heading(2, part.heading)
		if part.intro != "" {
			p.text(part.intro)
		}
		var found []answer
		for name, file := range s.files {
			if slices.ContainsFunc(part.dirs, func(dir string) bool { return strings.HasPrefix(name, dir) }) {
				ast.Inspect(file, func(n ast.Node) bool {
					if a, ok := answerOf(n); ok && !slices.Contains(found, a) {
						found = append(found, a)
					}
					return true
				})
			}
		}
		slices.SortFunc(found, func(a, b answer) int {
			return cmp.Or(cmp.Compare(a.code, b.code), cmp.Compare(a.cause, b.cause), cmp.Compare(a.message, b.message))
		})
		var rows [][]string
		for _, a := range found {
			rows = append(rows, []string{strconv.Itoa(a.code), code(a.reason), code(a.cause), prose(a.message)})
		}
		if len(rows) == 0 {
			return fmt.Errorf("no errors found in %s below internal", part.dirs)
		}
		p.table([]string{"code", "reason", "cause", "message"}, rows)
	}
	return nil
}

// constructors are those of k8s.io/apimachinery/pkg/api/errors, by the position of their message.
var constructors = map[string]struct {
	code    int
	message int
	reason  string
}{
	"NewBadRequest":         {http.StatusBadRequest, 0, "BadRequest"},
	"NewUnauthorized":       {http.StatusUnauthorized, 0, "Unauthorized"},
	"NewForbidden":          {http.StatusForbidden, 2, "Forbidden"},
	"NewNotFound":           {http.StatusNotFound, -1, "NotFound"},
	"NewMethodNotSupported": {http.StatusMethodNotAllowed, -1, "MethodNotAllowed"},
	"NewInvalid":            {http.StatusUnprocessableEntity, 2, "Invalid"},
	"NewTooManyRequests":    {http.StatusTooManyRequests, 0, "TooManyRequests"},
	"NewInternalError":      {http.StatusInternalServerError, 0, "InternalError"},
	"NewServiceUnavailable": {http.StatusServiceUnavailable, 0, "ServiceUnavailable"},
	"NewTimeoutError":       {http.StatusGatewayTimeout, 0, "Timeout"},
}

// codes are the names of net/http for codes that the proxy uses.
var codes = map[string]int{
	"StatusRequestTimeout": http.StatusRequestTimeout, "StatusGatewayTimeout": http.StatusGatewayTimeout,
	"StatusTooManyRequests": http.StatusTooManyRequests, "StatusBadGateway": http.StatusBadGateway,
	"StatusServiceUnavailable": http.StatusServiceUnavailable, "StatusLoopDetected": http.StatusLoopDetected,
	"StatusBadRequest": http.StatusBadRequest, "StatusForbidden": http.StatusForbidden,
	"StatusRequestHeaderFieldsTooLarge": http.StatusRequestHeaderFieldsTooLarge,
	"StatusMethodNotAllowed":            http.StatusMethodNotAllowed, "StatusNotFound": http.StatusNotFound,
	"statusClientGone": 499,
}

func answerOf(n ast.Node) (answer, bool) {
	switch n := n.(type) {
	case *ast.CallExpr:
		return answerOfCall(n)
	case *ast.CompositeLit:
		return answerOfLiteral(n)
	case *ast.ReturnStmt:
		// Explain in transport/explain.go: cause, text, whether it may be over in a moment.
		if len(n.Results) == 3 {
			cause, ok := literal(n.Results[0])
			if text := words(n.Results[1]); ok && cause != "" && text != "…" && text != "" {
				return answer{http.StatusServiceUnavailable, "ServiceUnavailable", cause, text}, true
			}
		}
	}
	return answer{}, false
}

func answerOfCall(call *ast.CallExpr) (answer, bool) {
	selector, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return answer{}, false
	}
	of, _ := selector.X.(*ast.Ident)
	switch name := selector.Sel.Name; {
	case of == nil:
	case name == "status" && len(call.Args) == 5:
		cause, ok := literal(call.Args[2])
		number := codes[nameOf(call.Args[0])]
		if text := words(call.Args[3]); ok && number != 0 {
			return answer{number, reason(call.Args[1]), cause, text}, true
		}
	case name == "NewGenericServerResponse":
		number := codes[nameOf(call.Args[0])]
		return answer{number, strings.ReplaceAll(http.StatusText(number), " ", ""), "", "the words of client-go for this code"}, number != 0
	case of.Name == "apierrors":
		c, ok := constructors[name]
		if !ok {
			return answer{}, false
		}
		text := "…"
		if c.message >= 0 && c.message < len(call.Args) {
			text = words(call.Args[c.message])
		}
		return answer{c.code, c.reason, "", text}, true
	}
	return answer{}, false
}

// answerOfLiteral is a responseError or identityError of package proxy.
func answerOfLiteral(lit *ast.CompositeLit) (answer, bool) {
	fields := map[string]ast.Expr{}
	for _, element := range lit.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			fields[nameOf(pair.Key)] = pair.Value
		}
	}
	switch name := nameOf(lit.Type); {
	case name == "responseError" && fields["reason"] != nil && fields["text"] != nil:
		return answer{http.StatusBadGateway, reason(fields["reason"]), reason(fields["reason"]), "it " + words(fields["text"])}, true
	case name == "identityError" && len(lit.Elts) == 2:
		number := codes[nameOf(lit.Elts[0])]
		return answer{number, strings.ReplaceAll(http.StatusText(number), " ", ""), "Identity", words(lit.Elts[1])}, number != 0
	}
	return answer{}, false
}

func reason(e ast.Expr) string {
	if text, ok := literal(e); ok {
		return text
	}
	return strings.TrimPrefix(nameOf(e), "StatusReason")
}

func nameOf(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.SelectorExpr:
		return e.Sel.Name
	}
	return ""
}

var verbs = regexp.MustCompile(`%[-+#.0-9]*[a-z]`)

// words is the constant part of a message.
func words(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, _ := literal(e)
		return text
	case *ast.BinaryExpr:
		return words(e.X) + words(e.Y)
	case *ast.CallExpr:
		if name := nameOf(e.Fun); (name == "New" || name == "Sprintf" || name == "Errorf") && len(e.Args) > 0 {
			return verbs.ReplaceAllString(words(e.Args[0]), "…")
		}
	}
	return "…"
}
