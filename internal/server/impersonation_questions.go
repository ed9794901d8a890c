package server

import (
	"fmt"
	"slices"
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
)

const authenticationGroup = "authentication.k8s.io"

// impersonationQuestions puts the parts of an identity into upstream's attributes.
type impersonationQuestions struct {
	mode   *impersonationMode
	caller user.Info
}

func (q impersonationQuestions) about(group, resource, subresource, name string) *authorizer.AttributesRecord {
	return &authorizer.AttributesRecord{
		User: q.caller, Verb: q.mode.verb(), ResourceRequest: true,
		APIGroup: group, APIVersion: "v1", Resource: resource, Subresource: subresource, Name: name,
	}
}

// namesGroup is the API group of users, groups and service accounts: the mode of old has them in the core group.
func (q impersonationQuestions) namesGroup() string {
	if q.mode.constrained() {
		return authenticationGroup
	}
	return ""
}

func (q impersonationQuestions) group(name string) *authorizer.AttributesRecord {
	return q.about(q.namesGroup(), "groups", "", name)
}

func (q impersonationQuestions) name(wanted *user.DefaultInfo) *authorizer.AttributesRecord {
	if namespace, name, err := serviceaccount.SplitUsername(wanted.Name); err == nil {
		question := q.about(q.namesGroup(), "serviceaccounts", "", name)
		question.Namespace = namespace
		return question
	}
	if node, ok := nodeName(wanted.Name); ok && q.mode.constrained() {
		if q.mode.name == associatedNode {
			node = "*" // any node, as long as it is the caller's own
		}
		return q.about(authenticationGroup, "nodes", "", node)
	}
	return q.about(q.namesGroup(), "users", "", wanted.Name)
}

// checkGroups refuses what no rule of a constrained mode can allow.
func (q impersonationQuestions) checkGroups(groups []string) error {
	switch {
	case slices.Contains(groups, ""):
		return forbidden(q.group(""), "impersonating the empty string group is not allowed")
	case slices.Contains(groups, user.SystemPrivilegedGroup):
		return forbidden(q.group(user.SystemPrivilegedGroup), "impersonating the system:masters group is not allowed")
	}
	return nil
}

// checkExtra refuses extra that could be read as other extra, or as none.
func (q impersonationQuestions) checkExtra(extra map[string][]string) error {
	for key, values := range extra {
		var reason string
		switch err := utilvalidation.IsDomainPrefixedPath(field.NewPath("extra", "key"), key).ToAggregate(); {
		case err != nil:
			reason = fmt.Sprintf("impersonating an invalid key in extra is not allowed: %v", err)
		case key != strings.ToLower(key):
			reason = fmt.Sprintf("impersonating a non-lowercase key in extra is not allowed: %q", key)
		case slices.Contains(values, ""):
			reason = "impersonating the empty string value in extra is not allowed"
		default:
			continue
		}
		return forbidden(q.about(authenticationGroup, "userextras", "", ""), reason)
	}
	return nil
}
