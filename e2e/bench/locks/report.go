package locks

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"portico.dev/e2e/measure"
)

// Report contains the results.
type Report struct {
	Machine    measure.Machine `json:"machine"`
	Settings   Settings        `json:"settings"`
	Waits      []Waits         `json:"waits"`
	Operations []Operation     `json:"operations"`
}

// Waits contains the locks for which an operation waits.
type Waits struct {
	Name     string        `json:"name"`
	Requests int           `json:"requests"`
	CPU      time.Duration `json:"cpuNanoseconds"`
	// Part is the time that goroutines wait for all locks, divided by the CPU time of the process.
	Part  float64 `json:"waitsToCPU"`
	Sites []Wait  `json:"sites"`
}

// Wait is a lock that goroutines wait for, with the fields of Site.
type Wait struct {
	Does string  `json:"does"`
	At   string  `json:"at"`
	For  string  `json:"for,omitempty"`
	Part float64 `json:"waitsToCPU"`
}

// minimalWait is the part of the CPU time from which a wait is reported.
const minimalWait = 0.01

// summarizeWaits divides the waits between two profiles by the CPU time.
func summarizeWaits(name string, requests int, cpu time.Duration, before, after map[place]time.Duration) Waits {
	w := Waits{Name: name, Requests: requests, CPU: cpu}
	for p, waited := range after {
		part := float64(waited-before[p]) / float64(cpu)
		if w.Part += part; part >= minimalWait {
			w.Sites = append(w.Sites, Wait{Does: p.does, At: p.at, For: p.reason, Part: part})
		}
	}
	slices.SortFunc(w.Sites, func(a, b Wait) int {
		return cmp.Or(cmp.Compare(b.Part, a.Part), cmp.Compare(a.At, b.At), cmp.Compare(a.Does, b.Does))
	})
	return w
}

// parseWaits reads the waits for locks from a profile of blocking.
func parseWaits(page []byte) (map[place]time.Duration, error) {
	_, rest, _ := strings.Cut(string(page), "cycles/second=")
	perSecond, err := strconv.ParseFloat(strings.TrimSpace(rest[:max(0, strings.IndexByte(rest, '\n'))]), 64)
	if err != nil {
		return nil, fmt.Errorf("the profile has no cycles/second: %w", err)
	}
	all := map[place]time.Duration{}
	err = entries(page, func(cycles, _ int, p place) {
		if strings.Contains(p.does, "Mutex)") {
			all[p] += time.Duration(float64(cycles) / perSecond * float64(time.Second))
		}
	})
	return all, err
}

// Operation contains the places that write the same memory for different requests (or events, of watches).
type Operation struct {
	Name  string `json:"name"`
	Times int    `json:"times"`
	Sites []Site `json:"sites"`
	// Shared is the sum of the Busiest of all sites.
	Shared float64 `json:"sharedWrites"`
}

// Site is a place in the source.
type Site struct {
	// Does is the function of package sync or sync/atomic, At the function that calls it, and For the function of ours that is the
	// reason, if it is another one.
	Does string `json:"does"`
	At   string `json:"at"`
	For  string `json:"for,omitempty"`
	// Writes is the number for each request, Busiest the part of it that writes the same address.
	Writes  float64 `json:"writes"`
	Busiest float64 `json:"busiest"`
	// Addresses is the number of addresses.
	Addresses int `json:"addresses"`
}

// place is a place in the source, with the fields of Site.
type place struct{ does, at, reason string }

// write is a place and the address that is written there.
type write struct {
	place
	address int
}

// minimal is the number of writes for each request from which a place is reported. What is rarer belongs to timers.
const minimal = 0.2

// summarize counts the writes between two records, for each of n requests.
func summarize(name string, n int, before, after map[write]int) Operation {
	sites, busiest := map[place]*Site{}, map[place]int{}
	for w, count := range after {
		if count -= before[w]; count <= 0 {
			continue
		}
		p := w.place
		s := sites[p]
		if s == nil {
			s = &Site{Does: w.does, At: w.at, For: w.reason}
			sites[p] = s
		}
		s.Addresses++
		s.Writes += float64(count) / float64(n)
		busiest[p] = max(busiest[p], count)
	}
	o := Operation{Name: name, Times: n}
	for p, s := range sites {
		if s.Busiest = float64(busiest[p]) / float64(n); s.Busiest >= minimal {
			o.Sites = append(o.Sites, *s)
			o.Shared += s.Busiest
		}
	}
	slices.SortFunc(o.Sites, func(a, b Site) int {
		return cmp.Or(cmp.Compare(b.Busiest, a.Busiest), cmp.Compare(a.At, b.At), cmp.Compare(a.Does, b.Does), cmp.Compare(a.For, b.For))
	})
	return o
}

