package nodes

import (
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"

	"portico.dev/internal/nodes/podrefs"
)

// kind is a kind of object that nodes may read individually.
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

// object identifies an object. The namespace of a cluster-scoped object is empty.
type object struct {
	kind            kind
	namespace, name string
}

// graph records which objects are related to which nodes. A lookup takes a few map accesses, independent of the
// number of pods that refer to an object.
type graph struct {
	mu sync.RWMutex // guards the fields below
	// pods maps the pods that have a node.
	pods map[object]podEdges
	// users counts, per referenced object, the pods of each node that refer to it.
	users map[object]map[string]int
	// owners maps objects that name a node to that node.
	owners map[object]string
	// volumes maps bound PersistentVolumes.
	volumes map[string]volumeEdges
	// secretVolumes maps a Secret to the volumes that use it.
	secretVolumes map[object]map[string]struct{}
}

// podEdges holds a pod's node and the objects to which the pod refers.
type podEdges struct {
	node string
	refs []object
}

// volumeEdges holds the claim to which a volume is bound, and the volume's Secrets.
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

// setPod replaces the edges of a pod. A pod without a node has none.
func (g *graph) setPod(pod *corev1.Pod) {
	at := object{pods, pod.Namespace, pod.Name}
	edges := podEdges{node: pod.Spec.NodeName, refs: refsOf(pod)}
	g.mu.Lock()
	defer g.mu.Unlock()
	old, known := g.pods[at]
	if known && old.node == edges.node && slices.Equal(old.refs, edges.refs) {
		return // most updates only change the status
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

// removePod removes the edges of a pod. It is called with mu held.
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

// refsOf returns the objects to which a pod refers, sorted and without duplicates. A mirror pod has none: it is
// written by its node, which must not gain rights this way.
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

// setVolume replaces the edges of a PersistentVolume.
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

// removeVolume removes the edges of a volume. It is called with mu held.
func (g *graph) removeVolume(name string) {
	for _, secret := range g.volumes[name].secrets {
		delete(g.secretVolumes[secret], name)
		if len(g.secretVolumes[secret]) == 0 {
			delete(g.secretVolumes, secret)
		}
	}
	delete(g.volumes, name)
}

// setOwner records the node that an object names. An empty node removes the entry.
func (g *graph) setOwner(o object, node string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if node == "" {
		delete(g.owners, o)
		return
	}
	g.owners[o] = node
}

// belongs reports whether an object is related to a node.
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

// mounts reports whether a pod of the node uses the claim to which a volume is bound. It is called with mu held.
func (g *graph) mounts(volume, node string) bool {
	edges, known := g.volumes[volume]
	return known && g.users[edges.claim][node] > 0
}
