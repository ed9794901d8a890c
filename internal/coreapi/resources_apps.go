package coreapi

import appsv1 "k8s.io/api/apps/v1"

func appsResources() []resource {
	return []resource{
		{
			name: "deployments", singular: "deployment", shortNames: []string{"deploy"}, categories: []string{"all"},
			object: &appsv1.Deployment{}, list: &appsv1.DeploymentList{}, cached: true, blindUpdate: true, generations: true,
			spec:   specOf(func(o *appsv1.Deployment) *appsv1.DeploymentSpec { return &o.Spec }),
			status: statusOf(func(o *appsv1.Deployment) *appsv1.DeploymentStatus { return &o.Status }), statusMeta: true,
			sameContent: sameDeployment, prepareStatus: keepDeploymentLabels, statusKeeps: [][]string{{"metadata", "labels"}},
			warnsAgain: newGeneration,
		},
		{
			name: "replicasets", singular: "replicaset", shortNames: []string{"rs"}, categories: []string{"all"},
			object: &appsv1.ReplicaSet{}, list: &appsv1.ReplicaSetList{}, cached: true, blindUpdate: true, generations: true,
			spec:   specOf(func(o *appsv1.ReplicaSet) *appsv1.ReplicaSetSpec { return &o.Spec }),
			status: statusOf(func(o *appsv1.ReplicaSet) *appsv1.ReplicaSetStatus { return &o.Status }), statusMeta: true,
			warnsAgain: newGeneration,
		},
		{
			name: "statefulsets", singular: "statefulset", shortNames: []string{"sts"}, categories: []string{"all"},
			object: &appsv1.StatefulSet{}, list: &appsv1.StatefulSetList{}, blindUpdate: true, generations: true,
			spec:   specOf(func(o *appsv1.StatefulSet) *appsv1.StatefulSetSpec { return &o.Spec }),
			status: statusOf(func(o *appsv1.StatefulSet) *appsv1.StatefulSetStatus { return &o.Status }), statusMeta: true,
			warnsAgain: newGeneration,
		},
		{
			name: "daemonsets", singular: "daemonset", shortNames: []string{"ds"}, categories: []string{"all"},
			object: &appsv1.DaemonSet{}, list: &appsv1.DaemonSetList{}, blindUpdate: true, generations: true,
			spec:   specOf(func(o *appsv1.DaemonSet) *appsv1.DaemonSetSpec { return &o.Spec }),
			status: statusOf(func(o *appsv1.DaemonSet) *appsv1.DaemonSetStatus { return &o.Status }), statusMeta: true,
			prepareCreate: numberTemplate, prepareUpdate: countTemplate, prepareStatus: keepTemplateNumber,
			warnsAgain: newGeneration,
		},
		{
			name: "controllerrevisions", singular: "controllerrevision",
			object: &appsv1.ControllerRevision{}, list: &appsv1.ControllerRevisionList{}, blindUpdate: true,
		},
	}
}
