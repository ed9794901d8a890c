package metricsapi

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

var (
	// podGroup is a pod's group: kubepods-burstable-pod<UID with _>.slice by systemd, pod<UID> by cgroupfs. The UID of a
	// static pod is a hash without dashes.
	podGroup = regexp.MustCompile(`^(?:.*-)?pod([0-9a-f]{8}[-_]?[0-9a-f]{4}[-_]?[0-9a-f]{4}[-_]?[0-9a-f]{4}[-_]?[0-9a-f]{12})(?:\.slice)?$`)
	// containerGroup is a container's group: cri-containerd-<ID>.scope, crio-<ID>.scope, docker-<ID>.scope by systemd,
	// <ID> by cgroupfs.
	containerGroup = regexp.MustCompile(`^(?:([a-z-]+)-)?([0-9a-f]{64})(?:\.scope)?$`)
)

// shortID is how much of a container's ID tells it from others, as container tools show it.
const shortID = 12

// findings are the pods of one reading.
type findings map[PodKey]finding

type finding struct {
	labels     map[string]string
	containers map[string]Reading
}

// kubepods reads the pods that a kubelet runs here. Names come from the links that kubelets keep for log collectors;
// without them a pod is called by its UID and lives in namespace.
func (c cgroups) kubepods(logs, namespace string) findings {
	out := findings{}
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

// ofKubelet tells a kubelet's groups: kubepods, kubepods.slice, and kubelet.slice on nodes that are containers.
func ofKubelet(path string) bool { return strings.HasPrefix(path, "kube") }

func (c cgroups) pod(path, uid, namespace string, names map[string]containerName) (PodKey, finding) {
	uid = strings.ReplaceAll(uid, "_", "-")
	key := PodKey{Namespace: namespace, Name: "pod-" + uid}
	known, unknown := map[string]Reading{}, map[string]Reading{}
	c.cpu.walk(path, maxDepth, func(sub string) bool {
		m := containerGroup.FindStringSubmatch(filepath.Base(sub))
		if m == nil || strings.HasSuffix(m[1], "conmon") { // CRI-O's monitors have a group beside the container's
			return false
		}
		r, err := c.read(sub)
		if err != nil || r.WorkingSet == 0 {
			return false // it has ended
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
		return key, finding{containers: known} // what has no log beside those that have is the sandbox
	}
	return key, finding{containers: unknown}
}

// containerName is whose a container is.
type containerName struct {
	pod       PodKey
	container string
}

// containerNames reads /var/log/containers: <pod>_<namespace>_<container>-<ID>.log. None of the names may hold a _.
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
