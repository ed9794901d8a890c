package validate_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

// create is one situation of an object that is refused.
type create struct {
	situation string
	obj       runtime.Object
	want      []string
}

func refuses(t *testing.T, cases []create) {
	t.Helper()
	for _, c := range cases {
		t.Run(c.situation, func(t *testing.T) { refused(t, createErrors(c.obj), c.want...) })
	}
}

// change is one situation of an update. The stored object is changed by a function; metadata stays as it is.
func changes[T runtime.Object](t *testing.T, stored T, cases map[string]struct {
	change func(T)
	want   []string
}) {
	t.Helper()
	any(stored).(metav1.Object).SetResourceVersion("1")
	for situation, c := range cases {
		t.Run(situation, func(t *testing.T) {
			next := stored.DeepCopyObject().(T)
			c.change(next)
			refused(t, updateErrors(next, stored), c.want...)
		})
	}
}

func TestNamespaces(t *testing.T) {
	refuses(t, []create{
		{"a name with a dot", decode[corev1.Namespace](t, "metadata: {name: a.b}"),
			[]string{`metadata.name: Invalid value: "a.b": must not contain dots`}},
		{"a finalizer that nobody owns", decode[corev1.Namespace](t, "metadata: {name: a}\nspec: {finalizers: [mine]}"),
			[]string{`spec.finalizers: Invalid value: "mine": name is neither a standard finalizer name nor is it fully qualified`}},
		{"the same on the object", decode[corev1.Namespace](t, "metadata: {name: a, finalizers: [mine, example.com/f]}"),
			[]string{`metadata.finalizers[0]: Invalid value: "mine": name is neither a standard finalizer name nor is it fully qualified`}},
	})
	deleting := decode[corev1.Namespace](t, "metadata: {name: a, resourceVersion: '1'}\nspec: {finalizers: [kubernetes]}")
	deleting.DeletionTimestamp = ptr.To(metav1.Unix(100, 0))
	revived := deleting.DeepCopy()
	revived.Status.Phase = corev1.NamespaceActive
	refused(t, statusErrors(revived, deleting),
		"status.Phase: Invalid value: \"Active\": may only be 'Terminating' if `deletionTimestamp` is not empty")

	active := decode[corev1.Namespace](t, "metadata: {name: a, resourceVersion: '1'}")
	terminating := active.DeepCopy()
	terminating.Status.Phase = corev1.NamespaceTerminating
	refused(t, statusErrors(terminating, active),
		"status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty")
}

func TestConfigMaps(t *testing.T) {
	big := decode[corev1.ConfigMap](t, "metadata: {name: a, namespace: ns}")
	big.Data = map[string]string{"k": strings.Repeat("x", corev1.MaxSecretSize)}
	big.BinaryData = map[string][]byte{"b": {0}}
	refuses(t, []create{
		{"a key that is no file name", decode[corev1.ConfigMap](t, "metadata: {name: a, namespace: ns}\ndata: {'a/b': x, '..': y}"),
			[]string{`data[a/b]: Invalid value: "a/b": a valid config key must consist of...`,
				`data[..]: Invalid value: "..": must not be '..'...`}},
		{"a key twice", decode[corev1.ConfigMap](t, "metadata: {name: a, namespace: ns}\ndata: {k: x}\nbinaryData: {k: AA==}"),
			[]string{`data[k]: Invalid value: "k": duplicate of key present in binaryData`}},
		{"a byte more than 1 MiB", big, []string{"[]: Too long: may not be more than 1048576 bytes"}},
		{"no namespace", decode[corev1.ConfigMap](t, "metadata: {name: a}"), []string{"metadata.namespace: Required value"}},
	})
	frozen := decode[corev1.ConfigMap](t, "metadata: {name: a, namespace: ns}\ndata: {k: v}\nimmutable: true")
	changes(t, frozen, map[string]struct {
		change func(*corev1.ConfigMap)
		want   []string
	}{
		"labels of an immutable one": {func(c *corev1.ConfigMap) { c.Labels = map[string]string{"a": "b"} }, nil},
		"data of an immutable one": {func(c *corev1.ConfigMap) { c.Data["k"] = "w" },
			[]string{"data: Forbidden: field is immutable when `immutable` is set"}},
		"thawing it": {func(c *corev1.ConfigMap) { c.Immutable = nil },
			[]string{"immutable: Forbidden: field is immutable when `immutable` is set"}},
		"binary data of an immutable one": {func(c *corev1.ConfigMap) { c.BinaryData = map[string][]byte{"b": {1}} },
			[]string{"binaryData: Forbidden: field is immutable when `immutable` is set"}},
	})
}

