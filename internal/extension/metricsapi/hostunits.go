package metricsapi

import (
	"path/filepath"
	"strings"
)

// The labels of what is shown as a pod and is none.
const (
	unitLabel    = "portico.dev/unit"
	sliceLabel   = "portico.dev/slice"
	commandLabel = "portico.dev/command"
)

// units reads services, scopes and containers that stand outside of Kubernetes. None is found where systemd does not
// count them, as in version 1 with CPUAccounting=no.
func (c cgroups) units(namespace string) findings {
	out := findings{}
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

// unitName is the name of the unit whose group is at path. A container of Docker is one too, under either driver.
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

// add puts r under name. Two names that are the same once spelled for DNS are one.
func (f findings) add(namespace, name string, labels map[string]string, r Reading) {
	key := PodKey{Namespace: namespace, Name: dnsName(name)}
	container := dnsLabel(name)
	if have, ok := f[key]; ok {
		sum := have.containers[container]
		r.Seconds, r.WorkingSet = r.Seconds+sum.Seconds, r.WorkingSet+sum.WorkingSet
		have.containers[container] = r
		return
	}
	f[key] = finding{labels: labels, containers: map[string]Reading{container: r}}
}
