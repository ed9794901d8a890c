package defaults

import (
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

func DefaultAPIService(a *apiregistrationv1.APIService) {
	if a.Spec.Service != nil {
		point(&a.Spec.Service.Port, 443)
	}
}

func DefaultRoleBinding(b *rbacv1.RoleBinding) { binding(&b.RoleRef, b.Subjects) }

func DefaultClusterRoleBinding(b *rbacv1.ClusterRoleBinding) { binding(&b.RoleRef, b.Subjects) }

func binding(role *rbacv1.RoleRef, subjects []rbacv1.Subject) {
	set(&role.APIGroup, rbacv1.GroupName)
	for i := range subjects {
		switch subjects[i].Kind {
		case rbacv1.UserKind, rbacv1.GroupKind:
			set(&subjects[i].APIGroup, rbacv1.GroupName)
		}
	}
}

func DefaultFlowSchema(f *flowcontrolv1.FlowSchema) { set(&f.Spec.MatchingPrecedence, 1000) }

func DefaultPriorityLevelConfiguration(p *flowcontrolv1.PriorityLevelConfiguration) {
	if exempt := p.Spec.Exempt; exempt != nil {
		point(&exempt.NominalConcurrencyShares, 0)
		point(&exempt.LendablePercent, 0)
	}
	limited := p.Spec.Limited
	if limited == nil {
		return
	}
	point(&limited.NominalConcurrencyShares, 30)
	point(&limited.LendablePercent, 0)
	if queuing := limited.LimitResponse.Queuing; queuing != nil {
		set(&queuing.Queues, 64)
		set(&queuing.HandSize, 8)
		set(&queuing.QueueLengthLimit, 50)
	}
}
