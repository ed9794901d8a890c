package apiservice

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
)

// availableOnAllReplicas says whether it matters which replica a client meets.
const availableOnAllReplicas apiregistrationv1.APIServiceConditionType = "AvailableOnAllReplicas"

// vote is one replica's verdict.
type vote struct {
	replica string
	status  apiregistrationv1.ConditionStatus
	reason  string
	message string
}

func (v vote) available() bool { return v.status == apiregistrationv1.ConditionTrue }

// fold makes one Available condition of at least one vote. One replica that reaches the backend is enough: a client that
// meets another is told so by that one. When none does, the most frequent reason counts, and the most frequent message
// for it; among equals the choice does not depend on who folds.
//
// It has no time: see mergeConditions.
func fold(votes []vote) apiregistrationv1.APIServiceCondition {
	for _, v := range votes {
		if v.available() {
			return available(condition(v.status, passed, "all checks passed"))
		}
	}
	status := mostFrequent(votes, func(v vote) string { return string(v.status) })
	votes = keep(votes, func(v vote) bool { return string(v.status) == status })
	reason := mostFrequent(votes, func(v vote) string { return v.reason })
	votes = keep(votes, func(v vote) bool { return v.reason == reason })
	message := mostFrequent(votes, func(v vote) string { return v.message })
	return available(condition(apiregistrationv1.ConditionStatus(status), reason, message))
}

func available(c apiregistrationv1.APIServiceCondition) apiregistrationv1.APIServiceCondition {
	c.Type = apiregistrationv1.Available
	return c
}

func keep(votes []vote, that func(vote) bool) []vote {
	return slices.DeleteFunc(slices.Clone(votes), func(v vote) bool { return !that(v) })
}

// mostFrequent is the word that most votes have; of those that equally many have, the one with something to say, then
// the first in the alphabet.
func mostFrequent(votes []vote, word func(vote) string) string {
	count := make(map[string]int)
	for _, v := range votes {
		count[word(v)]++
	}
	best := word(votes[0])
	for w, n := range count {
		if cmp.Or(cmp.Compare(count[best], n), preference(w, best)) < 0 {
			best = w
		}
	}
	return best
}

// preference is negative when a is the better word of two that are equally frequent.
func preference(a, b string) int {
	if (a == "") != (b == "") {
		return cmp.Compare(len(b), len(a))
	}
	return cmp.Compare(a, b)
}

// namedReplicas bounds the list in a message.
const namedReplicas = 10

// everywhere makes the AvailableOnAllReplicas condition of at least one vote.
func everywhere(votes []vote) apiregistrationv1.APIServiceCondition {
	var blind []string
	for _, v := range votes {
		if !v.available() {
			blind = append(blind, v.replica)
		}
	}
	var c apiregistrationv1.APIServiceCondition
	switch {
	case len(blind) == 0:
		c = condition(apiregistrationv1.ConditionTrue, "AllReplicas", "every replica reaches the backend")
	case len(blind) == len(votes):
		c = condition(apiregistrationv1.ConditionFalse, "NoReplica", "no replica reaches the backend")
	default:
		c = condition(apiregistrationv1.ConditionFalse, "SomeReplicas", "replicas that do not reach the backend: "+listed(blind))
	}
	c.Type = availableOnAllReplicas
	return c
}

func listed(names []string) string {
	slices.Sort(names)
	if rest := len(names) - namedReplicas; rest > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:namedReplicas], ", "), rest)
	}
	return strings.Join(names, ", ")
}
