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

// declared contains the rules in the tags of a Go type.
type declared[T runtime.Object] func(ctx context.Context, op operation.Operation, path *field.Path, obj, old T) field.ErrorList

// handwritten contains the rules of a kind that are not, or not yet, in its tags. As in upstream, an error that a tag reports
// too is marked as covered, and the client gets the error of the tag. status is nil if the kind has no status.
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

// operationOf disables the features that the tags check. They are off by default in this version.
func operationOf(kind operation.Type, subresource ...string) operation.Operation {
	return operation.Operation{Type: kind, Request: operation.Request{Subresources: subresource}, Options: map[string]bool{
		"DRAPartitionableDevicesType": false,
	}}
}

// betaTagsCount is kube-apiserver's feature gate DeclarativeValidationBeta, which is on by default.
const betaTagsCount = true

// merged drops the handwritten errors that the tags report too. Alpha tags report nothing.
func merged(own, tags field.ErrorList) field.ErrorList {
	tags = apivalidate.FilterEnforcedDeclarativeErrors(context.Background(), tags, betaTagsCount)
	return append(apivalidate.FilterCoveredHandwrittenErrors(context.Background(), own, tags, betaTagsCount), tags...)
}

// covered marks errors that a tag reports too.
func covered(errs field.ErrorList) field.ErrorList { return errs.MarkCoveredByDeclarative() }

// checkEach checks the items of a list with at most most items, or any number if most is negative. It does not check the items
// of a longer list. size reports whether a tag has the same limit.
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

// coverage reports whether a tag contains the same rule.
type coverage bool

const (
	byTags  coverage = true
	byHand  coverage = false
	anySize          = -1
)

// checkSet is checkEach for items with unique keys.
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

// checkMap checks the keys and values of a map. Error paths contain at most longest bytes of a key.
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

// shortened replaces the middle of a text that is longer than longest by an ellipsis.
func shortened(text string, longest int) string {
	const ellipsis, least = "...", 16
	longest = max(longest, least)
	if len(text) <= longest {
		return text
	}
	left := longest - len(ellipsis)
	return text[:(left+1)/2] + ellipsis + text[len(text)-left/2:]
}

// longestQualifiedName is the maximum length of the name of an attribute or a capacity: a domain, a slash and an identifier.
const longestQualifiedName = resourcev1.DeviceMaxDomainLength + 1 + resourcev1.DeviceMaxIDLength
