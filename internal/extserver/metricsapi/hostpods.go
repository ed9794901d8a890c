package metricsapi

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Grouping selects the items that are shown as pods.
type Grouping string

// The groupings. Auto uses the first other grouping that finds any pods.
const (
	Auto      Grouping = "auto"
	Kubepods  Grouping = "kubepods"
	Units     Grouping = "units"
	Processes Grouping = "processes"
	None      Grouping = "none"
)

func (g Grouping) validate() error {
	if slices.Contains([]Grouping{Auto, Kubepods, Units, Processes, None}, g) {
		return nil
	}
	return fmt.Errorf("pods from %q: must be auto, kubepods, units, processes or none", g)
}

// podReader reads the items that are shown as pods.
type podReader struct {
	config    HostConfig
	processes processes
}

// read returns the pods of the configured grouping. It returns an error if nothing could be read, but not if it finds no
// pods.
func (p *podReader) read() (podReadings, error) {
	by := p.config.Pods
	if by == None {
		return nil, nil
	}
	if by == Processes {
		return p.processes.read(p.config.PodNamespace)
	}
	groups, err := findCgroups(p.config.CgroupPath)
	if err != nil {
		if by == Auto {
			return p.processes.read(p.config.PodNamespace)
		}
		return nil, fmt.Errorf("%s: %w", p.config.CgroupPath, err)
	}
	if by != Units {
		if found := groups.kubepods(p.config.ContainerLogPath, p.config.PodNamespace); len(found) > 0 || by == Kubepods {
			return found, nil
		}
	}
	if found := groups.units(p.config.PodNamespace); len(found) > 0 || by == Units {
		return found, nil
	}
	return p.processes.read(p.config.PodNamespace)
}

