package attacks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"portico.dev/e2e/measure"
	"portico.dev/e2e/packed"
)

// page is e2e/attacks/results.json.zst.
type page struct {
	Engines map[string]run `json:"engines"`
	Results []result       `json:"results"`
}

// run describes the machine and the date of the attacks on an engine, with the bystander's measurements without an attack.
type run struct {
	Machine measure.Machine `json:"machine"`
	Rest    Latencies       `json:"rest"`
}

func readPage() (*page, error) {
	p := &page{Engines: map[string]run{}}
	text, err := packed.Read("results.json.zst")
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return nil, err
	}
	return p, json.Unmarshal(text, p)
}

// write replaces the stored results of the attacks that were made, and keeps the rest.
func (p *page) write(t *testing.T) {
	before, err := readPage()
	if err != nil {
		t.Fatal(err)
	}
	for engine, r := range before.Engines {
		if _, ok := p.Engines[engine]; !ok || *only != "" || *side != "" {
			p.Engines[engine] = r
		}
	}
	for _, r := range before.Results {
		if p.find(r.Name, r.Engine) == nil {
			p.Results = append(p.Results, r)
		}
	}
	p.sort()
	text, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"results.json.zst": append(text, '\n'), "README.md": p.markdown()} {
		if err := packed.Write(name, content); err != nil {
			t.Fatal(err)
		}
	}
}

const introduction = `# HTTP attacks and their cost

This page lists every published class of attack on HTTP/1.1 and HTTP/2 servers and clients. Each attack was run against a real front door
with TLS, a real extension server, RBAC and the audit log. ` + "`make attacks`" + ` writes this page and [results.json.zst](results.json.zst).
The release checks run a reduced set of the same attacks (` + "`go test ./e2e/attacks`" + `), and check that no row of this page is missing or has
an exceeded bound for Portico's engine.

The front door and the attacker are separate processes. During each attack, another client, the bystander, sends normal requests: 50 GETs a
second of a proxied object over HTTP/2, 50 over HTTP/1.1, and a watch with 50 events a second, each on separate connections. All processes
run on one machine. The attacker therefore takes CPU from the front door and the bystander, in addition to the load that it causes in the
front door.

- *Side* is "server" if clients attack the front door's server, and "client" if extension servers attack the front door's HTTP client.
- *Engine* is ` + "`portico`" + ` (` + "`--http-engine=portico --backend-engine=portico`" + `, the default) or ` + "`library`" + `: Go's net/http and
  golang.org/x/net/http2. The bounds are guaranteed for ` + "`portico`" + ` only. The last column lists the bounds that the result exceeds.
- *Front door* has three numbers: the CPU time minus the CPU time for the bystander alone; the peak of resident memory above the idle value;
  and the heap and stacks in use after a garbage collection, while the attacker stays connected.
- *Bound*: no request of the bystander may fail, and no watch of the bystander may end. The front door's CPU time is at most 4 times the
  attacker's plus a twentieth of a core. Its memory is at most 256 MiB above the idle value at the peak, and 32 MiB after a garbage
  collection ("kept"). The bystander's p99 is at most 500 ms, or 25 times its p99 without an attack if that is more. A row lists its
  bounds if they differ. The number of frames is the maximum for one connection until the attacker detects that the connection is closed,
  including frames in the kernel's buffers. The regular expression matches all permitted outcomes. *Left open* means that the front door
  did not close the connection before the end of the attack.

`

func (p *page) markdown() []byte {
	var b bytes.Buffer
	b.WriteString(introduction)
	b.WriteString("| engine | bystander without an attack: p50, p99, watch p99 | machine |\n|---|---|---|\n")
	for _, engine := range sortedKeys(p.Engines) {
		r := p.Engines[engine]
		fmt.Fprintf(&b, "| %s | %s, %s, %s | %s |\n", engine, ms(r.Rest.P50), ms(r.Rest.P99), ms(r.Rest.WatchP99), strings.ReplaceAll(r.Machine.String(), "\n", " "))
	}
	rows := rowsOfAll()
	for _, c := range classes() {
		fmt.Fprintf(&b, "\n## %s\n\nKnown as %s. Sides: %s.\n\n", c.title, strings.Join(c.known, ", "), strings.Join(c.sides, ", "))
		b.WriteString("| attack | side | sent data | bound | also tested by |\n|---|---|---|---|---|\n")
		for _, a := range rows {
			if a.class == c.id {
				fmt.Fprintf(&b, "| %s%s | %s | %s | %s | %s |\n", a.name, bracketed(a.cves), a.side, a.sends, strings.ReplaceAll(a.bound.withDefaults().String(), "|", "\\|"), tests(a.proof))
			}
		}
		b.WriteString("\n| attack | engine | attacker: CPU, frames, MB, connections | front door: CPU, peak, kept | bystander: p50, p99, watch p99, failed | outcome | exceeded bounds |\n|---|---|---|---|---|---|---|\n")
		for _, a := range rows {
			if a.class != c.id {
				continue
			}
			for _, engine := range []string{portico, library} {
				if r := p.find(a.name, engine); r != nil {
					b.WriteString(r.row())
				}
			}
		}
	}
	return b.Bytes()
}

func (p *page) find(name, engine string) *result {
	for i := range p.Results {
		if r := &p.Results[i]; r.Name == name && r.Engine == engine {
			return r
		}
	}
	return nil
}

