// Command picture draws which drills pass at a kube-apiserver alone and with a gateway, from the record of the tests in e2e/behind.
package main

import (
	"bytes"
	"encoding/xml"
	"flag"
	"fmt"
	"os"
	"text/template"

	"sigs.k8s.io/yaml"
)

type held struct {
	Verdict  string  `json:"verdict"`
	Detected float64 `json:"detected"`
}

type drilled struct {
	Drill         string `json:"drill"`
	KubeAPIServer held   `json:"kubeAPIServer"`
	Gateway       held   `json:"gateway"`
}

// row is one drill with its place.
type row struct {
	drilled
	Y int
}

const rowHeight = 20

func main() {
	in := flag.String("in", "", "the record, result.yaml of e2e/behind")
	out := flag.String("out", "", "the picture")
	flag.Parse()
	if err := run(*in, *out); err != nil {
		fmt.Fprintln(os.Stderr, "picture:", err)
		os.Exit(1)
	}
}

func run(in, out string) error {
	data, err := os.ReadFile(in)
	if err != nil {
		return err
	}
	var record struct {
		Drills []drilled `json:"drills"`
	}
	if err := yaml.Unmarshal(data, &record); err != nil {
		return fmt.Errorf("%s: %w", in, err)
	}
	svg, err := draw(record.Drills)
	if err != nil {
		return err
	}
	return os.WriteFile(out, svg, 0o644)
}

func draw(drills []drilled) ([]byte, error) {
	var rows []row
	alone, with := 0, 0
	for i, d := range drills {
		rows = append(rows, row{d, 60 + i*rowHeight})
		if d.KubeAPIServer.Verdict == "passed" {
			alone++
		}
		if d.Gateway.Verdict == "passed" {
			with++
		}
	}
	var b bytes.Buffer
	err := picture.Execute(&b, map[string]any{"Rows": rows, "Height": 70 + len(rows)*rowHeight, "Alone": alone, "With": with, "All": len(rows)})
	return b.Bytes(), err
}

func color(h held) string {
	switch h.Verdict {
	case "passed":
		return "#2da44e"
	case "failed":
		return "#cf222e"
	}
	return "#afb8c1"
}

func words(h held) string {
	if h.Detected > 0 && h.Verdict != "skipped" {
		return fmt.Sprintf("%s, seen after %.1f s", h.Verdict, h.Detected)
	}
	return h.Verdict
}

func escape(s string) (string, error) {
	var b bytes.Buffer
	err := xml.EscapeText(&b, []byte(s))
	return b.String(), err
}

var picture = template.Must(template.New("picture").Funcs(template.FuncMap{"color": color, "words": words, "xml": escape}).Parse(
	`<svg xmlns="http://www.w3.org/2000/svg" width="820" height="{{.Height}}" font-family="sans-serif" font-size="13">
<title>Drills at a kube-apiserver alone, and with a gateway</title>
<rect width="820" height="{{.Height}}" fill="#ffffff"/>
<text x="330" y="24" font-weight="bold">kube-apiserver alone</text><text x="580" y="24" font-weight="bold">with a gateway</text>
<text x="330" y="42">{{.Alone}} of {{.All}} passed</text><text x="580" y="42">{{.With}} of {{.All}} passed</text>
{{range .Rows}}<text x="10" y="{{.Y}}" dy="13">{{xml .Drill}}</text>
<rect x="330" y="{{.Y}}" width="14" height="14" rx="3" fill="{{color .KubeAPIServer}}"/><text x="352" y="{{.Y}}" dy="12">{{xml (words .KubeAPIServer)}}</text>
<rect x="580" y="{{.Y}}" width="14" height="14" rx="3" fill="{{color .Gateway}}"/><text x="602" y="{{.Y}}" dy="12">{{xml (words .Gateway)}}</text>
{{end}}</svg>
`))