func TestSecrets(t *testing.T) {
	const meta = "metadata: {name: a, namespace: ns}\n"
	refuses(t, []create{
		{"a token for no service account", decode[corev1.Secret](t, meta+"type: kubernetes.io/service-account-token"),
			[]string{"metadata.annotations[kubernetes.io/service-account.name]: Required value"}},
		{"TLS without a key", decode[corev1.Secret](t, meta+"type: kubernetes.io/tls\nstringData: {tls.crt: x}"),
			[]string{"data[tls.key]: Required value"}},
		{"a docker config that is no JSON", decode[corev1.Secret](t, meta+"type: kubernetes.io/dockerconfigjson\nstringData: {.dockerconfigjson: hunter2}"),
			[]string{`data[.dockerconfigjson]: Invalid value: "<secret contents redacted>": invalid character...`}},
		{"an old docker config without its key", decode[corev1.Secret](t, meta+"type: kubernetes.io/dockercfg"),
			[]string{"data[.dockercfg]: Required value"}},
		{"basic auth with neither", decode[corev1.Secret](t, meta+"type: kubernetes.io/basic-auth"),
			[]string{"data[password]: Required value", "data[username]: Required value"}},
		{"basic auth with a password alone", decode[corev1.Secret](t, meta+"type: kubernetes.io/basic-auth\nstringData: {password: ''}"), nil},
		{"ssh without a key", decode[corev1.Secret](t, meta+"type: kubernetes.io/ssh-auth\nstringData: {ssh-privatekey: ''}"),
			[]string{"data[ssh-privatekey]: Required value"}},
		{"a type of one's own", decode[corev1.Secret](t, meta+"type: example.com/anything"), nil},
	})
	changes(t, decode[corev1.Secret](t, meta+"type: example.com/a\nstringData: {k: v}\nimmutable: true"), map[string]struct {
		change func(*corev1.Secret)
		want   []string
	}{
		"another type": {func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque },
			[]string{`type: Invalid value: "Opaque": field is immutable`}},
		"data of an immutable one": {func(s *corev1.Secret) { s.Data = nil },
			[]string{"data: Forbidden: field is immutable when `immutable` is set"}},
	})
}

func TestNodes(t *testing.T) {
	refuses(t, []create{
		{"a debt of memory", decode[corev1.Node](t, "metadata: {name: n}\nstatus: {capacity: {memory: '-1'}, allocatable: {}}"),
			[]string{`status.capacity.memory: Invalid value: "-1": must be greater than or equal to 0`}},
		{"half a device", decode[corev1.Node](t, "metadata: {name: n}\nstatus: {capacity: {example.com/gpu: 500m}, allocatable: {}}"),
			[]string{`status.capacity.example.com/gpu: Invalid value: "500m": must be an integer`}},
		{"a taint twice, and one without an effect", decode[corev1.Node](t, "metadata: {name: n}\nspec: {taints: [{key: a, effect: NoSchedule}, {key: a, effect: NoSchedule}, {key: b}]}"),
			[]string{`metadata.taints[1]: Duplicate value...`, "metadata.taints[2].effect: Required value"}},
		{"two CIDRs of one family", decode[corev1.Node](t, "metadata: {name: n}\nspec: {podCIDRs: [10.0.0.0/24, 10.0.1.0/24]}"),
			[]string{`spec.podCIDRs: Invalid value: ["10.0.0.0/24","10.0.1.0/24"]: may specify no more than one CIDR for each IP family`}},
	})
	changes(t, decode[corev1.Node](t, "metadata: {name: n}\nspec: {podCIDR: 10.0.0.0/24, podCIDRs: [10.0.0.0/24], providerID: p://1}"), map[string]struct {
		change func(*corev1.Node)
		want   []string
	}{
		"kubectl cordon, with its taint": {func(n *corev1.Node) {
			n.Spec.Unschedulable = true
			n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule}}
		}, nil},
		"another provider": {func(n *corev1.Node) { n.Spec.ProviderID = "p://2" },
			[]string{"spec.providerID: Invalid value: null: field cannot be modified once set"}},
		"another CIDR": {func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"10.0.1.0/24"} },
			[]string{`spec.podCIDRs: Forbidden: node updates may not change podCIDR except from "" to valid`}},
		"an address twice": {func(n *corev1.Node) {
			n.Status.Addresses = []corev1.NodeAddress{{Type: "InternalIP", Address: "10.0.0.1"}, {Type: "InternalIP", Address: "10.0.0.1"}}
		}, []string{"status.addresses[1]: Duplicate value..."}},
		"an id from long ago": {func(n *corev1.Node) { n.Spec.DoNotUseExternalID = "x" },
			[]string{"spec.externalID: Forbidden: may not be updated"}},
	})
}
