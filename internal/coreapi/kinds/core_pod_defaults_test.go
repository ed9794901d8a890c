package kinds_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"portico.dev/internal/coreapi/kinds/core"
	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestPodDefaults(t *testing.T) {
	const common = "dnsPolicy: ClusterFirst, restartPolicy: Always, schedulerName: default-scheduler, securityContext: {}, " +
		"terminationGracePeriodSeconds: 30, enableServiceLinks: true"
	const container = "imagePullPolicy: Always, terminationMessagePath: /dev/termination-log, terminationMessagePolicy: File"
	for _, c := range []struct{ situation, in, want string }{
		{"the least that a pod can say", "containers: [{name: c, image: busybox}]",
			common + ", containers: [{name: c, image: busybox, resources: {}, " + container + "}]"},
		{"a pod that knows what it wants", "dnsPolicy: Default, restartPolicy: Never, schedulerName: mine, terminationGracePeriodSeconds: 0, enableServiceLinks: false, containers: null",
			"dnsPolicy: Default, restartPolicy: Never, schedulerName: mine, securityContext: {}, terminationGracePeriodSeconds: 0, enableServiceLinks: false, containers: null"},
		{"the account by its old name", "serviceAccount: robot, containers: null", common + ", serviceAccount: robot, serviceAccountName: robot, containers: null"},
		{"the account by two names", "serviceAccount: old, serviceAccountName: robot, containers: null",
			common + ", serviceAccount: robot, serviceAccountName: robot, containers: null"},
		{"ports, requests and fields of a container on the host's network",
			"hostNetwork: true, containers: [{name: c, image: a, ports: [{containerPort: 80}], resources: {limits: {cpu: 1500u, memory: 1Gi}, requests: {memory: 1Mi}}, " +
				"env: [{name: NODE, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]}]",
			common + ", hostNetwork: true, containers: [{name: c, image: a, " + container + ", ports: [{containerPort: 80, hostPort: 80, protocol: TCP}], " +
				"resources: {limits: {cpu: 2m, memory: 1Gi}, requests: {cpu: 2m, memory: 1Mi}}, env: [{name: NODE, valueFrom: {fieldRef: {apiVersion: v1, fieldPath: metadata.name}}}]}]"},
		{"probes and hooks", "containers: [{name: c, image: a, livenessProbe: {httpGet: {port: 80}}, readinessProbe: {grpc: {port: 1}, periodSeconds: 1}, lifecycle: {preStop: {httpGet: {port: 1}}}}]",
			common + ", containers: [{name: c, image: a, resources: {}, " + container + ", livenessProbe: {httpGet: {path: /, port: 80, scheme: HTTP}, failureThreshold: 3, periodSeconds: 10, successThreshold: 1, timeoutSeconds: 1}, " +
				"readinessProbe: {grpc: {port: 1, service: ''}, failureThreshold: 3, periodSeconds: 1, successThreshold: 1, timeoutSeconds: 1}, lifecycle: {preStop: {httpGet: {path: /, port: 1, scheme: HTTP}}}}]"},
		{"volumes", "containers: null, volumes: [{name: a}, {name: b, secret: {}}, {name: c, hostPath: {path: /}}, {name: d, projected: {sources: [{serviceAccountToken: {path: t}}, {downwardAPI: {items: [{path: p, fieldRef: {fieldPath: f}}]}}]}}, " +
			"{name: e, configMap: {defaultMode: 256}}, {name: f, image: {reference: 'a:1'}}, {name: g, rbd: {image: i, monitors: null}}]",
			common + ", containers: null, volumes: [{name: a, emptyDir: {}}, {name: b, secret: {defaultMode: 420}}, {name: c, hostPath: {path: /, type: ''}}, {name: d, projected: {defaultMode: 420, sources: [{serviceAccountToken: {expirationSeconds: 3600, path: t}}, " +
				"{downwardAPI: {items: [{path: p, fieldRef: {apiVersion: v1, fieldPath: f}}]}}]}}, {name: e, configMap: {defaultMode: 256}}, {name: f, image: {reference: 'a:1', pullPolicy: IfNotPresent}}, " +
				"{name: g, rbd: {image: i, monitors: null, pool: rbd, user: admin, keyring: /etc/ceph/keyring}}]"},
		{"what a pod asks for as a whole waits for admission", "resources: {limits: {cpu: 4, memory: 4Gi}}, containers: [{name: c, image: a, resources: {requests: {cpu: 1}}}]",
			common + ", resources: {limits: {cpu: '4', memory: 4Gi}}, containers: [{name: c, image: a, " + container + ", resources: {requests: {cpu: '1'}}}]"},
	} {
		t.Run(c.situation, func(t *testing.T) {
			kindtest.Defaulted(t, &corev1.Pod{}, "spec: {"+c.in+"}", "metadata: {}\nspec: {"+c.want+"}\nstatus: {}")
		})
	}
}

func TestPodIPAndPodIPsAreKeptInSync(t *testing.T) {
	old := corev1.PodStatus{PodIP: "10.0.0.1"}
	core.PodIPs(&old)
	if len(old.PodIPs) != 1 || old.PodIPs[0].IP != "10.0.0.1" {
		t.Errorf("podIPs = %v, want 10.0.0.1 as in podIP", old.PodIPs)
	}
	next := corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "10.0.0.2"}, {IP: "fd00::2"}}}
	core.PodIPs(&next)
	if next.PodIP != "10.0.0.2" {
		t.Errorf("podIP = %q, want 10.0.0.2 as in podIPs", next.PodIP)
	}
}