func (r *result) row() string {
	broken := "none"
	switch {
	case len(r.Broken) > 0 && r.Engine == library:
		broken = "not guaranteed for this engine: " + strings.Join(r.Broken, "; ")
	case len(r.Broken) > 0:
		broken = "OPEN: " + strings.Join(r.Broken, "; ")
	}
	var came []string
	for _, what := range sortedKeys(r.Attacker.Outcomes) {
		came = append(came, fmt.Sprintf("%d x %s", r.Attacker.Outcomes[what], what))
	}
	a, d := r.Attacker, r.During
	return fmt.Sprintf("| %s | %s | %.2f s, %d, %.1f, %d | %.2f s, +%.0f MiB, +%.1f MiB | %s, %s, %s, %d of %d | in %.1f s %s | %s |\n",
		r.Name, r.Engine, a.CPU.Seconds(), a.Frames, float64(a.Bytes)/1e6, a.Connections, r.Ours.CPUSeconds, r.Ours.PeakMiB, r.Ours.KeptMiB,
		ms(d.P50), ms(d.P99), ms(d.WatchP99), d.Failures, d.Requests, r.Seconds, escape(strings.Join(came, ", ")), escape(broken))
}

func ms(d time.Duration) string { return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond)) }

func escape(text string) string {
	return strings.NewReplacer("|", "\\|", "\n", " ", "*", "\\*").Replace(text)
}

func bracketed(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return " (" + strings.Join(names, ", ") + ")"
}

var testName = regexp.MustCompile(`([a-z/0-9]+)\.((?:Test|Fuzz)[A-Za-z0-9]+)`)

func tests(proof string) string { return testName.ReplaceAllString(proof, "`$0`") }

// sort puts results in the order of the attacks, and drops results of removed attacks.
func (p *page) sort() {
	var kept []result
	for _, a := range rowsOfAll() {
		for _, engine := range []string{portico, library} {
			if r := p.find(a.name, engine); r != nil {
				kept = append(kept, *r)
			}
		}
	}
	p.Results = kept
}

// judge checks the measurements against the current bounds.
func (p *page) judge() {
	for _, a := range rowsOfAll() {
		for _, engine := range []string{portico, library} {
			if r := p.find(a.name, engine); r != nil {
				r.Class, r.Side, r.CVEs, r.Sends, r.Proof, r.Bound, r.Broken = a.class, a.side, a.cves, a.sends, a.proof, a.bound.withDefaults(), nil
				r.judge(p.Engines[engine].Rest, false)
			}
		}
	}
}

// TestThePageIsWhole checks the page without running attacks.
func TestThePageIsWhole(t *testing.T) {
	p, err := readPage()
	if err != nil {
		t.Fatal(err)
	}
	if *judge {
		p.judge()
		p.write(t)
	}
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(text, p.markdown()) {
		t.Error("e2e/attacks/README.md differs from e2e/attacks/results.json.zst and the attacks, want equal content: run make attacks")
	}
	for _, a := range rowsOfAll() {
		for _, engine := range []string{portico, library} {
			switch r := p.find(a.name, engine); {
			case r == nil:
				t.Errorf("no result of %q on %s, want one: run make attacks", a.name, engine)
			case r.Class != a.class || r.Side != a.side || r.Sends != a.sends || r.Bound != a.bound.withDefaults():
				t.Errorf("%q has changed since its result on %s, want a current one: run make attacks", a.name, engine)
			case r.During.Requests == 0 || r.During.Events == 0 || len(r.Attacker.Outcomes) == 0:
				t.Errorf("result of %q on %s without bystander or attacker: %+v, want both", a.name, engine, r)
			case engine == portico && len(r.Broken) > 0:
				t.Errorf("broken bounds of %q = %v, want none", a.name, r.Broken)
			}
		}
	}
	for _, c := range classes() {
		if !strings.Contains(string(text), "\n## "+c.title+"\n") {
			t.Errorf("the page has no section %q, want one", c.title)
		}
		for _, name := range c.known {
			if !strings.Contains(string(text), name) {
				t.Errorf("the page has no %s, want it", name)
			}
		}
	}
}

// TestEveryClassIsTried checks the attacks against the list of classes, and their references to tests.
func TestEveryClassIsTried(t *testing.T) {
	names := map[string]bool{}
	sides := map[string][]string{}
	known := map[string]bool{}
	for _, c := range classes() {
		for _, name := range c.known {
			known[name] = true
		}
	}
	for _, a := range rowsOfAll() {
		if names[a.name] {
			t.Errorf("two attacks have the name %q, want one", a.name)
		}
		names[a.name] = true
		sides[a.class] = append(sides[a.class], a.side)
		for _, name := range a.cves {
			if !known[name] {
				t.Errorf("attack %q: no class lists %s, want one", a.name, name)
			}
		}
		if a.sends == "" || a.do == nil || a.proof == "" || a.bound.Outcomes == "" {
			t.Errorf("attack %q is incomplete, want the sent data, the permitted results and a test", a.name)
		}
		for _, m := range testName.FindAllStringSubmatch(a.proof, -1) {
			if !testExists(t, m[1], m[2]) {
				t.Errorf("attack %q: %s has no test %s, want it", a.name, m[1], m[2])
			}
		}
	}
	if len(classes()) != 22 {
		t.Errorf("%d classes, want 22", len(classes()))
	}
	for _, c := range classes() {
		for _, side := range c.sides {
			if !slices.Contains(sides[c.id], side) {
				t.Errorf("no attack of the class %q is on the side %s, want one", c.id, side)
			}
		}
		delete(sides, c.id)
	}
	for id := range sides {
		t.Errorf("attacks of the unknown class %q, want a known one", id)
	}
}

func testExists(t *testing.T, room, name string) bool {
	var files []string
	for _, wing := range []string{"", "*", "*/*"} {
		found, err := filepath.Glob(filepath.Join("..", "..", "internal", filepath.FromSlash(wing), filepath.FromSlash(room), "*_test.go"))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(text, []byte("func "+name+"(")) {
			return true
		}
	}
	return false
}
