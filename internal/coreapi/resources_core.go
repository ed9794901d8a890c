package coreapi

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"portico.dev/internal/coreapi/columns"
	"portico.dev/internal/coreapi/defaults"
	"portico.dev/internal/coreapi/selectable"
	"portico.dev/internal/coreapi/validate"
)

func namespaceResource() resource {
	return resource{
		name: "namespaces", singular: "namespace", shortNames: []string{"ns"}, clusterScoped: true,
		object: &corev1.Namespace{}, list: &corev1.NamespaceList{}, cached: true, blindUpdate: true,
		rules:    validate.Full(validate.ValidateNamespace, validate.ValidateNamespaceUpdate, validate.ValidateNamespaceStatus),
		defaults: defaults.Of(defaults.DefaultNamespace),
		columns:  columns.NamespaceColumns,
		fields:   selectable.NamespaceFields(),
		spec:     specOf(func(n *corev1.Namespace) *corev1.NamespaceSpec { return &n.Spec }),
		status:   statusOf(func(n *corev1.Namespace) *corev1.NamespaceStatus { return &n.Status }), statusMeta: true,
		prepareCreate: prepareNamespace, prepareUpdate: keepNamespaceFinalizers,
	}
}

func configMapResource() resource {
	return resource{
		name: "configmaps", singular: "configmap", shortNames: []string{"cm"},
		object: &corev1.ConfigMap{}, list: &corev1.ConfigMapList{}, cached: true, blindUpdate: true,
		rules:   validate.Changing(validate.ValidateConfigMap, validate.ValidateConfigMapUpdate),
		columns: columns.ConfigMapColumns,
	}
}

func secretResource() resource {
	return resource{
		name: "secrets", singular: "secret", object: &corev1.Secret{}, list: &corev1.SecretList{},
		rules:    validate.Changing(validate.ValidateSecret, validate.ValidateSecretUpdate),
		defaults: defaults.Of(defaults.DefaultSecret),
		warnings: validate.Warn(validate.SecretWarnings),
		columns:  columns.SecretColumns,
		fields:   selectable.SecretFields(),
		cached:   true, blindUpdate: true,
	}
}

func serviceAccountResource() resource {
	return resource{
		name: "serviceaccounts", singular: "serviceaccount", shortNames: []string{"sa"},
		object: &corev1.ServiceAccount{}, list: &corev1.ServiceAccountList{}, cached: true, blindUpdate: true, answersDeleted: true,
		rules:         validate.Same(validate.ValidateServiceAccount),
		columns:       columns.ServiceAccountColumns,
		prepareCreate: onlyNamesOfSecrets, prepareUpdate: func(obj, _ runtime.Object) { onlyNamesOfSecrets(obj) },
	}
}

func serviceResource() resource {
	return resource{
		name: "services", singular: "service", shortNames: []string{"svc"}, categories: []string{"all"},
		object: &corev1.Service{}, list: &corev1.ServiceList{}, directory: "services/specs",
		rules:    validate.Full(validate.ValidateService, validate.ValidateServiceUpdate, validate.ValidateServiceStatus),
		defaults: defaults.Of(defaults.DefaultService),
		warnings: validate.Warn(validate.WarningsOfService),
		columns:  columns.ServiceColumns,
		fields:   selectable.ServiceFields(),
		cached:   true, answersDeleted: true, createOnUpdate: true, blindUpdate: true,
		spec:   specOf(func(s *corev1.Service) *corev1.ServiceSpec { return &s.Spec }),
		status: statusOf(func(s *corev1.Service) *corev1.ServiceStatus { return &s.Status }), statusMeta: true,
	}
}

func endpointsResource() resource {
	return resource{
		name: "endpoints", singular: "endpoints", shortNames: []string{"ep"},
		//lint:ignore SA1019 deprecated, and still read by clients from before EndpointSlices
		object: &corev1.Endpoints{}, list: &corev1.EndpointsList{}, directory: "services/endpoints",
		rules:    validate.Changing(validate.ValidateEndpoints, validate.ValidateEndpointsUpdate),
		defaults: defaults.Of(defaults.DefaultEndpoints),
		columns:  columns.EndpointsColumns,
		cached:   true, createOnUpdate: true, blindUpdate: true,
	}
}

