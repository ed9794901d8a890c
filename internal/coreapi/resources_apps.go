package coreapi

import (
	appsv1 "k8s.io/api/apps/v1"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/validate"
)

func deploymentResource() resource {
	return resource{
		name: "deployments", singular: "deployment", shortNames: []string{"deploy"}, categories: []string{"all"},
		object: &appsv1.Deployment{}, list: &appsv1.DeploymentList{}, cached: true, blindUpdate: true, generations: true,
		rules:    validate.Full(validate.ValidateDeployment, validate.ValidateDeploymentUpdate, validate.ValidateDeploymentStatus),
		defaults: defaults.Of(defaults.DefaultDeployment),
		warnings: validate.Warn(validate.WarningsOfDeployment),
		columns:  columns.DeploymentColumns,
		spec:     specOf(func(o *appsv1.Deployment) *appsv1.DeploymentSpec { return &o.Spec }),
		status:   statusOf(func(o *appsv1.Deployment) *appsv1.DeploymentStatus { return &o.Status }), statusMeta: true,
		sameContent: sameDeployment, prepareStatus: keepDeploymentLabels, statusKeeps: [][]string{{"metadata", "labels"}},
		warnsAgain: newGeneration,
	}
}

func replicaSetResource() resource {
	return resource{
		name: "replicasets", singular: "replicaset", shortNames: []string{"rs"}, categories: []string{"all"},
		object: &appsv1.ReplicaSet{}, list: &appsv1.ReplicaSetList{}, cached: true, blindUpdate: true, generations: true,
		rules:    validate.Full(validate.ValidateReplicaSet, validate.ValidateReplicaSetUpdate, validate.ValidateReplicaSetStatus),
		defaults: defaults.Of(defaults.DefaultReplicaSet),
		warnings: validate.Warn(validate.WarningsOfReplicaSet),
		columns:  columns.ReplicaSetColumns,
		spec:     specOf(func(o *appsv1.ReplicaSet) *appsv1.ReplicaSetSpec { return &o.Spec }),
		status:   statusOf(func(o *appsv1.ReplicaSet) *appsv1.ReplicaSetStatus { return &o.Status }), statusMeta: true,
		warnsAgain: newGeneration,
	}
}

func statefulSetResource() resource {
	return resource{
		name: "statefulsets", singular: "statefulset", shortNames: []string{"sts"}, categories: []string{"all"},
		object: &appsv1.StatefulSet{}, list: &appsv1.StatefulSetList{}, blindUpdate: true, generations: true,
		rules:    validate.Full(validate.ValidateStatefulSet, validate.ValidateStatefulSetUpdate, validate.ValidateStatefulSetStatus),
		defaults: defaults.Of(defaults.DefaultStatefulSet),
		warnings: validate.Warn(validate.WarningsOfStatefulSet),
		columns:  columns.StatefulSetColumns,
		spec:     specOf(func(o *appsv1.StatefulSet) *appsv1.StatefulSetSpec { return &o.Spec }),
		status:   statusOf(func(o *appsv1.StatefulSet) *appsv1.StatefulSetStatus { return &o.Status }), statusMeta: true,
		warnsAgain: newGeneration,
	}
}

func daemonSetResource() resource {
	return resource{
		name: "daemonsets", singular: "daemonset", shortNames: []string{"ds"}, categories: []string{"all"},
		object: &appsv1.DaemonSet{}, list: &appsv1.DaemonSetList{}, blindUpdate: true, generations: true,
		rules:    validate.Full(validate.ValidateDaemonSet, validate.ValidateDaemonSetUpdate, validate.ValidateDaemonSetStatus),
		defaults: defaults.Of(defaults.DefaultDaemonSet),
		warnings: validate.Warn(validate.WarningsOfDaemonSet),
		columns:  columns.DaemonSetColumns,
		spec:     specOf(func(o *appsv1.DaemonSet) *appsv1.DaemonSetSpec { return &o.Spec }),
		status:   statusOf(func(o *appsv1.DaemonSet) *appsv1.DaemonSetStatus { return &o.Status }), statusMeta: true,
		prepareCreate: numberTemplate, prepareUpdate: countTemplate, prepareStatus: keepTemplateNumber,
		warnsAgain: newGeneration,
	}
}

func controllerRevisionResource() resource {
	return resource{
		name: "controllerrevisions", singular: "controllerrevision",
		object: &appsv1.ControllerRevision{}, list: &appsv1.ControllerRevisionList{}, blindUpdate: true,
		rules:   validate.Changing(validate.ValidateControllerRevision, validate.ValidateControllerRevisionUpdate),
		columns: columns.ControllerRevisionColumns,
	}
}
