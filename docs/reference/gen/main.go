// Gen writes the pages in docs/reference from the code: flags from the help texts of the programs, metrics from a
// registry, everything else from constants and calls in the source.
//
// A block of constants is listed when its comment ends in a directive:
//
//	//reference:annotations On an APIService
//
// The word is the page (annotations or conditions), the rest the heading. The comment of each constant is its description.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

//go:generate go run .

const root = "../../.."

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "docs/reference/gen:", err)
		os.Exit(1)
	}
}

func run() error {
	source, err := parse(filepath.Join(root, "internal"))
	if err != nil {
		return err
	}
	for _, page := range []struct {
		name  string
		write func(*page) error
	}{
		{"flags", writeFlags},
		{"metrics", writeMetrics},
		{"annotations", source.writeAnnotations},
		{"conditions", source.writeConditions},
		{"errors", source.writeErrors},
	} {
		p := newPage()
		if err := page.write(p); err != nil {
			return fmt.Errorf("%s: %w", page.name, err)
		}
		if err := os.WriteFile(filepath.Join("..", page.name+".md"), []byte(p.String()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// page is a page in Markdown.
type page struct{ strings.Builder }

func newPage() *page {
	p := &page{}
	p.WriteString("<!-- Written by go generate ./docs/reference/gen from the code. Do not edit. -->\n\n")
	return p
}

func (p *page) heading(level int, text string) {
	fmt.Fprintf(p, "%s %s\n\n", strings.Repeat("#", level), text)
}

func (p *page) text(text string) { p.WriteString(text + "\n\n") }

// table writes rows under a header. Rows must be as long as it.
func (p *page) table(header []string, rows [][]string) {
	p.row(header)
	p.row(strings.Split(strings.Repeat("---,", len(header)-1)+"---", ","))
	for _, row := range rows {
		p.row(row)
	}
	p.WriteString("\n")
}

func (p *page) row(cells []string) {
	for _, cell := range cells {
		p.WriteString("| " + cell + " ")
	}
	p.WriteString("|\n")
}

// prose makes text from the code safe in a cell.
func prose(text string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "*", `\*`, "\n", " ").Replace(text)
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + strings.ReplaceAll(text, "|", `\|`) + "`"
}
