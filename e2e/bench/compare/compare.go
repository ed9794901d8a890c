package compare

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"portico.dev/e2e/packed"
)

const (
	// beyondNoise is the factor by which the median of a figure must exceed the range of the record to count as
	// worse: 5 %.
	beyondNoise = 1.05
	// beyondOne is the factor for figures that were measured once, for which the noise is unknown.
	beyondOne = 1.25
)

// Finding is a figure that is worse.
type Finding struct {
	Page, Figure string
	// Record and Now are the medians. Noise is the worst value of the record.
	Record, Noise, Now float64
}

func (f Finding) String() string {
	return fmt.Sprintf("%s: %s: %.4g, was %.4g (at worst %.4g)", f.Page, f.Figure, f.Now, f.Record, f.Noise)
}

// Result is the result of a comparison.
type Result struct {
	Figures int
	Worse   []Finding
	// OtherMachine lists the pages from another machine, of which only ratios were compared.
	OtherMachine []string
}

// Directories compares the pages in fresh with the pages of the same name in record. It returns an error if no page
// is in both.
func Directories(record, fresh string) (Result, error) {
	var r Result
	files, err := filepath.Glob(filepath.Join(fresh, "*.json"+packed.Suffix))
	if err != nil {
		return r, err
	}
	pages := 0
	for _, file := range files {
		name := filepath.Base(file)
		was, err := read(filepath.Join(record, name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return r, err
		}
		is, err := read(file)
		if err != nil {
			return r, err
		}
		pages++
		r.page(strings.TrimSuffix(name, ".json"+packed.Suffix), was, is)
	}
	if pages == 0 {
		return r, fmt.Errorf("no page of %s is in %s", record, fresh)
	}
	if r.Figures == 0 {
		return r, fmt.Errorf("the pages of %s and %s have no figure in common", record, fresh)
	}
	return r, nil
}

func read(file string) (any, error) {
	data, err := packed.Read(file)
	if err != nil {
		return nil, err
	}
	var v any
	if err := json.Unmarshal(data, &v); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return v, nil
}

func (r *Result) page(name string, was, is any) {
	c := comparison{Result: r, page: name}
	if machine(was) != machine(is) {
		c.ratiosOnly = true
		r.OtherMachine = append(r.OtherMachine, name)
	}
	c.values("", "", was, is)
}

// machine identifies the machine of a page.
func machine(page any) string {
	object, _ := page.(map[string]any)
	m, _ := object["machine"].(map[string]any)
	return fmt.Sprint(m["processor"], m["cores"], m["memoryGiB"])
}

type comparison struct {
	*Result
	page       string
	ratiosOnly bool
}

// values compares two values of a key.
func (c *comparison) values(path, key string, was, is any) {
	switch is := is.(type) {
	case map[string]any:
		before, ok := was.(map[string]any)
		if !ok || isOtherRow(is) {
			return
		}
		if _, ok := is["median"].(float64); ok {
			c.spread(path, key, before, is)
			return
		}
		for _, key := range slices.Sorted(maps.Keys(is)) {
			if key != "machine" && key != "settings" {
				c.values(path+" "+key, key, before[key], is[key])
			}
		}
	case []any:
		before, _ := was.([]any)
		before = slices.Clone(before)
		for _, now := range is {
			id := identity(now)
			at := slices.IndexFunc(before, func(v any) bool { return identity(v) == id })
			if at < 0 {
				continue
			}
			c.values(path+" ["+id+"]", key, before[at], now)
			before = slices.Delete(before, at, at+1) // rows without a name are matched in order
		}
	case float64:
		if before, ok := was.(float64); ok {
			c.figure(path, key, before, before, is, is, beyondOne)
		}
	}
}

func (c *comparison) spread(path, key string, was, is map[string]any) {
	number := func(of map[string]any, name string) float64 { f, _ := of[name].(float64); return f }
	worst, best := "max", "min"
	if higherIsBetter.MatchString(key) {
		worst, best = best, worst
	}
	c.figure(path, key, number(was, "median"), number(was, worst), number(is, "median"), number(is, best), beyondNoise)
}

// Patterns for the names of figures. Other values, such as the number of requests, are not compared.
var (
	higherIsBetter = regexp.MustCompile(`(^p|requestsP|frontDoorP)erSecond$`)
	lowerIsBetter  = regexp.MustCompile(`(?i)(us|ms|mib|rss|rssPeak|heapKept|bytesEach|cpuSecondsPerMinute|cpuSeconds|allocations)$`)
	ratio          = regexp.MustCompile(`(?i)^(own)?(cpu|p50|p99|all|hopCPU|kubeAPIServerCPU|server)\w*To[A-Z]`)
)

// figure reports a value as worse if it exceeds the range of the record by more than a factor, and none of the new
// values reaches the median of the record.
func (c *comparison) figure(path, key string, median, worst, now, best, beyond float64) {
	isRatio := ratio.MatchString(key)
	if median <= 0 || now <= 0 || c.ratiosOnly && !isRatio {
		return
	}
	var worse bool
	switch {
	case higherIsBetter.MatchString(key):
		worse = now < worst/beyond && best < median
	case isRatio || lowerIsBetter.MatchString(key):
		worse = now > worst*beyond && best > median
	default:
		return
	}
	c.Figures++
	if worse {
		c.Worse = append(c.Worse, Finding{c.page, strings.TrimSpace(path), median, worst, now})
	}
}

// isOtherRow reports whether a row belongs to a server that is not Portico.
func isOtherRow(row map[string]any) bool {
	for _, key := range []string{"server", "through", "who"} {
		if name, ok := row[key].(string); ok {
			name = strings.ToLower(name)
			return !strings.HasPrefix(name, "front door") && !strings.HasPrefix(name, "portico") && !strings.Contains(name, "gateway")
		}
	}
	return false
}

// counts lists the numeric keys that distinguish rows.
var counts = []string{"clients", "watches", "apiServices", "bindings", "streams"}

// identity returns a key that distinguishes a row: its strings, and its values of counts.
func identity(row any) string {
	object, ok := row.(map[string]any)
	if !ok {
		return fmt.Sprint(row)
	}
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(object)) {
		switch v := object[key].(type) {
		case string:
			parts = append(parts, v)
		case bool:
			parts = append(parts, fmt.Sprint(key, "=", v))
		case float64:
			if slices.Contains(counts, key) {
				parts = append(parts, fmt.Sprint(v, " ", key))
			}
		}
	}
	return strings.Join(parts, ", ")
}
