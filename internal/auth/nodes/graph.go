package nodes

import (
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"portico.dev/internal/podrefs"
)

// kind is a kind of object that nodes may read one by one.
type kind byte

const (
	pods kind = iota
	secrets
	configMaps
	volumeClaims
	volumes
	resourceClaims
	serviceAccounts
	volumeAttachments
	resourceSlices
	certificateRequests
)

// object is an object by name. The namespace of a cluster-wide one is empty.
type object struct {
	kind            kind
	namespace, name string
}

// graph is which objects belong to which nodes. A look-up is a few map accesses, however many pods refer to an object.
type graph struct {
	mu sync.RWMutex // protects all that follows
	// pods are the pods that have a node.
	pods map[object]podEdges
	// users counts, for what pods refer to, the pods that do by node.
	users map[object]map[string]int
	// owners is the one node of objects that name it.
	owners map[object]string
	// volumes are the PersistentVolumes that are bound.
	volumes map[string]volumeEdges
	// secretVolumes are the volumes that a Secret belongs to.
	secretVolumes map[object]map[string]struct{}
}

// podEdges is a pod's node, and what the pod refers to.
type podEdges struct {
	node string
	refs []object
}

// volumeEdges is the claim that a volume is bound to, and the volume's Secrets.
type volumeEdges struct {
	claim   object
	secrets []object
}

func newGraph() *graph {
	return &graph{
		pods: map[object]podEdges{}, users: map[object]map[string]int{}, owners: map[object]string{},
		volumes: map[string]volumeEdges{}, secretVolumes: map[object]map[string]struct{}{},
	}
}

// setPod replaces what is known of a pod. One that has no node is nobody's.
func (g *graph) setPod(pod *corev1.Pod) {
	at := object{pods, pod.Namespace, pod.Name}
	edges := podEdges{node: pod.Spec.NodeName, refs: refsOf(pod)}
	g.mu.Lock()
	defer g.mu.Unlock()
	old, known := g.pods[at]
	if known && old.node == edges.node && slices.Equal(old.refs, edges.refs) {
		return // most updates are of the status
	}
	g.removePod(at)
	if edges.node == "" {
		return
	}
	g.pods[at] = edges
	for _, ref := range edges.refs {
		if g.users[ref] == nil {
			g.users[ref] = map[string]int{}
		}
		g.users[ref][edges.node]++
	}
}

func (g *graph) deletePod(namespace, name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.removePod(object{pods, namespace, name})
}

// removePod is called with mu.
func (g *graph) removePod(at object) {
	old, known := g.pods[at]
	if !known {
		return
	}
	delete(g.pods, at)
	for _, ref := range old.refs {
		users := g.users[ref]
		if users[old.node]--; users[old.node] == 0 {
			delete(users, old.node)
		}
		if len(users) == 0 {
			delete(g.users, ref)
		}
	}
}

// refsOf are the objects that a pod refers to, in order, each once. A mirror pod has none: its node wrote it, and must not
// get rights that way.
func refsOf(pod *corev1.Pod) []object {
	if _, mirror := pod.Annotations[corev1.MirrorPodAnnotationKey]; mirror || pod.Spec.NodeName == "" {
		return nil
	}
	found := map[object]struct{}{}
	add := func(k kind, name string) { found[object{k, pod.Namespace, name}] = struct{}{} }
	if pod.Spec.ServiceAccountName != "" {
		add(serviceAccounts, pod.Spec.ServiceAccountName)
	}
	for name := range podrefs.Secrets(&pod.Spec) {
		add(secrets, name)
	}
	for name := range podrefs.ConfigMaps(&pod.Spec) {
		add(configMaps, name)
	}
	for name := range podrefs.VolumeClaims(pod) {
		add(volumeClaims, name)
	}
	for name := range podrefs.ResourceClaims(pod) {
		add(resourceClaims, name)
	}
	return slices.SortedFunc(maps.Keys(found), compare)
}

// setVolume replaces what is known of a PersistentVolume.
func (g *graph) setVolume(pv *corev1.PersistentVolume) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.removeVolume(pv.Name)
	claim := pv.Spec.ClaimRef
	if claim == nil {
		return
	}
	edges := volumeEdges{claim: object{volumeClaims, claim.Namespace, claim.Name}}
	for namespace, name := range podrefs.VolumeSecrets(pv) {
		secret := object{secrets, namespace, name}
		edges.secrets = append(edges.secrets, secret)
		if g.secretVolumes[secret] == nil {
			g.secretVolumes[secret] = map[string]struct{}{}
		}
		g.secretVolumes[secret][pv.Name] = struct{}{}
	}
	g.volumes[pv.Name] = edges
}

func (g *graph) deleteVolume(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.removeVolume(name)
}

// removeVolume is called with mu.
func (g *graph) removeVolume(name string) {
	for _, secret := range g.volumes[name].secrets {
		delete(g.secretVolumes[secret], name)
		if len(g.secretVolumes[secret]) == 0 {
			delete(g.secretVolumes, secret)
		}
	}
	delete(g.volumes, name)
}

// setOwner records the node of an object that names one; an empty node: that it has none.
func (g *graph) setOwner(o object, node string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if node == "" {
		delete(g.owners, o)
		return
	}
	g.owners[o] = node
}

// belongs reports whether an object belongs to a node.
func (g *graph) belongs(o object, node string) bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	switch o.kind {
	case pods:
		pod, known := g.pods[o]
		return known && pod.node == node
	case volumeAttachments, resourceSlices, certificateRequests:
		owner, known := g.owners[o]
		return known && owner == node
	case volumes:
		return o.namespace == "" && g.mounts(o.name, node)
	case secrets:
		for volume := range g.secretVolumes[o] {
			if g.mounts(volume, node) {
				return true
			}
		}
	}
	return g.users[o][node] > 0
}

// mounts reports whether a pod of the node uses the claim that a volume is bound to. It is called with mu.
func (g *graph) mounts(volume, node string) bool {
	edges, known := g.volumes[volume]
	return known && g.users[edges.claim][node] > 0
}