func eventResource() resource {
	return resource{
		name: "events", singular: "event", shortNames: []string{"ev"},
		object: &corev1.Event{}, list: &corev1.EventList{}, lifetime: eventLifetime, createOnUpdate: true, blindUpdate: true,
		rules:   validate.Same(validate.ValidateEvent),
		columns: columns.EventColumns,
		fields:  selectable.EventFields(),
	}
}

func nodeResource() resource {
	return resource{
		name: "nodes", singular: "node", shortNames: []string{"no"}, clusterScoped: true,
		object: &corev1.Node{}, list: &corev1.NodeList{}, directory: "minions", cached: true, blindUpdate: true,
		rules:    validate.Full(validate.ValidateNode, validate.ValidateNodeUpdate, validate.ValidateNodeStatus),
		defaults: defaults.Of(defaults.DefaultNode),
		columns:  columns.NodeColumns,
		fields:   selectable.NodeFields(),
		spec:     specOf(func(n *corev1.Node) *corev1.NodeSpec { return &n.Spec }),
		status:   statusOf(func(n *corev1.Node) *corev1.NodeStatus { return &n.Status }), statusMeta: true, statusOnCreate: true,
	}
}

func podResource() resource {
	return resource{
		name: "pods", singular: "pod", shortNames: []string{"po"}, categories: []string{"all"},
		object: &corev1.Pod{}, list: &corev1.PodList{}, cached: true, answersDeleted: true, blindUpdate: true, generations: true,
		rules:    validate.Full(validate.ValidatePod, validate.ValidatePodUpdate, validate.ValidatePodStatus),
		defaults: defaults.Of(defaults.DefaultPod),
		warnings: validate.Warn(validate.WarningsOfPod),
		columns:  columns.PodColumns,
		fields:   selectable.PodFields(),
		spec:     specOf(func(p *corev1.Pod) *corev1.PodSpec { return &p.Spec }),
		status:   statusOf(func(p *corev1.Pod) *corev1.PodStatus { return &p.Status }), statusMeta: true,
		prepareCreate: preparePod, prepareUpdate: keepPodResources, prepareStatus: keepOfPodStatus,
		statusKeeps: [][]string{{"metadata", "ownerReferences"}, {"metadata", "deletionTimestamp"}},
		deletion:    withGrace, warnsAgain: never, stamp: fieldsFromAppArmor,
	}
}

func persistentVolumeResource() resource {
	return resource{
		name: "persistentvolumes", singular: "persistentvolume", shortNames: []string{"pv"}, clusterScoped: true,
		object: &corev1.PersistentVolume{}, list: &corev1.PersistentVolumeList{}, cached: true, answersDeleted: true, blindUpdate: true,
		rules:    validate.Full(validate.ValidatePersistentVolume, validate.ValidatePersistentVolumeUpdate, validate.Unchecked[*corev1.PersistentVolume]),
		defaults: defaults.Of(defaults.DefaultPersistentVolume),
		warnings: validate.Warn(validate.PersistentVolumeWarnings),
		columns:  columns.PersistentVolumeColumns,
		spec:     specOf(func(v *corev1.PersistentVolume) *corev1.PersistentVolumeSpec { return &v.Spec }),
		status:   statusOf(func(v *corev1.PersistentVolume) *corev1.PersistentVolumeStatus { return &v.Status }), statusMeta: true,
		prepareCreate: prepareVolume, prepareStatus: datePhase,
	}
}

