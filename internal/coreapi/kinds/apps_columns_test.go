package kinds_test

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"

	"portico.dev/internal/coreapi/kinds/kindtest"
)

func TestAppsWorkloadTables(t *testing.T) {
	const template = "template: {metadata: {labels: {app: web}}, spec: {containers: [{name: a, image: i}, {name: b, image: j}]}}"
	const selector = "selector: {matchLabels: {app: web}}, " + template
	kindtest.Table[appsv1.Deployment](t,
		"metadata: {name: web}\nspec: {replicas: 3, "+selector+"}\nstatus: {readyReplicas: 2, updatedReplicas: 3, availableReplicas: 2}",
		"metadata: {name: broken}\nspec: {selector: {matchExpressions: [{key: a, operator: Maybe}]}, template: {spec: {containers: null}}}")
	kindtest.Table[appsv1.ReplicaSet](t,
		"metadata: {name: web-1}\nspec: {replicas: 3, "+selector+"}\nstatus: {replicas: 2, readyReplicas: 1}", "metadata: {name: bare}\nspec: {selector: null}\nstatus: {replicas: 0}")
	kindtest.Table[appsv1.StatefulSet](t, "metadata: {name: db}\nspec: {replicas: 3, serviceName: db, "+selector+"}\nstatus: {replicas: 3, readyReplicas: 2}")
	kindtest.Table[appsv1.DaemonSet](t, "metadata: {name: agent}\nspec: {selector: {matchLabels: {app: web}}, template: {spec: {nodeSelector: {disk: ssd}, containers: [{name: a, image: i}]}}}\n"+
		"status: {desiredNumberScheduled: 5, currentNumberScheduled: 4, numberReady: 3, updatedNumberScheduled: 2, numberAvailable: 1, numberMisscheduled: 0}")
	kindtest.Table[appsv1.ControllerRevision](t,
		"metadata: {name: db-1, ownerReferences: [{apiVersion: apps/v1, kind: StatefulSet, name: db, uid: u, controller: true}]}\nrevision: 7", "metadata: {name: loose}\nrevision: 1")
}
