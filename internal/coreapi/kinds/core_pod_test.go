package kinds_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"portico.dev/internal/coreapi/kinds/kindtest"
	"portico.dev/internal/coreapi/registry"
)

func podOf(t *testing.T, spec string) *corev1.Pod {
	return kindtest.Decode[corev1.Pod](t, "metadata: {name: a, namespace: ns}\nspec: {"+spec+"}")
}

func TestPods(t *testing.T) {
	with := func(container string) *corev1.Pod {
		return podOf(t, "containers: [{name: c, image: i, "+container+"}]")
	}
	besides := func(spec string) *corev1.Pod { return podOf(t, "containers: [{name: c, image: i}], "+spec) }
	kindtest.Refuses(t, []kindtest.Create{
		{"no containers", podOf(t, ""), []string{"spec.containers: Required value"}},
		{"a container without name and image", podOf(t, "containers: [{}]"),
			[]string{"spec.containers[0].name: Required value", "spec.containers[0].image: Required value"}},
		{"two containers of one name, one of them first", podOf(t, "initContainers: [{name: c, image: i}], containers: [{name: c, image: i}]"),
			[]string{`spec.initContainers[0].name: Duplicate value: "c"`}},
		{"an image with a space", podOf(t, "containers: [{name: c, image: 'i '}]"),
			[]string{`spec.containers[0].image: Invalid value: "i ": must not have leading or trailing whitespace`}},
		{"a container from the debugger", besides("ephemeralContainers: [{name: d, image: i}]"),
			[]string{"spec.ephemeralContainers: Forbidden: cannot be set on create"}},
		{"ports out of range, named badly and twice", with("ports: [{containerPort: 70000, name: Web}, {name: a}, {name: a, containerPort: 1, protocol: ICMP}]"), []string{
			"spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive",
			`spec.containers[0].ports[0].name: Invalid value: "Web": must contain only alpha-numeric...`,
			"spec.containers[0].ports[1].containerPort: Required value",
			`spec.containers[0].ports[2].name: Duplicate value: "a"`,
			`spec.containers[0].ports[2].protocol: Unsupported value: "ICMP": supported values: "SCTP", "TCP", "UDP"`}},
		{"a port of the host twice", with("ports: [{containerPort: 80, hostPort: 80}, {containerPort: 81, hostPort: 80}]"),
			[]string{`spec.containers[0].ports[1].hostPort: Duplicate value: "TCP//80"`}},
		{"another port on the host's own network", podOf(t, "hostNetwork: true, containers: [{name: c, image: i, ports: [{containerPort: 80, hostPort: 81}]}]"),
			[]string{"spec.containers[0].ports[0].hostPort: Invalid value: 81: must match `containerPort` when `hostNetwork` is true"}},
		{"variables without a name and with two sources", with("env: [{value: a}, {name: A, value: a, valueFrom: {fieldRef: {fieldPath: metadata.name}}}, " +
			"{name: B, valueFrom: {}}, {name: C, valueFrom: {secretKeyRef: {name: s}}}]"), []string{
			"spec.containers[0].env[0].name: Required value",
			"spec.containers[0].env[1].valueFrom: Invalid value: \"\": may not be specified when `value` is not empty",
			`spec.containers[0].env[2].valueFrom: Invalid value: "": must specify one of...`,
			"spec.containers[0].env[3].valueFrom.secretKeyRef.key: Required value"}},
		{"mounts of nothing, on one another, out of the volume", with("volumeMounts: [{name: v, mountPath: /a}, {name: v, mountPath: /a, subPath: ../b}, {}]"), []string{
			`spec.containers[0].volumeMounts[0].name: Not found: "v"`, `spec.containers[0].volumeMounts[1].name: Not found: "v"`,
			`spec.containers[0].volumeMounts[1].mountPath: Invalid value: "/a": must be unique`,
			`spec.containers[0].volumeMounts.subPath: Invalid value: "../b": must not contain '..'`,
			"spec.containers[0].volumeMounts[2].name: Required value", "spec.containers[0].volumeMounts[2].name: Not found: \"\"", "spec.containers[0].volumeMounts[2].mountPath: Required value"}},
		{"more asked for than allowed", with("resources: {limits: {cpu: 1}, requests: {cpu: 2}}"),
			[]string{`spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1`}},
		{"probes that cannot be made", with("livenessProbe: {}, readinessProbe: {tcpSocket: {port: 0}}, startupProbe: {exec: {command: [a]}, grpc: {port: 1}, successThreshold: 2}"), []string{
			"spec.containers[0].livenessProbe: Required value: must specify a handler type",
			"spec.containers[0].readinessProbe.tcpSocket.port: Invalid value: 0: must be between 1 and 65535, inclusive",
			"spec.containers[0].startupProbe.grpc: Forbidden: may not specify more than 1 handler type",
			"spec.containers[0].startupProbe.successThreshold: Invalid value: 2: must be 1"}},
		{"volumes of two types, of one name, up the tree", besides("volumes: [{name: v, emptyDir: {}, hostPath: {path: /}}, {name: v, hostPath: {path: /a/../b}}, " +
			"{name: s, secret: {defaultMode: 512}}, {name: m, configMap: {name: m}}]"), []string{
			"spec.volumes[0].hostPath: Forbidden: may not specify more than 1 volume type",
			`spec.volumes[1].hostPath.path: Invalid value: "/a/../b": must not contain '..'`,
			"spec.volumes[2].secret.secretName: Required value",
			"spec.volumes[2].secret.defaultMode: Invalid value: 512: must be a number between 0 and 0777 (octal), both inclusive"}},
		{"policies nobody knows", besides("restartPolicy: Sometimes, dnsPolicy: Mine"), []string{
			`spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"`,
			`spec.dnsPolicy: Unsupported value: "Mine": supported values: "ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"`}},
		{"names that are none", besides("nodeName: a_b, hostname: a.b, serviceAccountName: A, activeDeadlineSeconds: 0"), []string{
			`spec.nodeName: Invalid value: "a_b": a lowercase RFC 1123 subdomain...`, `spec.hostname: Invalid value: "a.b": must not contain dots`,
			`spec.serviceAccountName: Invalid value: "A": a lowercase RFC 1123 subdomain...`,
			"spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive"}},
		{"tolerating what cannot be", besides("tolerations: [{operator: Equal}, {key: a, operator: Exists, value: b}, {key: a, effect: NoSchedule, tolerationSeconds: 1}, {key: a, operator: Gt, value: x}]"), []string{
			`spec.tolerations[0].operator: Invalid value: "Equal": operator must be Exists when...`,
			"spec.tolerations[1].operator: Invalid value: \"b\": value must be empty when `operator` is 'Exists'",
			"spec.tolerations[2].effect: Invalid value: \"NoSchedule\": effect must be 'NoExecute' when `tolerationSeconds` is set",
			`spec.tolerations[3].operator: Unsupported value: "Gt"...`}},
		{"a gate twice", besides("schedulingGates: [{name: g}, {name: g}]"), []string{`spec.schedulingGates[1]: Duplicate value: "g"`}},
	})
}