func persistentVolumeClaimResource() resource {
	return resource{
		name: "persistentvolumeclaims", singular: "persistentvolumeclaim", shortNames: []string{"pvc"},
		object: &corev1.PersistentVolumeClaim{}, list: &corev1.PersistentVolumeClaimList{}, cached: true, answersDeleted: true, blindUpdate: true,
		rules:    validate.Full(validate.ValidatePersistentVolumeClaim, validate.ValidatePersistentVolumeClaimUpdate, validate.ValidatePersistentVolumeClaimStatus),
		defaults: defaults.Of(defaults.DefaultPersistentVolumeClaim),
		warnings: validate.Warn(validate.PersistentVolumeClaimWarnings),
		columns:  columns.PersistentVolumeClaimColumns,
		spec:     specOf(func(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaimSpec { return &c.Spec }),
		status:   statusOf(func(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolumeClaimStatus { return &c.Status }), statusMeta: true,
		prepareCreate: prepareClaim, prepareUpdate: updateClaim, prepareStatus: dropVolumeHealth,
	}
}

func limitRangeResource() resource {
	return resource{
		name: "limitranges", singular: "limitrange", shortNames: []string{"limits"},
		object: &corev1.LimitRange{}, list: &corev1.LimitRangeList{}, createOnUpdate: true, blindUpdate: true,
		rules:         validate.Same(validate.ValidateLimitRange),
		defaults:      defaults.Of(defaults.DefaultLimitRange),
		prepareCreate: nameLimitRange,
	}
}

func resourceQuotaResource() resource {
	return resource{
		name: "resourcequotas", singular: "resourcequota", shortNames: []string{"quota"},
		object: &corev1.ResourceQuota{}, list: &corev1.ResourceQuotaList{}, answersDeleted: true, blindUpdate: true,
		rules:    validate.Full(validate.ValidateResourceQuota, validate.ValidateResourceQuotaUpdate, validate.ValidateResourceQuotaStatus),
		defaults: defaults.Of(defaults.DefaultResourceQuota),
		warnings: validate.Warn(validate.ResourceQuotaWarnings),
		columns:  columns.ResourceQuotaColumns,
		spec:     specOf(func(q *corev1.ResourceQuota) *corev1.ResourceQuotaSpec { return &q.Spec }),
		status:   statusOf(func(q *corev1.ResourceQuota) *corev1.ResourceQuotaStatus { return &q.Status }), statusMeta: true,
	}
}

func podTemplateResource() resource {
	return resource{
		name: "podtemplates", singular: "podtemplate",
		object: &corev1.PodTemplate{}, list: &corev1.PodTemplateList{}, answersDeleted: true, blindUpdate: true, generations: true,
		rules:    validate.Changing(validate.ValidatePodTemplate, validate.ValidatePodTemplateUpdate),
		defaults: defaults.Of(defaults.DefaultPodTemplate),
		warnings: validate.Warn(validate.WarningsOfPodTemplate),
		columns:  columns.PodTemplateColumns,
		spec:     partOf("template", func(t *corev1.PodTemplate) *corev1.PodTemplateSpec { return &t.Template }), warnsAgain: newGeneration,
	}
}

func replicationControllerResource() resource {
	return resource{
		name: "replicationcontrollers", singular: "replicationcontroller", shortNames: []string{"rc"}, categories: []string{"all"},
		object: &corev1.ReplicationController{}, list: &corev1.ReplicationControllerList{}, directory: "controllers",
		rules:       validate.Full(validate.ValidateReplicationController, validate.ValidateReplicationControllerUpdate, validate.ValidateReplicationControllerStatus),
		defaults:    defaults.Of(defaults.DefaultReplicationController),
		warnings:    validate.Warn(validate.WarningsOfReplicationController),
		columns:     columns.ReplicationControllerColumns,
		fields:      selectable.ReplicationControllerFields(),
		blindUpdate: true, generations: true,
		spec:   specOf(func(c *corev1.ReplicationController) *corev1.ReplicationControllerSpec { return &c.Spec }),
		status: statusOf(func(c *corev1.ReplicationController) *corev1.ReplicationControllerStatus { return &c.Status }), statusMeta: true,
		deletion: keepDependents, warnsAgain: newGeneration,
	}
}
