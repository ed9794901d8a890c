package audit

import (
	"fmt"

	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

// Policy decides how much of a request is audited, and at which of its stages.
type Policy struct{ rules audit.PolicyRuleEvaluator }

// Everything is the policy without a file: every request once, when it is over, without bodies. Requests that have no
// end of their own, such as watches, are audited when they begin too.
func Everything() *Policy {
	return &Policy{policy.NewPolicyRuleEvaluator(&auditinternal.Policy{
		OmitStages: []auditinternal.Stage{auditinternal.StageRequestReceived},
		Rules:      []auditinternal.PolicyRule{{Level: auditinternal.LevelMetadata}},
	})}
}

// LoadPolicy reads a file of kind Policy, audit.k8s.io/v1.
func LoadPolicy(file string) (*Policy, error) {
	loaded, err := policy.LoadPolicyFromFile(file)
	if err != nil {
		return nil, fmt.Errorf("audit policy: %w", err)
	}
	return &Policy{policy.NewPolicyRuleEvaluator(loaded)}, nil
}

// carriesCredentials reports the resources whose bodies hold what lets a reader act as somebody else.
func carriesCredentials(group, resource, subresource string) bool {
	switch resource {
	case "secrets":
		return group == "" && subresource == ""
	case "serviceaccounts":
		return group == "" && subresource == "token"
	case "tokenreviews":
		return group == "authentication.k8s.io" && subresource == ""
	}
	return false
}

// Level is the policy's level for one request, never above Metadata for those that carry credentials.
func (p *Policy) Level(a authorizer.Attributes) audit.RequestAuditConfig {
	c := p.rules.EvaluatePolicyRule(a)
	if auditinternal.LevelMetadata.Less(c.Level) && carriesCredentials(a.GetAPIGroup(), a.GetResource(), a.GetSubresource()) {
		c.Level = auditinternal.LevelMetadata
	}
	return c
}