func TestPodSpecUpdatesAreRestricted(t *testing.T) {
	const other = "spec: Forbidden: pod updates may not change fields other than ..."
	stored := podOf(t, "containers: [{name: c, image: i, resources: {requests: {cpu: 1}}}], activeDeadlineSeconds: 10, "+
		"tolerations: [{key: k, operator: Exists, effect: NoExecute}], schedulingGates: [{name: g}]")
	kindtest.Changes(t, stored, map[string]kindtest.Change[*corev1.Pod]{
		"its labels":  {func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }, nil},
		"its image":   {func(p *corev1.Pod) { p.Spec.Containers[0].Image = "j" }, nil},
		"no image":    {func(p *corev1.Pod) { p.Spec.Containers[0].Image = "" }, []string{"spec.containers[0].image: Required value"}},
		"its command": {func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"sh"} }, []string{other}},
		"its node":    {func(p *corev1.Pod) { p.Spec.NodeName = "n" }, []string{other}},
		"its account": {func(p *corev1.Pod) {
			p.Spec.ServiceAccountName, p.Spec.DeprecatedServiceAccount = "admin", "admin"
		}, []string{other}},
		"the gate goes": {func(p *corev1.Pod) { p.Spec.SchedulingGates = nil }, nil},
		"a new gate": {func(p *corev1.Pod) {
			p.Spec.SchedulingGates = append(p.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: "h"})
		},
			[]string{"spec.schedulingGates[1].name: Forbidden: only deletion is allowed, but found new scheduling gate 'h'"}},
		"the same amount in other words": {func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("1000m")
		}, nil},
		"a nearer deadline": {func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr.To[int64](5) }, nil},
		"a later deadline": {func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = ptr.To[int64](20) },
			[]string{"spec.activeDeadlineSeconds: Invalid value: 20: must be less than or equal to previous value"}},
		"no deadline": {func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = nil },
			[]string{"spec.activeDeadlineSeconds: Invalid value: null: must not update from a positive integer to nil value"}},
		"another toleration": {func(p *corev1.Pod) {
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: "l", Operator: "Exists"})
		}, nil},
		"a longer toleration": {func(p *corev1.Pod) { p.Spec.Tolerations[0].TolerationSeconds = ptr.To[int64](60) }, nil},
		"no toleration": {func(p *corev1.Pod) { p.Spec.Tolerations = nil },
			[]string{"spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"}},
		"another container": {func(p *corev1.Pod) {
			p.Spec.Containers = append(p.Spec.Containers, func() corev1.Container {
				another := p.Spec.Containers[0]
				another.Name = "d"
				return another
			}())
		},
			[]string{"spec.containers: Forbidden: pod updates may not add or remove containers"}},
		"another init container": {func(p *corev1.Pod) {
			another := p.Spec.Containers[0]
			another.Name = "d"
			p.Spec.InitContainers = append(p.Spec.InitContainers, another)
		},
			[]string{"spec.initContainers: Forbidden: pod updates may not add or remove containers"}},
	})
}

