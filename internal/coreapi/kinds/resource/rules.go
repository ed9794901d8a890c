package resource

import (
	"context"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/operation"
	apivalidate "k8s.io/apimachinery/pkg/api/validate"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"portico.dev/internal/coreapi/validate"
)

// declared are the rules that the tags of a Go type state.
type declared[T runtime.Object] func(ctx context.Context, op operation.Operation, path *field.Path, obj, old T) field.ErrorList

// handwritten are the rules of a kind that its tags do not state, or not yet. An error that a tag states too is marked as covered,
// as upstream does: then the client gets the one of the tag. status is nil if the kind has none.
type handwritten[T runtime.Object] struct {
	create         func(obj T) field.ErrorList
	update, status func(obj, old T) field.ErrorList
}

func rulesOf[T runtime.Object](tags declared[T], own handwritten[T]) validate.Rules {
	var none T
	create := func(obj T) field.ErrorList {
		return merged(own.create(obj), tags(context.Background(), operationOf(operation.Create), nil, obj, none))
	}
	update := func(obj, old T) field.ErrorList {
		return merged(own.update(obj, old), tags(context.Background(), operationOf(operation.Update), nil, obj, old))
	}
	if own.status == nil {
		return validate.OnUpdate(create, update).CheckFinalizers()
	}
	return validate.WithStatus(create, update, func(obj, old T) field.ErrorList {
		return merged(own.status(obj, old), tags(context.Background(), operationOf(operation.Update, "status"), nil, obj, old))
	}).CheckFinalizers()
}

// operationOf says of the features that the tags ask for that they are off, which is their default in this version.
func operationOf(kind operation.Type, subresource ...string) operation.Operation {
	return operation.Operation{Type: kind, Request: operation.Request{Subresources: subresource}, Options: map[string]bool{
		"DRAPartitionableDevicesType": false,
	}}
}

// betaTagsCount is kube-apiserver's feature gate DeclarativeValidationBeta, which is on by default.
const betaTagsCount = true

// merged drops the handwritten errors that tags have found too. Tags that are alpha find nothing.
func merged(own, tags field.ErrorList) field.ErrorList {
	tags = apivalidate.FilterEnforcedDeclarativeErrors(context.Background(), tags, betaTagsCount)
	return append(apivalidate.FilterCoveredHandwrittenErrors(context.Background(), own, tags, betaTagsCount), tags...)
}

// covered marks errors that a tag states too.
func covered(errs field.ErrorList) field.ErrorList { return errs.MarkCoveredByDeclarative() }

// checkEach checks at most a number of items. Negative: any number. More are reported by their number, and not looked at. A check that is marked as
// sizeCovered is stated by a tag too.
func checkEach[T any](items []T, most int, size coverage, path *field.Path, check func(T, *field.Path) field.ErrorList) field.ErrorList {
	if most >= 0 && len(items) > most {
		err := field.TooMany(path, len(items), most).WithOrigin("maxItems")
		if size == byTags {
			err = err.MarkCoveredByDeclarative()
		}
		return field.ErrorList{err}
	}
	return validate.EachValue(items, path, check)
}

// coverage says whether a tag states a rule too.
type coverage bool

const (
	byTags  coverage = true
	byHand  coverage = false
	anySize          = -1
)

// checkSet is checkEach for items that must have different keys.
func checkSet[T any, K comparable](items []T, most int, size, unique coverage, path *field.Path, key func(T) K, check func(T, *field.Path) field.ErrorList) field.ErrorList {
	errs := checkEach(items, most, size, path, check)
	if most >= 0 && len(items) > most {
		return errs
	}
	seen := map[K]bool{}
	for i, item := range items {
		k := key(item)
		if !seen[k] {
			seen[k] = true
			continue
		}
		err := field.Duplicate(path.Index(i), k)
		if unique == byTags {
			err = err.MarkCoveredByDeclarative()
		}
		errs = append(errs, err)
	}
	return errs
}

func itself(name string) string { return name }

// checkMap checks the keys and values of a map. A key in the path of an error is cut in the middle if it is longer than longest.
func checkMap[K ~string, V any](m map[K]V, most, longest int, keys coverage, path *field.Path,
	checkKey func(K, *field.Path) field.ErrorList, check func(V, *field.Path) field.ErrorList,
) field.ErrorList {
	if most >= 0 && len(m) > most {
		return field.ErrorList{field.TooMany(path, len(m), most)}
	}
	var errs field.ErrorList
	for key, value := range m {
		wrong := checkKey(key, path)
		if keys == byTags {
			wrong = covered(wrong)
		}
		errs = append(errs, wrong...)
		errs = append(errs, check(value, path.Key(shortened(string(key), longest)))...)
	}
	return errs
}

// shortened leaves out the middle of what is too long.
func shortened(text string, longest int) string {
	const ellipsis, least = "...", 16
	longest = max(longest, least)
	if len(text) <= longest {
		return text
	}
	left := longest - len(ellipsis)
	return text[:(left+1)/2] + ellipsis + text[len(text)-left/2:]
}

// longestQualifiedName is that of an attribute or a capacity: a domain, a slash and an identifier.
const longestQualifiedName = resourcev1.DeviceMaxDomainLength + 1 + resourcev1.DeviceMaxIDLength
