package kinds_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestAppsWorkloadDefaults(t *testing.T) {
	const in = "{metadata: {labels: {app: a}}, spec: {containers: [{name: c, image: i, ports: [{containerPort: 80}], resources: {limits: {cpu: 1}}}], hostNetwork: true}}"
	out := func(restart string) string {
		return "{metadata: {labels: {app: a}}, spec: {hostNetwork: true, restartPolicy: " + restart + ", dnsPolicy: ClusterFirst, schedulerName: default-scheduler, " +
			"terminationGracePeriodSeconds: 30, securityContext: {}, containers: [{name: c, image: i, imagePullPolicy: Always, terminationMessagePath: /dev/termination-log, " +
			"terminationMessagePolicy: File, ports: [{containerPort: 80, protocol: TCP}], resources: {limits: {cpu: '1'}}}]}}"
	}
	always := out("Always")
	kindtest.Defaults(t, []kindtest.Default{
		{"a deployment rolls", &appsv1.Deployment{}, "spec: {selector: null, template: " + in + "}",
			"metadata: {}\nspec: {replicas: 1, revisionHistoryLimit: 10, progressDeadlineSeconds: 600, selector: null, strategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 25%, maxSurge: 25%}}, template: " + always + "}\nstatus: {}"},
		{"a deployment that starts anew", &appsv1.Deployment{}, "spec: {replicas: 0, selector: null, strategy: {type: Recreate}, template: " + in + "}",
			"metadata: {}\nspec: {replicas: 0, revisionHistoryLimit: 10, progressDeadlineSeconds: 600, selector: null, strategy: {type: Recreate}, template: " + always + "}\nstatus: {}"},
		{"a replica set", &appsv1.ReplicaSet{}, "spec: {selector: null, template: " + in + "}", "metadata: {}\nspec: {replicas: 1, selector: null, template: " + always + "}\nstatus: {replicas: 0}"},
		{"a stateful set names the kind of its claims", &appsv1.StatefulSet{}, "spec: {selector: null, serviceName: '', template: " + in + ", volumeClaimTemplates: [{metadata: {name: d}}]}",
			"metadata: {}\nspec: {replicas: 1, revisionHistoryLimit: 10, selector: null, serviceName: '', podManagementPolicy: OrderedReady, updateStrategy: {type: RollingUpdate, rollingUpdate: {partition: 0, maxUnavailable: 1}}, " +
				"persistentVolumeClaimRetentionPolicy: {whenDeleted: Retain, whenScaled: Retain}, template: " + always + ", volumeClaimTemplates: [{apiVersion: v1, kind: PersistentVolumeClaim, " +
				"metadata: {name: d}, spec: {volumeMode: Filesystem, resources: {}}, status: {phase: Pending}}]}\nstatus: {replicas: 0, availableReplicas: 0}"},
		{"a daemon set", &appsv1.DaemonSet{}, "spec: {selector: null, template: " + in + "}",
			"metadata: {}\nspec: {revisionHistoryLimit: 10, selector: null, updateStrategy: {type: RollingUpdate, rollingUpdate: {maxUnavailable: 1, maxSurge: 0}}, template: " + always +
				"}\nstatus: {currentNumberScheduled: 0, desiredNumberScheduled: 0, numberMisscheduled: 0, numberReady: 0}"},
	})
}