func TestPodStatus(t *testing.T) {
	stored := podOf(t, "restartPolicy: OnFailure, containers: [{name: c, image: i}, {name: d, image: i}]")
	stored.ResourceVersion = "1"
	stopped := func(code int32) corev1.ContainerState {
		return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: code}}
	}
	stored.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: stopped(0)}, {Name: "d", State: stopped(1)}}
	next := stored.DeepCopy()
	next.Status.ContainerStatuses[0].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	next.Status.ContainerStatuses[1].State = corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	next.Status.PodIPs = []corev1.PodIP{{IP: "10.0.0.1"}, {IP: "10.0.0.1"}}
	next.Status.PodIP = "10.0.0.1"
	next.Status.NominatedNodeName = "a_b"
	kindtest.Refused(t, kindtest.StatusErrors(next, stored),
		"status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state",
		`status.podIPs: Invalid value: [{"ip":"10.0.0.1"},{"ip":"10.0.0.1"}]: may specify no more than one IP for each IP family`,
		`status.nominatedNodeName: Invalid value: "a_b": a lowercase RFC 1123 subdomain...`)
	stored.Spec.RestartPolicy = corev1.RestartPolicyAlways
	next.Status.PodIP, next.Status.PodIPs, next.Status.NominatedNodeName = "", nil, ""
	kindtest.Refused(t, kindtest.StatusErrors(next, stored))
	next.DeletionTimestamp = &metav1.Time{Time: time.Now()} // as the test suite of karpenter does
	registry.StatusStrategy{Strategy: kindtest.StrategyOf(t, next)}.PrepareForUpdate(t.Context(), next, stored)
	if next.DeletionTimestamp != nil {
		t.Errorf("deletionTimestamp after an update of the status = %s, want none", next.DeletionTimestamp)
	}
}
