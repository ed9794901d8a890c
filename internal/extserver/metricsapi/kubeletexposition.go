package metricsapi

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// exposition is the content of one response of /metrics/resource.
type exposition struct {
	node Reading
	pods map[PodKey]map[string]Reading
	// halves is the number of containers without CPU or memory. Their pods are omitted.
	halves int
}

// partial is a container or node while its lines are parsed.
type partial struct {
	Reading
	cpu, memory bool
}

// maxContainers limits the containers of one node. By default, kubelets run 110 pods.
const maxContainers = 20_000

// parse parses the text format. Kubelets put the time of a measurement in the timestamp of its line; the default is scraped.
// Other metrics are skipped and need not be well-formed.
func parse(body []byte, scraped time.Time) (*exposition, error) {
	var node partial
	containers := map[PodKey]map[string]*partial{}
	total := 0
	for number := 1; len(body) > 0; number++ {
		var line []byte
		line, body, _ = bytes.Cut(body, []byte{'\n'})
		name := metricName(line)
		if !used(name) {
			continue
		}
		s, err := parseSample(name, string(line[len(name):]))
		if err != nil {
			return nil, fmt.Errorf("line %d: %s: %w", number, name, err)
		}
		target := &node
		if strings.HasPrefix(name, "container_") {
			key := PodKey{Namespace: s.labels["namespace"], Name: s.labels["pod"]}
			if key.Name == "" || s.labels["container"] == "" {
				continue
			}
			if containers[key] == nil {
				containers[key] = map[string]*partial{}
			}
			if target = containers[key][s.labels["container"]]; target == nil {
				if total++; total > maxContainers {
					return nil, fmt.Errorf("more than %d containers", maxContainers)
				}
				target = &partial{}
				containers[key][s.labels["container"]] = target
			}
		}
		target.take(name, s, scraped)
	}
	if !node.cpu || !node.memory {
		return nil, errors.New("the node's own CPU or memory is missing; is this a kubelet's /metrics/resource?")
	}
	return whole(node, containers), nil
}

func metricName(line []byte) string {
	if end := bytes.IndexAny(line, "{ \t"); end > 0 && line[0] != '#' {
		return string(line[:end])
	}
	return ""
}

func used(name string) bool {
	switch name {
	case "node_cpu_usage_seconds_total", "node_memory_working_set_bytes",
		"container_cpu_usage_seconds_total", "container_memory_working_set_bytes", "container_start_time_seconds":
		return true
	}
	return false
}

// take adds the value of one line. The reading gets the time of the CPU line, because the rate is computed from it.
func (p *partial) take(name string, s sample, scraped time.Time) {
	switch {
	case strings.HasSuffix(name, "_cpu_usage_seconds_total"):
		p.cpu, p.Seconds, p.At = true, s.value, scraped
		if !s.at.IsZero() {
			p.At = s.at
		}
	case strings.HasSuffix(name, "_memory_working_set_bytes"):
		p.memory, p.WorkingSet = true, uint64(s.value)
	case s.value > 0:
		p.Started = time.UnixMilli(int64(s.value * 1000))
	}
}

// whole omits pods with incomplete containers. A container without memory has just exited. A container with only a start time
// is not running.
func whole(node partial, containers map[PodKey]map[string]*partial) *exposition {
	e := &exposition{node: node.Reading, pods: make(map[PodKey]map[string]Reading, len(containers))}
	for key, parts := range containers {
		readings := make(map[string]Reading, len(parts))
		halves := 0
		for name, p := range parts {
			switch {
			case p.cpu && p.memory && p.WorkingSet > 0:
				readings[name] = p.Reading
			case p.cpu || p.memory:
				halves++
			}
		}
		if e.halves += halves; halves == 0 && len(readings) > 0 {
			e.pods[key] = readings
		}
	}
	return e
}

type sample struct {
	labels map[string]string
	value  float64
	at     time.Time // zero if the line has no timestamp
}

// parseSample parses the text after a metric's name: labels, value, and optionally a timestamp in milliseconds.
func parseSample(name, rest string) (s sample, err error) {
	if strings.HasPrefix(rest, "{") {
		if s.labels, rest, err = parseLabels(rest[1:]); err != nil {
			return s, err
		}
	}
	fields := strings.Fields(rest)
	if len(fields) != 1 && len(fields) != 2 {
		return s, fmt.Errorf("%d words where a value and perhaps a timestamp belong", len(fields))
	}
	if s.value, err = strconv.ParseFloat(fields[0], 64); err != nil {
		return s, fmt.Errorf("value: %w", err)
	}
	if !(s.value >= 0 && s.value < 1<<62) { // rejects NaN too
		return s, fmt.Errorf("value %s of %s is out of range", fields[0], name)
	}
	if len(fields) == 2 {
		ms, err := strconv.ParseInt(fields[1], 10, 64)
		if err != nil {
			return s, fmt.Errorf("timestamp: %w", err)
		}
		s.at = time.UnixMilli(ms)
	}
	return s, nil
}

// parseLabels parses the text after { up to and including }.
func parseLabels(in string) (labels map[string]string, rest string, err error) {
	labels = map[string]string{}
	for {
		in = strings.TrimLeft(in, " \t,")
		if strings.HasPrefix(in, "}") {
			return labels, in[1:], nil
		}
		name, after, ok := strings.Cut(in, "=")
		after = strings.TrimLeft(after, " \t")
		if !ok || !strings.HasPrefix(after, `"`) {
			return nil, "", errors.New("labels do not end")
		}
		value, tail, err := unquote(after[1:])
		if err != nil {
			return nil, "", err
		}
		labels[strings.TrimSpace(name)] = value
		in = tail
	}
}

// unquote parses up to and including the closing quote. The format has three escapes: \\, \" and \n.
func unquote(in string) (value, rest string, err error) {
	var b strings.Builder
	for i := 0; i < len(in); i++ {
		switch c := in[i]; {
		case c == '"':
			return b.String(), in[i+1:], nil
		case c == '\\' && i+1 < len(in):
			i++
			if in[i] == 'n' {
				b.WriteByte('\n')
			} else {
				b.WriteByte(in[i])
			}
		default:
			b.WriteByte(c)
		}
	}
	return "", "", errors.New("a label's value does not end")
}