// largest returns the limit pods with the largest memory usage, and the number of omitted pods.
func (f podReadings) largest(limit int) (podReadings, int) {
	if len(f) <= limit {
		return f, 0
	}
	memory := func(k PodKey) (sum uint64) {
		for _, r := range f[k].containers {
			sum += r.WorkingSet
		}
		return sum
	}
	keys := slices.SortedFunc(maps.Keys(f), func(a, b PodKey) int {
		return cmp.Or(cmp.Compare(memory(b), memory(a)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	kept := make(podReadings, limit)
	for _, k := range keys[:limit] {
		kept[k] = f[k]
	}
	return kept, len(f) - limit
}

func (f podReadings) readings() map[PodKey]map[string]Reading {
	out := make(map[PodKey]map[string]Reading, len(f))
	for key, found := range f {
		out[key] = found.containers
	}
	return out
}

var (
	// podGroup matches the group of a pod: kubepods-burstable-pod<UID with _>.slice with the systemd driver, pod<UID> with
	// cgroupfs. The UID of a static pod is a hash without dashes.
	podGroup = regexp.MustCompile(`^(?:.*-)?pod([0-9a-f]{8}[-_]?[0-9a-f]{4}[-_]?[0-9a-f]{4}[-_]?[0-9a-f]{4}[-_]?[0-9a-f]{12})(?:\.slice)?$`)
	// containerGroup matches the group of a container: cri-containerd-<ID>.scope, crio-<ID>.scope or docker-<ID>.scope with
	// the systemd driver, <ID> with cgroupfs.
	containerGroup = regexp.MustCompile(`^(?:([a-z-]+)-)?([0-9a-f]{64})(?:\.scope)?$`)
)

// shortID is the length of an abbreviated container ID, as in container tools.
const shortID = 12

// podReadings maps the pods of one reading to their counters.
type podReadings map[PodKey]podReading

type podReading struct {
	labels     map[string]string
	containers map[string]Reading
}

// kubepods reads the pods of a kubelet on this machine. Their names come from the links that the kubelet creates for log
// collectors. Without links, a pod is named by its UID and placed in namespace.
func (c cgroups) kubepods(logs, namespace string) podReadings {
	out := podReadings{}
	var names map[string]containerName
	c.cpu.walk("", 0, func(path string) bool {
		if !ofKubelet(path) {
			return false
		}
		m := podGroup.FindStringSubmatch(filepath.Base(path))
		if m == nil {
			return true
		}
		if names == nil {
			names = containerNames(logs)
		}
		if key, f := c.pod(path, m[1], namespace, names); len(f.containers) > 0 {
			out[key] = f
		}
		return false
	})
	return out
}

// ofKubelet reports whether path is a group of a kubelet: kubepods, kubepods.slice, or kubelet.slice on nodes that are
// containers.
func ofKubelet(path string) bool { return strings.HasPrefix(path, "kube") }

func (c cgroups) pod(path, uid, namespace string, names map[string]containerName) (PodKey, podReading) {
	uid = strings.ReplaceAll(uid, "_", "-")
	key := PodKey{Namespace: namespace, Name: "pod-" + uid}
	known, unknown := map[string]Reading{}, map[string]Reading{}
	c.cpu.walk(path, maxDepth, func(sub string) bool {
		m := containerGroup.FindStringSubmatch(filepath.Base(sub))
		if m == nil || strings.HasSuffix(m[1], "conmon") { // the monitors of CRI-O have separate groups
			return false
		}
		r, err := c.read(sub)
		if err != nil || r.WorkingSet == 0 {
			return false // the container has exited
		}
		if n, ok := names[m[2]]; ok {
			key = n.pod
			known[n.container] = r
		} else {
			unknown[m[2][:shortID]] = r
		}
		return false
	})
	if len(known) > 0 {
		return key, podReading{containers: known} // if others have logs, a container without a log is the sandbox
	}
	return key, podReading{containers: unknown}
}

// containerName identifies a container within a pod.
type containerName struct {
	pod       PodKey
	container string
}

// containerNames parses /var/log/containers: <pod>_<namespace>_<container>-<ID>.log. The names cannot contain underscores.
func containerNames(dir string) map[string]containerName {
	names := map[string]containerName{}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return names
	}
	for _, e := range entries {
		parts := strings.Split(strings.TrimSuffix(e.Name(), ".log"), "_")
		if len(parts) != 3 {
			continue
		}
		if i := strings.LastIndexByte(parts[2], '-'); i > 0 {
			names[parts[2][i+1:]] = containerName{PodKey{Namespace: parts[1], Name: parts[0]}, parts[2][:i]}
		}
	}
	return names
}

// Labels of PodMetrics that stand for something other than a pod of Kubernetes.
//
//reference:annotations Labels of PodMetrics of a machine
const (
	// unitLabel is the systemd unit that was measured.
	unitLabel = "portico.dev/unit"
	// sliceLabel is the slice that the unit is in.
	sliceLabel = "portico.dev/slice"
	// commandLabel is the command of the processes that were measured.
	commandLabel = "portico.dev/command"
)

// units reads services, scopes and containers outside of Kubernetes. It finds none if systemd does not account for them, e.g.
// in version 1 with CPUAccounting=no.
func (c cgroups) units(namespace string) podReadings {
	out := podReadings{}
	c.cpu.walk("", 0, func(path string) bool {
		if ofKubelet(path) {
			return false
		}
		name, ok := unitName(path)
		if !ok {
			return true
		}
		if r, err := c.read(path); err == nil && r.WorkingSet > 0 {
			out.add(namespace, name, map[string]string{unitLabel: labelValue(name), sliceLabel: sliceOf(path)}, r)
		}
		return false
	})
	return out
}

// unitName returns the name of the unit with the group path. Docker containers count as units, with either driver.
func unitName(path string) (string, bool) {
	base := filepath.Base(path)
	if m := containerGroup.FindStringSubmatch(base); m != nil {
		kind := m[1]
		if kind == "" {
			kind = filepath.Base(filepath.Dir(path))
		}
		return kind + "-" + m[2][:shortID], true
	}
	return base, strings.HasSuffix(base, ".service") || strings.HasSuffix(base, ".scope")
}

func sliceOf(path string) string {
	for dir := filepath.Dir(path); dir != "." && dir != "/"; dir = filepath.Dir(dir) {
		if base := filepath.Base(dir); strings.HasSuffix(base, ".slice") {
			return labelValue(base)
		}
	}
	return "root"
}

// add adds r under name. Names with the same DNS form are merged.
func (f podReadings) add(namespace, name string, labels map[string]string, r Reading) {
	key := PodKey{Namespace: namespace, Name: dnsName(name)}
	container := dnsLabel(name)
	if have, ok := f[key]; ok {
		sum := have.containers[container]
		r.Seconds, r.WorkingSet = r.Seconds+sum.Seconds, r.WorkingSet+sum.WorkingSet
		have.containers[container] = r
		return
	}
	f[key] = podReading{labels: labels, containers: map[string]Reading{container: r}}
}

// maxName is the maximum length of DNS labels and label values.
const maxName = 63

// dnsName converts a unit or command to a pod name: user@1000.service becomes user-1000.service.
func dnsName(name string) string {
	var labels []string
	for _, part := range strings.Split(name, ".") {
		if part = dnsLabel(part); part != noName {
			labels = append(labels, part)
		}
	}
	return orUnnamed(trim(strings.Join(labels, ".")))
}

// noName replaces names without letters and digits.
const noName = "unnamed"

// dnsLabel converts a name to a container name.
func dnsLabel(name string) string {
	return orUnnamed(trim(strings.Map(func(c rune) rune {
		switch {
		case c >= 'A' && c <= 'Z':
			return c + 'a' - 'A'
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
			return c
		}
		return '-'
	}, name)))
}

// labelValue converts a name to a label value. It preserves case, underscores and dots.
func labelValue(name string) string {
	return strings.Trim(cut(strings.Map(func(c rune) rune {
		switch {
		case c >= 'A' && c <= 'Z', c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '_', c == '.':
			return c
		}
		return '-'
	}, name)), "-_.")
}

func trim(s string) string { return shortened(strings.Trim(s, "-.")) }

// shortened truncates a long name and appends a digest of it, so that names with a common prefix remain distinct.
func shortened(s string) string {
	if len(s) <= maxName {
		return s
	}
	sum := sha256.Sum256([]byte(s))
	suffix := hex.EncodeToString(sum[:6])
	return strings.TrimRight(s[:maxName-len(suffix)-1], "-.") + "-" + suffix
}

func cut(s string) string { return s[:min(len(s), maxName)] }

func orUnnamed(s string) string {
	return cmp.Or(s, noName)
}