// entry is the first line of an entry: two numbers and program counters. frame is a line for each function.
var (
	entry = regexp.MustCompile(`^(\d+) (\d+) @`)
	frame = regexp.MustCompile(`^#\s+0x[0-9a-f]+\s+(\S+)\+0x[0-9a-f]+\s`)
)

// parse reads the profile of mutexes of the front door that records.
func parse(page []byte) (map[write]int, error) {
	all := map[write]int{}
	err := entries(page, func(address, count int, p place) { all[write{p, address}] += count })
	return all, err
}

// entries calls found with the two numbers of each entry of a profile in its form for humans, and the place, if that calls package sync
// or sync/atomic.
func entries(page []byte, found func(first, second int, p place)) error {
	var p place
	var first, second int
	end := func() {
		if p.does != "" {
			found(first, second, p)
		}
	}
	lines := bufio.NewScanner(bytes.NewReader(page))
	for lines.Scan() {
		if e := entry.FindStringSubmatch(lines.Text()); e != nil {
			end()
			p = place{}
			if _, err := fmt.Sscan(e[1], &first); err != nil {
				return fmt.Errorf("the profile has %q: %w", lines.Text(), err)
			}
			if _, err := fmt.Sscan(e[2], &second); err != nil {
				return fmt.Errorf("the profile has %q: %w", lines.Text(), err)
			}
			continue
		}
		f := frame.FindStringSubmatch(lines.Text())
		if f == nil {
			continue
		}
		switch name := f[1]; {
		case strings.HasPrefix(name, "runtime."):
		case p.at == "" && isSync(name):
			p.does = short(name)
		case p.at == "":
			p.at = short(name)
			if isOurs(name) {
				p.reason = p.at
			}
		case p.reason == "" && isOurs(name):
			p.reason = short(name)
		}
	}
	end()
	return lines.Err()
}

func isSync(name string) bool {
	return strings.HasPrefix(name, "sync.") || strings.HasPrefix(name, "sync/atomic.") || strings.HasPrefix(name, "internal/sync.")
}

func isOurs(name string) bool { return strings.HasPrefix(name, "portico.dev/") }

// short returns a name without the path of its package and without type arguments.
func short(name string) string {
	name = strings.ReplaceAll(name, "[...]", "")
	return name[strings.LastIndexByte(name, '/')+1:]
}

// Markdown renders the report as a page.
func (r *Report) Markdown() ([]byte, error) {
	var out bytes.Buffer
	err := page.Execute(&out, r)
	return out.Bytes(), err
}

var page = template.Must(template.New("locks").Funcs(template.FuncMap{
	"two":     func(f float64) string { return fmt.Sprintf("%.2f", f) },
	"percent": func(f float64) string { return fmt.Sprintf("%.1f %%", 100*f) },
}).Parse(`# Locks and atomic variables that requests share

Made by ` + "`go run ./e2e/bench locks`" + ` on {{.Machine}}

## Waits for locks

The time that all goroutines wait for locks while {{.Settings.Crowd}} clients send requests, divided by the CPU time of the front door. Locks with
less than 1 % are in the sum only.

| | waits, all locks | requests | at | by | because of | waits |
|---|---|---|---|---|---|---|
{{- range .Waits}}
| {{.Name}} | {{percent .Part}} | {{.Requests}} | | | | |
{{- range .Sites}}
| | | | {{.At}} | {{.Does}} | {{if ne .For .At}}{{.For}}{{end}} | {{percent .Part}} |
{{- end}}
{{- end}}

## Writes

Each lock, and each write to an atomic variable by a method of sync/atomic, is recorded with its address while {{.Settings.Clients}} clients send
{{.Settings.Requests}} requests, or while {{.Settings.Streams}} watches receive a thousand events a second together. "Writes" is their number for
each request or event. "The same address" is how many of them write the busiest address: what different requests share, and what can make
processors wait for each other. Memory of single requests is not shown, nor what is written for fewer than one of five requests.
{{range .Operations}}
### {{.Name}}

{{.Times}} times; {{two .Shared}} writes to shared addresses for each.

| at | by | because of | writes | the same address | addresses |
|---|---|---|---|---|---|
{{- range .Sites}}
| {{.At}} | {{.Does}} | {{if ne .For .At}}{{.For}}{{end}} | {{two .Writes}} | {{two .Busiest}} | {{.Addresses}} |
{{- end}}
{{end}}`))
